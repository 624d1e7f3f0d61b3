"""Checkpoints: one file, whole or absent, that holds data only.

file         one file under a name with its digest
container    the bytes of the file
segments     large arrays beside the file
remote       files in object storage
state        what may stand in a checkpoint
normal_form  state as plain containers and arrays
tagged       values that are data but no plain containers
pickle_scan  refuses all but plain data before loading
signing      who wrote a checkpoint that may run code
opaque       files and pickles that may run code
disk         files that are whole or absent
"""

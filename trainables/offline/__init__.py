"""Stored experience: batches of transitions written to files, and learnt from again.

config   what is written, what is read, and what fits together
batches  a fragment as a batch of named columns, as files hold it
packed   arrays that stand packed in a file, read as data only
writer   files that a trainer writes, each row once
"""

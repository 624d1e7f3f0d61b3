"""Speed of sweep beside its peers and beside the shortest loops written by hand.

cases      what is compared with what, and the ratio that is to be reached
against    our own costs beside those of another checkout
runner     alternates the sides of a case, one process at a time, and keeps every run
peers      an environment of its own for the libraries that are compared with
report     docs/performance.md
pictures   docs/performance.svg
measures   a module for each figure; it prints one line of JSON with ``value``
"""

"""Stored experience: batches of transitions written to files, and learnt from again.

config       what is written, what is read, and what fits together
batches      a fragment as a batch of named columns, as files hold it
packed       arrays that stand packed in a file, read as data only
writer       files that a trainer writes, each row once
following    which rows of a batch follow each other
reader       batches of files, checked; from which place on is their state
tables       Parquet files
minari_sets  data sets of Minari
sources      what reads a source; one kind of files made of another
workers      rollout workers that read what they give
estimators   what a policy would return, from episodes of another one
"""

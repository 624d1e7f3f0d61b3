"""Stored experience: batches of transitions written to files, and learnt from again.

config       settings for reading and writing, and their checks
batches      a fragment as a batch of named columns, as files hold it
packed       packed arrays in a file, read as data only
writer       files that a trainer writes, each row once
following    the order of a batch's rows
reader       readers of checked batches, whose state is the position
tables       Parquet files
minari_sets  data sets of Minari
sources      the reader of each source, and conversion of files
workers      rollout workers that read experience
estimators   a policy's return, estimated from episodes of another one
"""

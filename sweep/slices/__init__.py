"""Slices in a worker process: stretches of a trial's training.

slice          runs one slice; the only caller of Trainable
messages       what a worker is sent, and what it answers
checkpoints    from which checkpoint a slice begins, and which ones it writes
journal        what a slice tells while it runs, in a file of its trial
reports        reads that: of slices that run, and of those that did not return
store          where checkpoints lie: in the folder, or in object storage behind it
retention      which checkpoints are kept
stopping       where a slice ends by what its results say
log            what a trial prints, turned over where it grows
cache          the live trainable that a process keeps for the next slice
isolated       a trial in a process of its own, forked from the worker
stacked        many slices side by side, whose trials are lanes of one program
process_state  what a trial may change in its process, and how it is put back
"""

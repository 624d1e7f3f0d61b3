"""Slices: stretches of a trial's training, run in a worker process.

slice          runs one slice; the only caller of Trainable
messages       the specification of a slice, and its outcome
checkpoints    the checkpoint that a slice starts from, and those it writes
journal        writes the results and checkpoints of a running slice to a file of its trial
reports        reads journals: of running slices, and of slices that did not return
store          storage of checkpoints: the sweep's folder, or object storage behind it
retention      selects the checkpoints to keep
stopping       ends a slice by its results
log            the rotated log of a trial's output
cache          the live trainable that a process keeps for the next slice
isolated       a trial in a process of its own, forked from the worker
stacked        slices side by side, with trials as lanes of one program
process_state  captures and restores the process-wide state that a trial may change
"""

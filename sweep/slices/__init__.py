"""What runs in a worker process: one stretch of a trial's training.

slice        runs one slice; the only caller of Trainable
messages     what a worker is sent, and what it answers
checkpoints  from which checkpoint a slice begins, and which ones it writes
store        where checkpoints lie: in the folder, or in object storage behind it
retention    which checkpoints are kept
stopping     where a slice ends by what its results say
cache        the live trainable that a process keeps for the next slice
"""

"""Data-parallel learning: rollout workers that also learn.

rank           a worker that samples and learns
group          the trainer's side: all ranks together
process_group  gradients averaged over processes
"""

"""Rollouts: environments stepped by a policy, in this process or in children.

worker       environments, actor, filters and streams of one worker
worker_spec  what a worker is made from
worker_set   all workers of a trainer behind one interface
make         the workers that the settings ask for
access       what callers may ask of a worker beside sampling
config       how experience is collected
samplers     how steps become fragments
batch        what a rollout writes and a learner reads
metrics      episodes in flight and finished
progress     what is counted over a trial's life
callbacks    a person's code, called at each phase
episode      the running episode as callbacks see it
recording    videos of episodes, pictures for a viewer
video        a video file
remote       workers in child processes
ranks        workers that also learn
"""

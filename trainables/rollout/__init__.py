"""Rollouts: environments stepped by a policy, in this process or in children.

config         how experience is collected
workers        one worker, all workers of a trainer, and workers in children
samplers       how steps become fragments
external       environments that call, answered in batches
alone          a worker without a trainer, with hand-written policies
agents         workers for several agents, by policy
batch          data that samplers write and learners read
episodes       running and finished episodes, as callbacks and results see them
progress       counters since a trial's beginning
callbacks      user code, called at each phase
media          pictures, videos and tables of episodes
"""

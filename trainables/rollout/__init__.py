"""Rollouts: environments stepped by a policy, in this process or in children.

config         how experience is collected
workers        one worker, all workers of a trainer, and workers in children
samplers       how steps become fragments
external       environments that call, answered in batches
alone          a worker without a trainer, with hand-written policies
agents         workers for several agents, by policy
batch          data that samplers write and learners read
metrics        episodes in flight and finished
progress       counters since a trial's beginning
callbacks      user code, called at each phase
episode        the running episode as callbacks see it
agent_records  observations, actions and rewards of each agent of a running episode
recording      videos of episodes, pictures for a viewer
media          pictures, videos and tables from callbacks, as files
video          a video file
"""

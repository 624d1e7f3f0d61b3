"""Rollouts: environments stepped by a policy, in this process or in children.

config         how experience is collected
workers        one worker, all workers of a trainer, and workers in children
samplers       how steps become fragments
external       environments that call, answered in batches
alone          a worker by itself, with policies written by hand
agents         the same with several agents, by policy
batch          what a rollout writes and a learner reads
metrics        episodes in flight and finished
progress       what is counted over a trial's life
callbacks      a person's code, called at each phase
episode        the running episode as callbacks see it
agent_records  what is known of each agent of a running episode
recording      videos of episodes, pictures for a viewer
media          pictures, videos and tables of callbacks, as files
video          a video file
"""

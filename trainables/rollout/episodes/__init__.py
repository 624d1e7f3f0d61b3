"""Running and finished episodes, as callbacks and results see them.

episode        the running episode as callbacks see it
agent_records  observations, actions and rewards of each agent of a running episode
metrics        episodes in flight and finished, as numbers
"""

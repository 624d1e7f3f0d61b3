"""Files of other tools as specs.

conversion  recognises the file and converts it
zoo         converts hyperparameters of rl-baselines3-zoo to settings of our trainers
"""

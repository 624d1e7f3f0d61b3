"""Parts that several schedulers share.

rungs         options, the top rung, the numbers of a ranking
brackets      Hyperband's brackets
stopping      schedulers that end bad trials at their levels
pruners       schedulers that ask one of Optuna's pruners
pruner_study  the history as these are shown it; they by name
population    children of the best trials replace the worst
mutation      settings perturbed or drawn anew
bandit        the Gaussian process of PB2
seeding       seeds on the rungs: trials climb in steps of training and in seeds
building      the scheduler that a spec names
"""

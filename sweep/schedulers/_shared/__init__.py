"""Parts that several schedulers share.

rungs         options, the top rung, the evidence of a ranking
front_rungs   rungs of several objectives, where trials rank by fronts
brackets      Hyperband's brackets
stopping      schedulers that end bad trials at their levels
pruners       schedulers that use one of Optuna's pruners
pruner_study  the history as a study for these pruners; pruners by name
population    offspring of the best trials replace the worst
mutation      settings perturbed or resampled
bandit        the Gaussian process of PB2
seeding       seeds on the rungs: trials climb in training and in seeds
best_tests    tests of the best trial at the top rung under further seeds
building      creates the scheduler that a spec names
"""

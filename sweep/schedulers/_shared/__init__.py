"""What several schedulers share.

rungs       options, the top rung, the numbers of a ranking
brackets    Hyperband's brackets
stopping    schedulers that end bad trials where they stand
pruners     schedulers that ask one of Optuna's pruners
population  children of the best take the places of the worst
mutation    settings perturbed or drawn anew
bandit      the Gaussian process of PB2
racing      seeds only for trials that could still be the best
"""

"""The classes that `Trainer` extends, each the base of the next.

algorithm   what an algorithm declares and defines; a config becomes settings
collector   policy, filters and workers, and the end of a round
loop        iterations, their results, evaluations and checkpoints
"""

"""The classes that `Trainer` extends, each the base of the next, and a policy's own.

algorithm   what an algorithm declares and defines; a config becomes settings
collector   policy, filters and workers, and the end of a round
loop        iterations, their results, evaluations and checkpoints
policy      one policy of a trainer, in the form of RLlib's policies
"""

"""How a search space is written: our words, W&B's, expressions.

reader   how a parameter is written
reading  what the readers share: expected keys, mistakes with their place
numbers  bounds, steps, means and deviations
grammar  which texts are expressions
wandb    parameters in the words of W&B's sweeps
aliases  what other tools call our words
"""

"""The model behind the pick, as functions of arrays.

shrinkage  what scores say of settings once luck is taken off them
outlook    by how much more training is expected to improve the pick
"""

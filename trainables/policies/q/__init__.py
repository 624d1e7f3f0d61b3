"""Policies that hold a value for each choice.

actor     acts in numpy: the best choice, or another to explore
own       the same with a torch module of a person's own
networks  the values in torch, and the network that follows as a target
"""

"""Policies whose actions lie between bounds: an actor without a critic acts, two critics train it.

acting  the actor in numpy, and its exploration with real numbers or choices
twins   actor and twin critics in torch, without and with a critic of states
"""

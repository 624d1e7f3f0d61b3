"""Policies whose actions lie between bounds: an actor alone, beside two critics.

acting  acts in numpy, and explores with real numbers or choices
twins   actor and twin critics in torch, without and with a critic of states
"""

"""Policies with one value per choice.

actor     the actor in numpy: the best choice, or another one to explore
own       networks and actor around a user's torch module
networks  the value networks in torch, and their target network
"""

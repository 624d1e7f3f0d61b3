"""Samplers: how steps become fragments.

fragments   one batched decision per step of all environments
episodes    whole episodes
background  sampling in a thread
polling     environments that are ready go on without the others
"""

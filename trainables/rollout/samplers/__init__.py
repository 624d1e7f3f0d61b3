"""Samplers: how steps become fragments.

fragments   one batched decision per step of all environments
episodes    whole episodes
background  sampling in a thread
polling     steps the environments that are ready, without waiting for the others
"""

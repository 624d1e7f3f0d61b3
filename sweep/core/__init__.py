"""Foundations of all other packages of sweep.

errors   every error of a sweep; the place of a setting in its file
plugins  finds a class by name, dotted path or entry point
pickled  saves the trainable of a script or a notebook as a signed file
stats    statistics of few noisy scores
version  the version number and the supported systems
"""

"""Calls of an environment: results that are allowed, and errors as texts.

contract   what reset and step may return
faults     faults in words; closing an environment
rendering  pictures
"""

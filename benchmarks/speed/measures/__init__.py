"""Measurements: each module is a program that prints a line of JSON with the key ``value``."""

"""Comparison of searched settings with tuned ones, from ranges that do not know these."""

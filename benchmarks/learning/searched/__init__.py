"""Comparison of settings that a search found with tuned ones, from wide ranges."""

"""Exploration: other actions than the best ones while experience is collected.

actions  drawn, or with something added to them
weights  the best ones of other weights, an episode long (parameter noise)
"""

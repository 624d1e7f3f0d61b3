"""Exploration: noise on actions or on weights while experience is collected.

actions  sampled actions, and noise that is added to actions
weights  noise on the weights for a whole episode (parameter noise)
"""

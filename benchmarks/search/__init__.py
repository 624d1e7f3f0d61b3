"""Searches beside their peers, on games that cost nothing to play."""

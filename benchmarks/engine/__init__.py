"""Costs of the engine itself: trials that do nothing, long sweeps, commands that only look."""

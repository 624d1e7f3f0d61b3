"""Costs of the engine itself: trivial trials, long sweeps, commands that only read."""

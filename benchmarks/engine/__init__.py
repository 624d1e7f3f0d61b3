"""What the engine itself costs: trials that do nothing, long sweeps, commands that only look."""

"""Rollouts: environments stepped by a policy, in this process or in children."""

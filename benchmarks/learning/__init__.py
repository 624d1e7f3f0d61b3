"""How fast PPO learns, beside its peers."""

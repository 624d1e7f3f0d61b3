"""What an environment of another module counts in."""

episodes = 0

"""Searches, schedules and resumes trials of reinforcement-learning trainers."""

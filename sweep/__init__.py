"""Searches, schedules and resumes trials of reinforcement-learning trainers."""

__version__ = "0.1.0"

"""Environments: made, stepped in lanes, their state captured and put back."""

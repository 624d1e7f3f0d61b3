"""Policies: networks and distributions, learning in torch and acting in numpy."""

"""The version of sweep; its package and the distribution take theirs from here."""

__version__ = "0.1.0"

"""Checks and repairs of sweeps on disk, and their removal.

verify        checks ledger, checkpoints, files and copies for damage
ledger_check  checks that a ledger is readable and consistent
repair        repairs the damage that the remaining files allow
cleaning      deletes a sweep, or the files of it that are no longer needed
"""

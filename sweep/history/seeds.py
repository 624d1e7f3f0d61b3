"""The seeds of a trial: those that the search compares, and test seeds.

Replicas are numbered from 0. Those from `FIRST_TEST` on are tests: the same settings trained from
scratch under seeds that no decision has used. Their random streams have other names, so a test seed
never equals a seed of the search.
"""

from trainables.core import rng

#: Index of a trial's first test; a search uses fewer seeds than this.
FIRST_TEST = 1_000_000


def is_test(replica: int) -> bool:
    """Return whether a replica with this index is trained under a held-out test seed."""
    return replica >= FIRST_TEST


def seed_of(sweep_seed: int, trial: int, replica: int) -> int:
    """Return the seed of all random streams of a replica, in [0, 2**63).

    It is derived from the sweep's seed.
    """
    if is_test(replica):
        return rng.integer(sweep_seed, "test", trial, replica - FIRST_TEST)
    return rng.integer(sweep_seed, "trial", trial, replica)


def replica_name(trial: int, replica: int) -> str:
    """Return the name of a replica for people.

    It is ``12`` for the first seed of trial 12, ``12.1`` for the second, and ``12.test0`` for a
    test.
    """
    if is_test(replica):
        return f"{trial}.test{replica - FIRST_TEST}"
    return f"{trial}.{replica}" if replica else str(trial)

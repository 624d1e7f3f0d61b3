"""The seeds that one trial is trained under: those that the search compares, and test seeds.

Replicas are numbered from 0. Those from `FIRST_TEST` on are tests: the same settings trained from
the beginning under seeds that no decision has seen. Their streams have other names, so that no test
seed is ever a seed of the search.
"""

from trainables.core import rng

#: The index of a trial's first test; fewer seeds than that can be searched with.
FIRST_TEST = 1_000_000


def is_test(replica: int) -> bool:
    """Return whether this index is one of a test."""
    return replica >= FIRST_TEST


def seed_of(sweep_seed: int, trial: int, replica: int) -> int:
    """Return the seed of every stream of a replica, in [0, 2**63)."""
    if is_test(replica):
        return rng.integer(sweep_seed, "test", trial, replica - FIRST_TEST)
    return rng.integer(sweep_seed, "trial", trial, replica)


def replica_name(trial: int, replica: int) -> str:
    """``12``; of a further seed ``12.1``; of a test ``12.test0``."""
    if is_test(replica):
        return f"{trial}.test{replica - FIRST_TEST}"
    return f"{trial}.{replica}" if replica else str(trial)

"""Collecting experience, without learning: environment steps per CPU second.

    python -m benchmarks.speed.measures.sampling ours|limit|drawn ENV ENVS FILTER

The limit of CartPole is the shortest loop that one would write by hand, that of any other
environment as many of them alone, stepped with one action, or with some drawn beforehand
(`benchmarks.sampling`).
"""

import sys

import torch

from benchmarks import sampling
from benchmarks.speed.measures import clock


def collector(whose: str, env: str, envs: int, kind: str) -> sampling.Collect:
    """Return the collector: ``ours``, or the ``limit`` with one action or with some ``drawn``."""
    if whose == "ours":
        return sampling.worker_loop(envs, kind, {"env": env})
    if env != sampling.ENV:
        return sampling.environments_alone(env, envs, whose == "drawn")
    if envs == 1:
        return sampling.loop_of_one(kind != "NoFilter")
    return sampling.loop_of_many(envs, kind != "NoFilter")


def main() -> None:
    """Measure 3 s of CPU time."""
    torch.set_num_threads(1)
    whose, env, envs, kind = sys.argv[1:]
    clock.tell(clock.steps_per_cpu_second(collector(whose, env, int(envs), kind), 3.0))


if __name__ == "__main__":
    main()

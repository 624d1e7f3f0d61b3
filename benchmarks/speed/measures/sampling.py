"""Collecting experience, without learning: environment steps per CPU second.

    python -m benchmarks.speed.measures.sampling ours|limit ENV ENVS FILTER

The limit of CartPole is the shortest loop that one would write by hand, that of any other
environment as many of them alone, stepped with one action (`benchmarks.sampling`).
"""

import sys

import torch

from benchmarks import sampling
from benchmarks.speed.measures import clock


def main() -> None:
    """Measure 3 s of CPU time."""
    torch.set_num_threads(1)
    whose, env, envs, kind = sys.argv[1:]
    count = int(envs)
    if whose == "ours":
        collect = sampling.ours(count, kind, {"env": env})
    elif env != sampling.ENV:
        collect = sampling.environments_alone(env, count)
    elif count == 1:
        collect = sampling.alone(kind != "NoFilter")
    else:
        collect = sampling.side_by_side(count, kind != "NoFilter")
    clock.tell(clock.steps_per_cpu_second(collect, 3.0))


if __name__ == "__main__":
    main()

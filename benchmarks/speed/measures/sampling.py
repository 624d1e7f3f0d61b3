"""Environment steps per CPU second of collecting experience, without learning.

    python -m benchmarks.speed.measures.sampling ours|limit|drawn ENV ENVS FILTER

The limit of CartPole is the shortest loop by hand, with networks; that of other environments is
stepping them alone, with one action, or with actions ``drawn`` beforehand (`benchmarks.sampling`).
"""

import sys

import torch

from benchmarks import sampling
from benchmarks.speed.measures import clock


def loop_of(side: str, env: str, envs: int, kind: str) -> sampling.Collect:
    """Return the loop of a side: ``ours``, ``limit``, or ``drawn``, a limit with drawn actions."""
    if side == "ours":
        return sampling.worker_loop(envs, kind, {"env": env})
    if env != sampling.ENV:
        return sampling.environments_alone(env, envs, side == "drawn")
    if envs == 1:
        return sampling.loop_of_one(kind != "NoFilter")
    return sampling.loop_of_many(envs, kind != "NoFilter")


def main() -> None:
    """Measure 3 s of CPU time."""
    torch.set_num_threads(1)
    side, env, envs, kind = sys.argv[1:]
    clock.print_figure(clock.steps_per_cpu_second(loop_of(side, env, int(envs), kind), 3.0))


if __name__ == "__main__":
    main()

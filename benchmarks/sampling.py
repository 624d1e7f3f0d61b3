"""Speed of collecting experience, beside the shortest loop that one would write by hand.

    python -m benchmarks.sampling [--envs 1 8 64 256] [--rounds 7] [--seconds 0.3] [--config JSON]

Both collect experience of CartPole-v1 with two networks of 64 x 64 tanh units, without and with an
observation filter, in one thread of one process, alternately; the process's CPU time is measured.
Our rollout worker has default settings except for the number of environments, and records its
metrics. The loop by hand consists of gymnasium's vector environment (the plain environment if there
is one only) and a forward pass in numpy; it checks, counts and restores nothing. A ratio of 1 means
that both are equally fast.
"""

import argparse
import itertools
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

from trainables.algorithms.ppo import PPO
from trainables.core.processes.starting import ONE_THREAD
from trainables.policies.filters import RunningStat

Array = NDArray[Any]
Collect = Callable[[], int]
"""Function that collects some environment steps and returns their number."""
ENV = "CartPole-v1"
FILTERS = {"no filter": "NoFilter", "filter": "MeanStdFilter"}
STEPS = 128
"""Steps of each environment in one call of a `Collect`; eight times as many for one environment."""


class Measured(NamedTuple):
    """One row of the table: the speeds for one number of environments and one filter."""

    envs: int
    """Number of environments."""
    filter: str
    """Key of `FILTERS`."""
    ours: float
    """Median speed of our rollout worker, in steps per CPU second."""
    by_hand: float
    """Median speed of the loop by hand, in steps per CPU second."""
    ratio: float
    """Median over rounds of our speed divided by the speed by hand in the same round."""


class Networks:
    """Actor and critic side by side in one random matrix per layer."""

    def __init__(self) -> None:
        stream = np.random.default_rng(0)
        sizes = ((4, 128), (128, 128), (128, 3))
        self._layers = [
            (stream.normal(0.0, 0.1, size).astype(np.float32), np.zeros(size[1], np.float32))
            for size in sizes
        ]

    def __call__(self, x: Array) -> Array:
        """Return two logits and a value, (…, 3), for observations (…, 4)."""
        for weight, bias in self._layers[:-1]:
            x = x @ weight
            x += bias
            np.tanh(x, out=x)
        weight, bias = self._layers[-1]
        return np.asarray(x @ weight + bias)


def normalise(stat: RunningStat, observations: Array) -> Array:
    """Add observations (N, 4) to the statistics and return them normalised, float32."""
    stat.push(observations)
    scaled = (observations - stat.mean) / (stat.std() + 1e-8)
    return np.asarray(scaled.clip(-10.0, 10.0), dtype=np.float32)


def loop_of_many(envs: int, filters: bool) -> Collect:
    """Return the loop by hand for several environments."""
    vector = gymnasium.make_vec(ENV, envs, vectorization_mode="vector_entry_point")
    networks, stream, stat = Networks(), np.random.default_rng(0), RunningStat((4,))
    stored = np.empty((STEPS, envs, 4), np.float32)
    actions = np.empty((STEPS, envs), np.int64)
    logp, values, rewards = np.empty((3, STEPS, envs), np.float32)
    terminated, truncated = np.empty((2, STEPS, envs), np.bool_)
    current = [vector.reset(seed=0)[0]]

    def collect() -> int:
        observations = current[0]
        draws = stream.random((STEPS, envs), dtype=np.float32)
        for t in range(STEPS):
            stored[t] = normalise(stat, observations) if filters else observations
            head = networks(stored[t])
            margin = head[:, 1] - head[:, 0]
            second = draws[t] * (1.0 + np.exp(-margin)) < 1.0
            actions[t] = second
            logp[t] = -np.log1p(np.exp(np.where(second, -margin, margin)))
            values[t] = head[:, 2]
            observations, rewards[t], terminated[t], truncated[t], _ = vector.step(actions[t])
        current[0] = observations
        return STEPS * envs

    return collect


def loop_of_one(filters: bool) -> Collect:
    """Return the loop by hand for one environment."""
    env = gymnasium.make(ENV)
    networks, stream, stat = Networks(), np.random.default_rng(0), RunningStat((4,))
    steps = 8 * STEPS
    stored = np.empty((steps, 4), np.float32)
    actions = np.empty(steps, np.int64)
    logp, values, rewards = np.empty((3, steps), np.float32)
    terminated, truncated = np.empty((2, steps), np.bool_)
    current = [env.reset(seed=0)[0]]

    def collect() -> int:
        observation = current[0]
        draws = stream.random(steps)
        for t in range(steps):
            stored[t] = normalise(stat, observation[None])[0] if filters else observation
            first, second, values[t] = networks(stored[t]).tolist()
            chance = 1.0 / (1.0 + math.exp(first - second))
            action = int(draws[t] < chance)
            actions[t], logp[t] = action, math.log(chance if action else 1.0 - chance)
            observation, reward, over, cut, _ = env.step(action)
            rewards[t], terminated[t], truncated[t] = reward, over, cut
            if over or cut:
                observation, _ = env.reset()
        current[0] = observation
        return steps

    return collect


def environments_alone(env: str, envs: int, drawn: bool = False) -> Collect:
    """Return a loop that steps `envs` environments in turn, without networks.

    Args:
        env: id of the environment.
        drawn: True for actions drawn beforehand; False for the same action at each step.
    """
    made = [gymnasium.make(env) for _ in range(envs)]
    space = made[0].action_space
    actions = [space.sample() for _ in range(STEPS * envs)] if drawn else [space.sample()]
    for one in made:
        one.reset(seed=0)

    def collect() -> int:
        following = itertools.cycle(actions)
        for _ in range(STEPS):
            for one in made:
                _, _, over, cut, _ = one.step(next(following))
                if over or cut:
                    one.reset()
        return STEPS * envs

    return collect


def worker_loop(envs: int, kind: str, config: Mapping[str, Any]) -> Collect:
    """Return the sampling of a rollout worker with default settings, except those in `config`."""
    settings = {
        "env": ENV,
        "seed": 0,
        "num_envs_per_worker": envs,
        "rollout_fragment_length": 8 * STEPS if envs == 1 else STEPS,
        "observation_filter": kind,
        **config,
    }
    trainer = PPO(settings)
    return lambda: sum(sample.count for sample in trainer.workers.sample())


def rate(collect: Collect, seconds: float) -> float:
    """Return the speed of `collect` in steps per CPU second, measured for `seconds` or longer."""
    began, steps = time.process_time(), 0
    while (took := time.process_time() - began) < seconds or not steps:
        steps += collect()
    return steps / max(took, 1e-9)


def measure(
    envs: int, name: str, rounds: int, seconds: float, config: Mapping[str, Any]
) -> Measured:
    """Return one row: both loops, measured alternately in `rounds` rounds of `seconds` each."""
    filters = FILTERS[name] != "NoFilter"
    by_hand = loop_of_one(filters) if envs == 1 else loop_of_many(envs, filters)
    both = (worker_loop(envs, FILTERS[name], config), by_hand)
    for collect in both:
        collect()
    pairs = [tuple(rate(collect, seconds) for collect in both) for _ in range(rounds)]
    mine, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    return Measured(envs, name, mine, theirs, statistics.median(a / b for a, b in pairs))


def table(rows: Sequence[Measured]) -> str:
    """Return the rows as a Markdown table."""
    head = [
        "| environments | | ours, steps/s | by hand, steps/s | ratio |",
        "|--:|---|--:|--:|--:|",
    ]
    lines = [
        f"| {one.envs} | {one.filter} | {one.ours:,.0f} | {one.by_hand:,.0f} | {one.ratio:.2f} |"
        for one in rows
    ]
    return "\n".join(head + lines)


def main(given: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sampling", description=__doc__)
    parser.add_argument("--envs", type=int, nargs="+", default=[1, 8, 64, 256], help="environments")
    parser.add_argument(
        "--rounds", type=int, default=7, help="measurements of each loop; the two loops alternate"
    )
    parser.add_argument("--seconds", type=float, default=0.3, help="CPU time of each measurement")
    parser.add_argument(
        "--config",
        type=json.loads,
        default={},
        help="further settings of our rollout worker, as JSON",
    )
    options = parser.parse_args(given)
    rows: list[Measured] = []
    for name in FILTERS:
        for envs in options.envs:
            rows.append(measure(envs, name, options.rounds, options.seconds, options.config))
            sys.stderr.write(f"{name}, {envs}: {rows[-1].ratio:.2f}\n")
    sys.stdout.write(f"{table(rows)}\n")
    return 0


if __name__ == "__main__":
    if not ONE_THREAD.items() <= os.environ.items():  # numpy reads them when it is imported
        again = [sys.executable, "-m", "benchmarks.sampling", *sys.argv[1:]]
        os.execve(sys.executable, again, {**os.environ, **ONE_THREAD})  # noqa: S606 ourselves
    sys.exit(main())

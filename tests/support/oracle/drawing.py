"""Scripts drawn by chance, of a seed."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.support.oracle.scripts import AGENTS, ALL, ONLY, Moment, Played, Script
from trainables.core import rng

#: How episodes end, each as often: by themselves, cut off, both, or because the environment fails.
ENDS = ("terminated", "truncated", "both", "fails")


def stream_of(*names: str | int) -> np.random.Generator:
    """A stream of chance; other names, another one."""
    return rng.generator(1, *names)


def draw_rules(stream: np.random.Generator) -> dict[str, Any]:
    """Rules that any sampler follows, all of them at once."""

    def chance(share: float) -> bool:
        return bool(stream.random() < share)

    envs, fragment = int(stream.integers(1, 4)), int(stream.integers(1, 7))
    return {
        "envs": envs,
        "fragment": fragment,
        "steps": envs * fragment * int(stream.integers(1, 3)),
        "whole": chance(0.5),
        "kind": "interval" if chance(0.3) else "choice",
        "horizon": int(stream.integers(1, 7)) if chance(0.4) else None,
        "no_done": chance(0.3),
        "filtered": chance(0.5),
        "previous": chance(0.4),
        "clip": [None, True, 1.5][int(stream.integers(3))],
        "scaled": chance(0.4),
        "unfiltered": chance(0.3),
        "gamma": float(stream.random()),
        "worker": (1, 3) if chance(0.3) else (0, 1),
    }


def draw_alone(stream: np.random.Generator, envs: int, episodes: int = 4) -> Script:
    """Episodes of environments of one agent."""
    return [[_episode_alone(stream) for _ in range(episodes)] for _ in range(envs)]


def _episode_alone(stream: np.random.Generator) -> Played:
    length, how = _length(stream), str(stream.choice(ENDS))
    steps = []
    for t in range(1, length + 1):
        rewards = {ONLY: reward(stream)}
        infos = {ONLY: {"training_enabled": False}} if stream.random() < 0.15 else {}
        ends = how if t == length else ""
        steps.append(
            Moment(
                rewards=rewards,
                terminated=[ALL] if ends in ("terminated", "both") else [],
                truncated=[ALL] if ends in ("truncated", "both") else [],
                infos=infos,
                fails=ends == "fails",
            )
        )
    return Played([ONLY], steps)


def _length(stream: np.random.Generator) -> int:
    """Steps of an episode, mostly few."""
    return int(stream.integers(1, 2 + stream.integers(8)))


def reward(stream: np.random.Generator) -> float:
    """One that floats add up exactly."""
    return float(stream.integers(-8, 17)) / 4


def draw_several(
    stream: np.random.Generator, envs: int, episodes: int = 4, horizon: int | None = None
) -> Script:
    """Episodes of environments of several agents, which come, wait, go and come back.

    At the `horizon` everybody who acts sees something, as who is cut off has to.
    """
    return [[_episode(stream, horizon) for _ in range(episodes)] for _ in range(envs)]


def _episode(stream: np.random.Generator, horizon: int | None) -> Played:
    length, how = _length(stream), str(stream.choice(ENDS))
    first = [agent for agent in AGENTS if stream.random() < 0.5] or [str(stream.choice(AGENTS))]
    acting, steps = set(first), list[Moment]()
    for t in range(1, length + 1):
        ends = how if t == length else ""
        steps.append(_moment(stream, acting, ends, must_see=ends == "truncated" or t == horizon))
    return Played(first, steps)


def _moment(stream: np.random.Generator, acting: set[str], ends: str, must_see: bool) -> Moment:
    """One step; changes who is `acting` after it."""
    seen, flags = list[str](), {"terminated": list[str](), "truncated": list[str]()}
    for agent in AGENTS:
        how = _what_happens(stream, agent in acting)
        for name in how if not must_see or agent not in acting else [*how, "seen"]:
            if name == "seen":
                seen.append(agent)
            else:
                flags[name].append(agent)
    gone = {*flags["terminated"], *flags["truncated"]}
    acting |= {*seen}
    acting -= gone
    for name in flags if ends == "both" else [ends] if ends in flags else []:
        flags[name].append(ALL)
    infos = {a: {"training_enabled": False} for a in AGENTS if stream.random() < 0.1}
    rewards = {agent: reward(stream) for agent in AGENTS if stream.random() < 0.5}
    return Moment(_once(seen), rewards, **flags, infos=infos, fails=ends == "fails")


def _what_happens(stream: np.random.Generator, acts: bool) -> Sequence[str]:
    """Of one agent: whether it sees something, and whether it ends."""
    if not acts:
        return _CHANCES[int(stream.choice(4, p=[0.6, 0.3, 0.05, 0.05]))]
    return _GOES_ON[int(stream.choice(6, p=[0.3, 0.4, 0.1, 0.1, 0.05, 0.05]))]


#: Of one that is not there: it stays away, appears, or appears with its end.
_CHANCES = ((), ("seen",), ("seen", "terminated"), ("seen", "truncated"))
#: Of one that acts: it waits, sees something, or ends, the dead also without a last look.
_GOES_ON = (
    (),
    ("seen",),
    ("terminated",),
    ("seen", "terminated"),
    ("seen", "truncated"),
    ("seen", "terminated", "truncated"),
)


def _once(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(names))


def draw_schedule(stream: np.random.Generator, envs: int) -> list[list[int]]:
    """Which environments are heard in each of many polls, in an order of chance."""
    polls = [stream.permutation(envs) for _ in range(50)]
    return [[int(i) for i in order if stream.random() < 0.6] for order in polls]

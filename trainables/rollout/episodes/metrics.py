"""Episodes in flight, finished episodes, and summaries of many of them for results.

Returns are sums of the environment's own rewards, before any clipping or scaling. N environments.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from trainables.envs.kinds.atari import LIFE_LOST
from trainables.envs.vector.base import Step
from trainables.errors import CallbackError, shorten
from trainables.rollout.media import files as media


class RolloutMetrics(NamedTuple):
    """A finished episode as numbers, with what callbacks wrote into it."""

    total_reward: float
    """Sum of the environment's own rewards, before clipping and scaling."""
    length: int
    """Number of environment steps."""
    faulty: bool = False
    """True if the environment raised an error or lost the episode; it counts in no mean."""
    worker_index: int = 0
    """Index of the worker that collected the episode, set by `Progress.count`; 0 before."""
    custom_metrics: Mapping[str, float] | None = None
    """Name → number that callbacks wrote; None without callbacks."""
    hist_data: Mapping[str, list[float]] | None = None
    """Name → numbers that callbacks wrote; None without callbacks."""
    agent_rewards: Mapping[str, Sequence[Any]] | None = None
    """Agent → [its policy, the sum of its rewards]; None in environments of one agent."""
    media: Mapping[str, Any] | None = None
    """Name → picture, video or table that callbacks wrote; None if they wrote none."""


class Written(Protocol):
    """Anything with the dicts of an `Episode` that callbacks write into."""

    custom_metrics: dict[str, float]
    """Name → number."""
    hist_data: dict[str, list[float]]
    """Name → numbers."""
    media: dict[str, Any]
    """Name → picture, video or table."""


#: Arrays of `EpisodesInFlight` that stand in checkpoints.
STATE = ("rewards", "lengths", "counts")
#: Name and function of each summary of numbers; with a NaN, all of them are NaN.
_FOLDS = (("mean", np.mean), ("min", np.min), ("max", np.max))


class EpisodesInFlight:
    """Sum of rewards and number of steps so far of the running episodes of N environments."""

    def __init__(self, num_envs: int) -> None:
        self.rewards = np.zeros(num_envs)
        self._lengths = np.zeros(num_envs, dtype=np.int64)
        self._uncounted_steps = 0
        """Steps of every environment that are not yet added to its length."""
        self.counts = np.zeros(num_envs, dtype=np.int64)
        """(N,) episodes begun in each environment before the running one."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of steps of each running episode, (N,): the object's own array, not a copy."""
        if self._uncounted_steps:
            self._lengths += self._uncounted_steps
            self._uncounted_steps = 0
        return self._lengths

    def count(self, rewards: NDArray[Any]) -> None:
        """Count one step of each environment, none of which ended; `rewards` is (N,)."""
        self.rewards = self.rewards + rewards  # in place it takes three times as long for one
        self._uncounted_steps += 1

    def count_alone(self, total: float, steps: int) -> None:
        """Count `steps` steps of the only environment, none of which ended its episode.

        `total` is the sum of the episode's rewards after them.
        """
        self.rewards[0] = total
        self._uncounted_steps += steps

    def step(
        self,
        rewards: NDArray[Any],
        has_ended: NDArray[np.bool_],
        faulty: Container[int] = (),
        idle: NDArray[np.bool_] | None = None,
        written: Mapping[int, Written] | None = None,
    ) -> list[RolloutMetrics]:
        """Count one step of each environment; return the episodes that it ended, by environment.

        The ended episodes' sums and lengths begin again at 0, and their environments' `counts` grow
        by 1. An ended episode without entry in `written` has no custom metrics.

        Args:
            rewards: (N,) rewards.
            has_ended: (N,) True where the episode ended.
            faulty: indices of environments that raised an error, whose episode counts in no mean.
            idle: (N,) True where an environment made no step; None if every one made one.
            written: environment → data that callbacks wrote into the episode that ended there.
        """
        self.count(rewards)
        if idle is not None:
            self.lengths[idle] -= 1
        env_indices = has_ended.nonzero()[0]
        if not len(env_indices):
            return []
        every = self.lengths
        totals, lengths = self.rewards[env_indices].tolist(), every[env_indices].tolist()
        self.rewards[env_indices], every[env_indices] = 0.0, 0
        self.counts[env_indices] += 1
        done = list(map(RolloutMetrics, totals, lengths))
        if not faulty and not written:
            return done
        return [
            with_callback_data(
                one, written.get(env_index) if written else None, env_index in faulty
            )
            for one, env_index in zip(done, env_indices.tolist(), strict=True)
        ]

    def drop(self, env_index: int) -> None:
        """Begin an environment's next episode: sum and length are 0, its `counts` grows by 1.

        The running episode gets no `RolloutMetrics`.
        """
        self.rewards[env_index] = 0.0
        self.lengths[env_index] = 0
        self.counts[env_index] += 1

    def get_state(self) -> dict[str, Any]:
        """Return copies of ``rewards``, ``lengths`` and ``counts``, each (N,)."""
        return {name: getattr(self, name).copy() for name in STATE}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `get_state` returned."""
        for name in STATE:
            getattr(self, name)[:] = state[name]


def with_callback_data(
    episode: RolloutMetrics, written: Written | None, faulty: bool = False
) -> RolloutMetrics:
    """Return a finished episode with the data that callbacks wrote into it and the flag `faulty`.

    Args:
        written: the callbacks' dicts; None if there are no callbacks.
    """
    if written is None:
        return episode._replace(faulty=faulty)
    custom, hist = written.custom_metrics, written.hist_data
    media = written.media or None
    return episode._replace(faulty=faulty, custom_metrics=custom, hist_data=hist, media=media)


def without_lost_lives(over: NDArray[np.bool_], step: Step) -> NDArray[np.bool_]:
    """Return the flags `over` (N,) with False where an Atari game only lost a life in `step`.

    For metrics an episode is the whole game, also if lost lives end episodes for the learner.
    """
    if not step.infos:
        return over
    lost = [
        env_index
        for env_index, info in step.infos.items()
        if info.get(LIFE_LOST) and env_index not in step.faults
    ]
    if not lost:
        return over
    over = over.copy()
    over[lost] = False
    return over


def summarise(episodes: Iterable[RolloutMetrics]) -> dict[str, float]:
    """Return ``episode_reward_{mean,min,max}`` and ``episode_len_mean``; empty without episodes.

    All given episodes count; callers leave out faulty ones.
    """
    rewards, lengths = [], []
    for episode in episodes:
        rewards.append(episode.total_reward)
        lengths.append(episode.length)
    if not rewards:
        return {}
    return {
        "episode_reward_mean": float(np.mean(rewards)),
        "episode_reward_min": float(np.min(rewards)),
        "episode_reward_max": float(np.max(rewards)),
        "episode_len_mean": float(np.mean(lengths)),
    }


def summarise_policies(episodes: Iterable[RolloutMetrics]) -> dict[str, dict[str, float]]:
    """Return ``policy_reward_{mean,min,max}``, each policy → value over its agents' returns.

    It is empty unless there are several agents.
    """
    returns = policy_returns(episodes)
    folds = _FOLDS if returns else ()
    return {
        f"policy_reward_{kind}": {pid: float(fold(of)) for pid, of in returns.items()}
        for kind, fold in folds
    }


def policy_returns(episodes: Iterable[RolloutMetrics]) -> dict[str, list[float]]:
    """Return policy → the returns of the agents that it played, in the order of the episodes.

    Policies are sorted by name. Empty for episodes of one agent.
    """
    returns: dict[str, list[float]] = {}
    for episode in episodes:
        for pid, total in (episode.agent_rewards or {}).values():
            returns.setdefault(pid, []).append(float(total))
    return dict(sorted(returns.items()))


def summarise_custom(episodes: Iterable[RolloutMetrics]) -> dict[str, float]:
    """Return ``{name}_{mean,min,max}`` over the episodes that have a custom metric of that name.

    Empty if there are none.
    """
    values: dict[str, list[float]] = {}
    for episode in episodes:
        for name, value in (episode.custom_metrics or {}).items():
            values.setdefault(name, []).append(value)
    return {
        f"{name}_{kind}": float(fold(values[name]))
        for name in sorted(values)
        for kind, fold in _FOLDS
    }


def histories(episodes: Sequence[RolloutMetrics]) -> dict[str, list[float]]:
    """Return name → list of numbers in the order of the episodes, for the result's ``hist_stats``.

    Names are ``episode_reward``, ``episode_lengths``, those of callbacks' `hist_data`, and with
    several agents ``policy_{name}_reward``, which has one number for each agent.
    """
    by_name: dict[str, list[float]] = {}
    for episode in episodes:
        by_name.setdefault("episode_reward", []).append(episode.total_reward)
        by_name.setdefault("episode_lengths", []).append(episode.length)
        for name, values in (episode.hist_data or {}).items():
            by_name.setdefault(name, []).extend(values)
    returns = policy_returns(episodes)
    return {**by_name, **{f"policy_{pid}_reward": of for pid, of in returns.items()}}


def checked_numbers(written: Written) -> None:
    """Turn custom metrics and histories into floats, and pictures into arrays, in place.

    Raises CallbackError, which names the key, if a name is not text, a value is not a number, a
    history is not a list, or a medium is not allowed (`trainables.rollout.media.files.checked`).
    """
    if written.media:
        written.media = media.checked(written.media)
    for name, value in written.custom_metrics.items():
        written.custom_metrics[name] = _number(_place("custom_metrics", name), value)
    for name, values in written.hist_data.items():
        where = _place("hist_data", name)
        try:
            numbers = list(values)
        except TypeError:
            raise CallbackError(f"{where}: {shorten(values)} is not a list of numbers") from None
        written.hist_data[name] = [_number(where, value) for value in numbers]


def _place(kind: str, name: object) -> str:
    """Return ``kind['name']``, for errors; raises CallbackError if the name is not text."""
    if not isinstance(name, str):
        raise CallbackError(f"{kind}[{shorten(name)}]: a name must be text")
    return f"{kind}['{name}']"


def _number(place: str, value: Any) -> float:
    """Return `value` as a float; raises CallbackError, which begins with `place`, if it is none."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise CallbackError(f"{place}: {shorten(value)} is not a number") from None

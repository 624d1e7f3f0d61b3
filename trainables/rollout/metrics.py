"""Episodes in flight, episodes finished, and the window that their means are taken over.

Returns are sums of the environment's own rewards, before any clipping or scaling. N lanes.
"""

from collections import deque
from collections.abc import Container, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from trainables.settings import Section


class MetricsConfig(Section):
    """How episodes are summarised."""

    metrics_smoothing_episodes: int = Field(
        default=100, gt=0, description="Episodes, the latest ones, that means are taken over."
    )


class Episode(NamedTuple):
    """A finished episode."""

    reward: float
    """Sum of its rewards."""
    length: int
    """Environment steps."""
    faulty: bool = False
    """Its environment failed; it counts in no mean."""


class EpisodesInFlight:
    """What the running episode of each lane has brought so far.

    Args:
        num_envs: N.
    """

    def __init__(self, num_envs: int) -> None:
        self.rewards = np.zeros(num_envs)
        self.lengths = np.zeros(num_envs, dtype=np.int64)
        self.counts = np.zeros(num_envs, dtype=np.int64)
        """(N,) episodes begun in each lane before the running one."""

    def step(
        self,
        rewards: NDArray[Any],
        ended: NDArray[np.bool_],
        faulty: Container[int],
        ghosts: NDArray[np.bool_],
    ) -> list[Episode]:
        """Count one step of each lane but the `ghosts`, which made none.

        Returns the episodes that it ended, in lane order.
        """
        self.rewards += rewards
        self.lengths += ~ghosts
        finished: list[Episode] = []
        if not ended.any():
            return finished
        for lane in np.flatnonzero(ended):
            finished.append(self._finish(int(lane), int(lane) in faulty))
        return finished

    def _finish(self, lane: int, faulty: bool) -> Episode:
        done = Episode(float(self.rewards[lane]), int(self.lengths[lane]), faulty)
        self.drop(lane)
        return done

    def drop(self, lane: int) -> None:
        """Begin the next episode of a lane."""
        self.rewards[lane] = 0.0
        self.lengths[lane] = 0
        self.counts[lane] += 1

    def get_state(self) -> dict[str, Any]:
        """Entries ``rewards``, ``lengths``, ``counts``."""
        return {
            "rewards": self.rewards.copy(),
            "lengths": self.lengths.copy(),
            "counts": self.counts.copy(),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave."""
        self.rewards[:] = state["rewards"]
        self.lengths[:] = state["lengths"]
        self.counts[:] = state["counts"]


class EpisodeWindow:
    """The latest finished episodes.

    Args:
        size: how many are kept.
    """

    def __init__(self, size: int) -> None:
        self._episodes: deque[Episode] = deque(maxlen=size)

    def add(self, episodes: Iterable[Episode]) -> None:
        """Count more of them, oldest first."""
        self._episodes.extend(episodes)

    def summary(self) -> dict[str, float]:
        """Means and bounds; empty before the first episode has ended."""
        return summarise(self._episodes)

    def get_state(self) -> dict[str, Any]:
        """Entries ``rewards`` and ``lengths``, oldest first."""
        return {
            "rewards": np.array([e.reward for e in self._episodes]),
            "lengths": np.array([e.length for e in self._episodes], dtype=np.int64),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave."""
        pairs = zip(state["rewards"], state["lengths"], strict=True)
        self._episodes.clear()
        self._episodes.extend(Episode(float(r), int(n)) for r, n in pairs)


def summarise(episodes: Iterable[Episode]) -> dict[str, float]:
    """``episode_reward_{mean,min,max}`` and ``episode_len_mean``; empty without episodes."""
    rewards, lengths = [], []
    for episode in episodes:
        rewards.append(episode.reward)
        lengths.append(episode.length)
    if not rewards:
        return {}
    return {
        "episode_reward_mean": float(np.mean(rewards)),
        "episode_reward_min": min(rewards),
        "episode_reward_max": max(rewards),
        "episode_len_mean": float(np.mean(lengths)),
    }


class Progress:
    """Everything counted since the trial's beginning, and the window of episodes.

    Args:
        config: the window's size.
    """

    def __init__(self, config: MetricsConfig) -> None:
        self.timesteps = 0
        """Environment steps sampled, all workers."""
        self.episodes = 0
        """Episodes finished."""
        self._window = EpisodeWindow(config.metrics_smoothing_episodes)

    def count(self, timesteps: int, episodes: list[Episode]) -> dict[str, float]:
        """Count one iteration; returns its result keys."""
        self.timesteps += timesteps
        whole = [episode for episode in episodes if not episode.faulty]
        faulty = len(episodes) - len(whole)
        self.episodes += len(whole)
        self._window.add(whole)
        return {
            **({"num_faulty_episodes": faulty} if faulty else {}),
            **self._window.summary(),
            "timesteps_total": self.timesteps,
            "timesteps_this_iter": timesteps,
            "episodes_total": self.episodes,
            "episodes_this_iter": len(whole),
        }

    def get_state(self) -> dict[str, Any]:
        """Entries ``timesteps``, ``episodes`` and ``window``."""
        return {
            "timesteps": self.timesteps,
            "episodes": self.episodes,
            "window": self._window.get_state(),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave."""
        self.timesteps = int(state["timesteps"])
        self.episodes = int(state["episodes"])
        self._window.set_state(state["window"])

"""Callbacks that write down what they are told, and some that misbehave."""

import logging
import os
import resource
from typing import Any

import numpy as np

from trainables import Callbacks


class Diary(Callbacks):
    """Notes every phase: (phase, episode, length, reward, last observation)."""

    def __init__(self) -> None:
        self.notes: list[tuple[Any, ...]] = []

    def _note(self, phase: str, episode: Any) -> None:
        seen = None if episode.last_observation is None else float(episode.last_observation[0])
        self.notes.append((phase, episode.episode_id, episode.length, episode.total_reward, seen))

    def on_episode_created(self, *, worker: Any, episode: Any) -> None:
        self._note("created", episode)

    def on_episode_start(self, *, worker: Any, episode: Any) -> None:
        self._note("start", episode)

    def on_episode_step(self, *, worker: Any, episode: Any) -> None:
        self._note("step", episode)

    def on_episode_end(self, *, worker: Any, episode: Any, error: Exception | None) -> None:
        self._note("end" if error is None else f"end: {error}", episode)

    def on_sample_end(self, *, worker: Any, samples: Any) -> None:
        self.notes.append(("sample", worker.spec.index, len(samples.fragments)))


class Measures(Callbacks):
    """A custom metric, histories and a count of its own; all of it decides what comes later."""

    def __init__(self) -> None:
        self.ended = 0

    def on_episode_start(self, *, worker: Any, episode: Any) -> None:
        episode.user_data["angles"] = [float(episode.last_observation[-1])]

    def on_episode_step(self, *, worker: Any, episode: Any) -> None:
        episode.user_data["angles"].append(float(episode.last_observation[-1]))

    def on_episode_end(self, *, worker: Any, episode: Any, error: Exception | None) -> None:
        self.ended += 1
        episode.custom_metrics["angle"] = np.mean(episode.user_data["angles"])
        episode.custom_metrics["ended"] = self.ended
        episode.hist_data["ends"] = [self.ended, episode.length]

    def on_train_result(self, *, trainer: Any, result: dict[str, Any]) -> None:
        result["ended_here"] = self.ended

    def get_state(self) -> dict[str, Any]:
        return {"ended": self.ended}

    def set_state(self, state: dict[str, Any]) -> None:
        self.ended = state["ended"]


class KeepsAnObject(Callbacks):
    """Writes what cannot stand in a checkpoint."""

    def on_episode_start(self, *, worker: Any, episode: Any) -> None:
        episode.user_data["mine"] = Diary()


class KeepsItsWorker(Callbacks):
    """Holds on to who it was told of."""

    def on_episode_start(self, *, worker: Any, episode: Any) -> None:
        self.worker = worker


class WritesAWord(Callbacks):
    """Writes a metric that is not a number."""

    def on_episode_end(self, *, worker: Any, episode: Any, error: Exception | None) -> None:
        episode.custom_metrics["mood"] = "fine"


class Praises(Callbacks):
    """Changes the advantages that are learnt from."""

    def on_postprocess_traj(self, *, episode: Any, post_batch: Any, **told: Any) -> None:
        post_batch["advantages"][:] = episode.length
        episode.custom_metrics["pieces"] = episode.custom_metrics.get("pieces", 0) + 1


def raises(told: dict[str, Any]) -> None:
    raise ZeroDivisionError(f"at {told['episode'].episode_id}")


def makes_no_callbacks() -> int:
    return 3


def adds_one(told: dict[str, Any]) -> None:
    told["result"]["one"] = 1


class Senses(Callbacks):
    """Tells what an episode of an evaluation is played with, as custom metrics."""

    def on_episode_start(self, *, worker: Any, episode: Any) -> None:
        if worker.in_evaluation:
            episode.custom_metrics |= {
                "first": episode.last_observation[0],
                "here": len(worker.foreach_env(id)),
                "level": logging.getLogger("trainables").level,
                "quota": resource.getrlimit(resource.RLIMIT_DATA)[0],
                "told": float(os.environ.get("SENSED", "0")),
                "steps_before": worker.get_global_vars()["timestep"],
            }

    def on_episode_step(self, *, worker: Any, episode: Any) -> None:
        for env in worker.envs.sub_envs if worker.in_evaluation else []:
            sent = float(np.abs(env.unwrapped.sent[-1]).max())
            most = episode.custom_metrics.get("sent", 0.0)
            episode.custom_metrics["sent"] = max(most, sent)


class SensesNothing(Callbacks):
    """Has no method for an episode."""


class Lengthens(Callbacks):
    """Every episode of an evaluation is as long as the number of those before it in training."""

    def __init__(self) -> None:
        self.ended = 0

    def on_episode_created(self, *, worker: Any, episode: Any) -> None:
        if worker.in_evaluation:
            (env,) = worker.foreach_env(lambda one: one)
            env.length = self.ended
            self.ended = 1000

    def on_episode_end(self, *, worker: Any, episode: Any, error: Exception | None) -> None:
        self.ended += not worker.in_evaluation

    def get_state(self) -> dict[str, Any]:
        return {"ended": self.ended}

    def set_state(self, state: dict[str, Any]) -> None:
        self.ended = state["ended"]


class Shows(Callbacks):
    """A picture, a video where it can be written, and a table of each episode."""

    def on_episode_start(self, *, worker: Any, episode: Any) -> None:
        episode.media["steps"] = {"step": [], "reward": []}

    def on_episode_step(self, *, worker: Any, episode: Any) -> None:
        table = episode.media["steps"]
        table["step"].append(episode.length)
        table["reward"].append(np.float32(episode.total_reward))

    def on_episode_end(self, *, worker: Any, episode: Any, error: Exception | None) -> None:
        episode.media["length"] = np.full((4, 6, 3), episode.length, np.uint8)

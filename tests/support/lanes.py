"""Trainers that are lanes, and their numbers, to be compared to the bit."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables.algorithms.dqn import DQN
from trainables.algorithms.ppo import PPO
from trainables.trainable import Trainable, TrialContext
from trainables.trainer.trainer import Trainer

_EVALUATED: dict[str, Any] = {
    "evaluation_interval": 2,
    "evaluation_num_episodes": 3,
    "evaluation_config": {"explore": True, "horizon": 50},
    "lanes": 4,
}
#: Algorithm → settings of its lanes.
CONFIGS: dict[type[Trainer], dict[str, Any]] = {
    PPO: {
        "env": "CartPole-v1",
        "num_envs_per_worker": 4,
        "rollout_fragment_length": 32,
        "num_sgd_iter": 4,
        "sgd_minibatch_size": 64,
        "observation_filter": "MeanStdFilter",
        "normalize_rewards": True,
        "lr": 1e-3,
        "model": {"hidden": [16, 13]},
        **_EVALUATED,
    },
    DQN: {
        "env": "CartPole-v1",
        "num_envs_per_worker": 2,
        "rollout_fragment_length": 8,
        "replay_batch_size": 16,
        "updates_per_step": 3,
        "learning_starts": 32,
        "buffer_size": 100,
        "observation_filter": "MeanStdFilter",
        "timesteps_per_iteration": 32,
        "model": {"hidden": [8, 7]},
        **_EVALUATED,
    },
}
#: Changes the settings of PPO to noise that follows the state.
FOLLOWING: dict[str, Any] = {
    "env": "Pendulum-v1",
    "observation_filter": "NoFilter",
    "exploration_config": {"type": "StateDependentNoise", "sample_freq": 5, "log_std_init": -1.0},
}


def made(algorithm: type[Trainer], seed: int = 1, **more: Any) -> Any:
    """A lane of the algorithm; `more` overrides `CONFIGS`."""
    return algorithm({**CONFIGS[algorithm], **more}, TrialContext(seed=seed))


def numbers_in(result: Mapping[str, Any]) -> list[Any]:
    """Return the learning statistics and the episodes of the evaluations, if there are any."""
    evaluations = [result[name] for name in result if name.startswith("evaluation")]
    return [result["learner"], *(one["hist_stats"] for one in evaluations)]


def curve(trainer: Trainer, iterations: int) -> list[list[Any]]:
    """The numbers of so many iterations."""
    return [numbers_in(trainer.train()) for _ in range(iterations)]


def numbers_of(trainer: Trainable) -> dict[str, NDArray[Any]]:
    """Return every number of a trainer's state that a lane has."""
    state = trainer.get_state()["trainable"]["data"]
    parts = {"policy", "filters", "workers", "progress", "replay", "target"} & state.keys()
    found: dict[str, NDArray[Any]] = {}

    def walk(name: str, value: Any) -> None:
        if isinstance(value, Mapping):
            for key, one in value.items():
                walk(f"{name}/{key}", one)
        elif isinstance(value, list):
            for index, one in enumerate(value):
                walk(f"{name}/{index}", one)
        elif isinstance(value, int | float | np.ndarray | np.generic):
            found[name] = np.asarray(value)

    walk("", {key: state[key] for key in parts})
    return found


def assert_same(one: Mapping[str, NDArray[Any]], other: Mapping[str, NDArray[Any]]) -> None:
    """Compare all numbers to the bit."""
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert np.array_equal(value, other[name]), name

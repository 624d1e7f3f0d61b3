"""Compare our updates with those of Stable-Baselines3, from the same weights and batches.

    python -m benchmarks.learning.updates

The program prints the distance between the networks of both after some updates, divided by the
distance that the updates moved them, and stores it in ``updates.json``. docs/learning.md shows it.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.speed import peers

if TYPE_CHECKING:
    from trainables.trainer.trainer import Trainer

RESULTS = Path(__file__).with_name("updates.json")
#: File with weights, batches and noise for the other process.
FILE = Path("build") / "updates.npz"
#: Number of updates, and of rows in each batch.
UPDATES, ROWS = 20, 256
Arrays = dict[str, NDArray[Any]]
#: Settings of algorithms that learn from one batch at once. Advantages are not normalised, because
#: the two libraries estimate the standard deviation differently.
ONE_BATCH = {
    "num_envs_per_worker": 1,
    "rollout_fragment_length": ROWS,
    "model": {"hidden": [64, 64], "activation": "tanh"},
    "normalize_advantages": False,
    "grad_clip": 0.5,
    "vf_loss_coeff": 1.0,
    "entropy_coeff": 0.01,
}
#: Algorithm → settings that are equal to the defaults of Stable-Baselines3.
CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "ppo": {
        **ONE_BATCH,
        "env": "Pendulum-v1",
        "lr": 3e-4,
        "num_sgd_iter": 1,
        "sgd_minibatch_size": ROWS,
    },
    "a2c": {**ONE_BATCH, "env": "CartPole-v1", "lr": 7e-4, "optimizer": {"name": "adam"}},
    "sac": {"env": "Pendulum-v1", "lr": 3e-4},
    "td3": {"env": "Pendulum-v1", "lr": 1e-3},
    "dqn": {
        "env": "CartPole-v1",
        "lr": 1e-4,
        "model": {"hidden": [64, 64], "activation": "relu"},
        "optimizer": {"eps": 1e-8},
        "double_q": False,
        "n_step": 1,
        "tau": None,
        "replay_batch_size": ROWS,
    },
}


class RecordingStream:
    """Random stream that records all numbers drawn from it."""

    def __init__(self) -> None:
        self._stream, self.drawn = np.random.default_rng(1), list[NDArray[Any]]()

    def standard_normal(self, shape: tuple[int, ...], dtype: Any = np.float64) -> NDArray[Any]:
        """Return and record normal numbers, like `numpy.random.Generator`."""
        self.drawn.append(self._stream.standard_normal(shape, dtype))
        return self.drawn[-1].copy()


def transitions(trainer: "Trainer", stream: np.random.Generator) -> Arrays:
    """Return random transitions in the trainer's spaces; a tenth of them end an episode."""
    size = ROWS, *trainer.spaces.observation_shape
    space = trainer.spaces.action
    actions = np.stack([space.sample() for _ in range(ROWS)])
    return {
        "observations": stream.normal(size=size).astype(np.float32),
        "actions": actions,
        "rewards": stream.normal(size=ROWS).astype(np.float32),
        "new_obs": stream.normal(size=size).astype(np.float32),
        "terminated": stream.random(ROWS) < 0.1,
    }


def actor_critic_rows(trainer: Any, stream: np.random.Generator) -> Arrays:
    """Return random rows of an actor-critic's batch; ratios of probabilities are around 1."""
    from trainables.rollout.batch import TrainBatch

    rows = transitions(trainer, stream)
    unused = rows["rewards"]
    empty = TrainBatch(rows["observations"], rows["actions"], unused, unused, unused, unused)
    logp, values = trainer.learner.evaluate(empty)
    noise = stream.normal(size=(3, ROWS)).astype(np.float32)
    return {
        "observations": rows["observations"],
        "actions": rows["actions"],
        "logp": (logp + 0.2 * noise[0]).astype(np.float32),
        "values": values.astype(np.float32),
        "advantages": noise[1],
        "returns": noise[2],
    }


def run_updates(name: str) -> Arrays:
    """Make all updates of an algorithm; return weights before and after, batches and noise."""
    from sweep.core import plugins
    from trainables.rollout.batch import TrainBatch

    trainer: Any = plugins.find_trainable(name, [])({**CONFIGS[name], "seed": 3})
    trainer.streams["update"] = noise = RecordingStream()
    trainer.spaces.action.seed(0)
    stream = np.random.default_rng(0)
    replayed = name not in ("ppo", "a2c")
    batches = [
        (transitions if replayed else actor_critic_rows)(trainer, stream) for _ in range(UPDATES)
    ]
    result: Arrays = {
        f"before.{n}": one.copy() for n, one in trainer.policy.model.weights().items()
    }
    for rows in batches:
        if replayed:
            trainer.update(rows)
        else:
            trainer.take_steps(trainer.learner, TrainBatch(**rows))
    result |= {f"after.{n}": one for n, one in trainer.policy.model.weights().items()}
    for column in batches[0]:
        result[column] = np.stack([rows[column] for rows in batches])
    if noise.drawn:
        result["noise"] = np.stack(noise.drawn)
    trainer.stop()
    return result


def main() -> None:
    """Compare all algorithms, print and store the distances."""
    interpreter, result = peers.interpreter_of("sb3-simulators"), {}
    FILE.parent.mkdir(exist_ok=True)
    for name in CONFIGS:
        np.savez(FILE, **run_updates(name))  # type: ignore[arg-type]  # the stubs expect its options
        module = "benchmarks.learning.reference_updates"
        command = [str(interpreter), "-m", module, name, str(FILE)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
        result[name] = json.loads(done.stdout)
        worst = max(result[name], key=result[name].__getitem__)
        sys.stdout.write(
            f"{name}: {result[name][worst]:.1e} relative distance, at most ({worst})\n"
        )
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""Updates beside Stable-Baselines3's, from the same weights and on the same batches.

    python -m benchmarks.learning.updates

Prints how far the networks are apart after some updates, as a share of how far they have moved, and
keeps it in ``updates.json``; the page of learning shows it.
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
#: Weights, batches and noise, for the other process.
FILE = Path("build") / "updates.npz"
UPDATES, ROWS = 20, 256
Arrays = dict[str, NDArray[Any]]
#: What both are given by which they learn from one batch as a whole; advantages are left as they
#: are, which the other one divides by a deviation of one row less.
WHOLE = {
    "num_envs_per_worker": 1,
    "rollout_fragment_length": ROWS,
    "model": {"hidden": [64, 64], "activation": "tanh"},
    "normalize_advantages": False,
    "grad_clip": 0.5,
    "vf_loss_coeff": 1.0,
    "entropy_coeff": 0.01,
}
#: Each algorithm's settings, so that it is what the other one has by default.
CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "ppo": {
        **WHOLE,
        "env": "Pendulum-v1",
        "lr": 3e-4,
        "num_sgd_iter": 1,
        "sgd_minibatch_size": ROWS,
    },
    "a2c": {**WHOLE, "env": "CartPole-v1", "lr": 7e-4, "optimizer": {"name": "adam"}},
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


class Recorded:
    """A stream that keeps what is drawn from it."""

    def __init__(self) -> None:
        self._stream, self.drawn = np.random.default_rng(1), list[NDArray[Any]]()

    def standard_normal(self, shape: tuple[int, ...], dtype: Any = np.float64) -> NDArray[Any]:
        """As `numpy.random.Generator` has it."""
        self.drawn.append(self._stream.standard_normal(shape, dtype))
        return self.drawn[-1].copy()


def transitions(trainer: "Trainer", stream: np.random.Generator) -> Arrays:
    """Rows drawn by chance that fit its spaces; a tenth of them end an episode."""
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


def judged(trainer: Any, stream: np.random.Generator) -> Arrays:
    """Such rows with what an actor-critic learns from; ratios are around 1."""
    from trainables.rollout.batch import TrainBatch

    rows = transitions(trainer, stream)
    plain = rows["rewards"]
    empty = TrainBatch(rows["observations"], rows["actions"], plain, plain, plain, plain)
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


def ours(name: str) -> Arrays:
    """Weights before and after, the batches, and what was drawn meanwhile."""
    from sweep import plugins
    from trainables.rollout.batch import TrainBatch

    trainer: Any = plugins.find_trainable(name, [])({**CONFIGS[name], "seed": 3})
    trainer.streams["update"] = noise = Recorded()
    trainer.spaces.action.seed(0)
    stream = np.random.default_rng(0)
    replayed = name not in ("ppo", "a2c")
    batches = [(transitions if replayed else judged)(trainer, stream) for _ in range(UPDATES)]
    found: Arrays = {f"before.{n}": one.copy() for n, one in trainer.policy.model.weights().items()}
    for rows in batches:
        if replayed:
            trainer.update(rows)
        else:
            trainer.take_steps(trainer.learner, TrainBatch(**rows))
    found |= {f"after.{n}": one for n, one in trainer.policy.model.weights().items()}
    for column in batches[0]:
        found[column] = np.stack([rows[column] for rows in batches])
    if noise.drawn:
        found["noise"] = np.stack(noise.drawn)
    trainer.stop()
    return found


def main() -> None:
    """The command line."""
    python, found = peers.interpreter_of("sb3-simulators"), {}
    FILE.parent.mkdir(exist_ok=True)
    for name in CONFIGS:
        np.savez(FILE, **ours(name))  # type: ignore[arg-type]  # its stubs take names for options
        module = "benchmarks.learning.reference_updates"
        command = [str(python), "-m", module, name, str(FILE)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
        found[name] = json.loads(done.stdout)
        worst = max(found[name], key=found[name].__getitem__)
        sys.stdout.write(f"{name}: {found[name][worst]:.1e} of the way apart ({worst})\n")
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

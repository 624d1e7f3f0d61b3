"""Measure one environment: the cells of its row."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from benchmarks.environments.page import Row

ITERATIONS = 3
SLOW = 100.0
"""Speed in steps per second below which an environment counts as slow."""
SIZES: Mapping[bool, dict[str, Any]] = {
    False: {"rollout_fragment_length": 32, "train_batch_size": 128},
    True: {"rollout_fragment_length": 8, "train_batch_size": 32, "sgd_minibatch_size": 16},
}
"""True for slow environments, False for others → sampling settings of their trainer."""


def measure(env: str, batch_modes: Sequence[str]) -> Row:
    """Return all cells of one row; if a measurement fails, its cell has the error."""
    from trainables.envs import check

    row: Row = check.check(env, steps=400)
    if not row["unsupported"]:
        slow = (row["steps_per_s"] or 0.0) < SLOW
        for mode in batch_modes:
            settings = {**SIZES[slow], "env": env, "batch_mode": mode}
            row[f"sampled: {mode}"] = _attempt(partial(_train, settings))
        row["resumed"] = _attempt(partial(_resume, {**SIZES[slow], "env": env}))
    return row


def _attempt(act: Callable[[], str]) -> str:
    """Return the text that `act` returns, or its error as text."""
    try:
        return act()
    except Exception as error:  # noqa: BLE001 a failure is a cell
        return f"{type(error).__name__}: {error}"


def _make(settings: Mapping[str, Any]) -> Any:
    from trainables.algorithms.ppo import PPO

    return PPO({"num_envs_per_worker": 2, "num_sgd_iter": 2, "seed": 1, **settings})


def _train(settings: Mapping[str, Any]) -> str:
    trainer = _make(settings)
    try:
        results = [trainer.train() for _ in range(ITERATIONS)]
    finally:
        trainer.stop()
    sampled = results[-1]["timesteps_total"]
    return "ok" if sampled >= ITERATIONS * settings["train_batch_size"] else f"{sampled} steps only"


def _resume(settings: Mapping[str, Any]) -> str:
    """Return in words whether a trainer restored from a saved state continues like the saved one.

    At levels at which a restore drops the unfinished episode, two restored trainers are compared.
    """
    import copy

    from trainables.core.results import VOLATILE_KEYS

    def continue_training(trainer: Any) -> list[str]:
        try:
            results = [trainer.train() for _ in range(ITERATIONS)]
        finally:
            trainer.stop()
        return [repr({k: v for k, v in one.items() if k not in VOLATILE_KEYS}) for one in results]

    def restore(state: Any) -> Any:
        trainer = _make(settings)
        trainer.train()
        trainer.set_state(copy.deepcopy(state))
        return trainer

    saved = _make(settings)
    saved.train()
    state = copy.deepcopy(saved.get_state())
    exact = saved.level in ("A", "B")
    expected = continue_training(saved) if exact else continue_training(restore(state))
    if not exact:
        saved.stop()
    same = continue_training(restore(state)) == expected
    words = "as uninterrupted" if exact else "the same each time"
    return words if same else f"not {words}"

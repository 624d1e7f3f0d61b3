"""IMPALA: what its networks are asked anew, V-trace's targets, its learning and its exactness."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.trainers import (
    check_learners_train_alike,
    check_restored_exactly,
    run,
)
from trainables.algorithms.a2c import A2C
from trainables.algorithms.impala import IMPALA, Config
from trainables.core.settings import parse
from trainables.errors import ConfigError
from trainables.learners.returns import Bounds, v_trace
from trainables.learners.sequences import rows_to_evaluate
from trainables.offline.batches import WRITTEN
from trainables.rollout.batch import Fragment, TrainBatch
from trainables.trainable import TrialContext

HERE = "tests.support.environments"
SMALL: dict[str, Any] = {
    "env": "CartPole-v1",
    "num_envs_per_worker": 3,
    "rollout_fragment_length": 10,
    "timesteps_per_iteration": 90,
    "lr_schedule": "linear",
    "schedule_timesteps": 5000,
    "observation_filter": "MeanStdFilter",
}
LSTM: dict[str, Any] = {"model": {"use_lstm": True, "lstm_cell_size": 8, "max_seq_len": 4}}
#: Episodes of five steps, which are cut off in the middle of fragments and at their edges.
CUT: dict[str, Any] = {"horizon": 5, "observation_filter": "NoFilter"}
WAYS = {
    "fused": {"learner": "fused"},
    "torch": {"learner": "torch"},
    "lstm": LSTM,
    "pendulum": {"env": "Pendulum-v1"},
    "whole episodes": {"batch_mode": "complete_episodes"},
    "masked": {"env": "tests.support.masked:Vault", "action_mask": "info"},
    "own": {"model": {"custom_model": "tests.support.own_networks:Net"}},
}


def make(config: dict[str, Any] | None = None, seed: int = 7) -> IMPALA:
    return IMPALA({**SMALL, **(config or {})}, TrialContext(seed=seed))


def fragments_of(trainer: IMPALA) -> list[Fragment]:
    return [fragment for one in trainer.workers.sample() for fragment in one.fragments]


@pytest.mark.parametrize("way", WAYS)
def test_its_own_samples_are_judged_as_the_worker_judged_them(way: str) -> None:
    """So V-trace's targets are returns of the fragment, and no value is of another observation."""
    trainer = make({**CUT, **WAYS[way]})
    run(trainer, 2)  # away from the beginning, where all values are alike
    fragments = fragments_of(trainer)
    assert any(one.truncated.any() for one in fragments)
    batches = trainer.all_rows(fragments)
    assert trainer._mean_ratio == pytest.approx(1.0, abs=1e-5)
    for fragment, batch in zip(fragments, batches, strict=True):
        following = np.concatenate([fragment.values[1:], fragment.last_values])
        following = np.where(fragment.truncated, fragment.final_values, following)
        ends = (fragment.terminated, fragment.truncated)
        of = (fragment.rewards, fragment.values, following, ends)
        ones = np.ones(fragment.valid.shape)
        expected = v_trace(*of, (0.99, 1.0), ones, Bounds(1.0, 1.0, 1.0))
        np.testing.assert_allclose(batch.returns, expected.targets.ravel(), atol=2e-5)
        np.testing.assert_allclose(batch.advantages, expected.advantages.ravel(), atol=2e-5)
    trainer.stop()


@pytest.mark.parametrize("way", [way for way in WAYS if way not in ("lstm", "own")])
def test_samples_of_older_weights_are_judged_by_those_of_now(way: str) -> None:
    trainer = make({**CUT, **WAYS[way], "rho_bar": None, "c_bar": 0.5, "pg_rho_bar": 2.0})
    fragments = fragments_of_older_weights(trainer)
    batches = trainer.all_rows(fragments)
    actor = trainer.inference.actor
    for fragment, batch in zip(fragments, batches, strict=True):
        shape = fragment.valid.shape
        flat = fragment.observations.reshape(-1, fragment.observations.shape[-1])
        values = actor.values(flat).reshape(shape).astype(np.float64)
        after = actor.values(fragment.new_obs.reshape(flat.shape)).reshape(shape)
        np.testing.assert_allclose(batch.values, values.ravel(), atol=1e-5)
        logp = log_probabilities(trainer, flat, fragment.actions.reshape(len(flat), -1))
        ratios = np.exp(logp.reshape(shape) - fragment.logp)
        assert np.abs(ratios - 1.0).max() > 0.05
        ends = (fragment.terminated, fragment.truncated)
        of = (fragment.rewards, values, after, ends)
        expected = v_trace(*of, (0.99, 1.0), ratios, Bounds(None, 0.5, 2.0))
        np.testing.assert_allclose(batch.returns, expected.targets.ravel(), rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(
            batch.advantages, expected.advantages.ravel(), rtol=1e-3, atol=1e-4
        )
    trainer.stop()


def fragments_of_older_weights(trainer: IMPALA) -> list[Fragment]:
    """What the trainer's weights, which are moved afterwards, have sampled."""
    run(trainer, 1)
    fragments = [one.copy() for one in fragments_of(trainer)]
    stream = np.random.default_rng(0)
    weights = trainer.get_weights()["default_policy"]
    moved = {n: w + 0.2 * stream.standard_normal(w.shape) for n, w in weights.items()}
    trainer.set_weights({"default_policy": {n: w.astype(np.float32) for n, w in moved.items()}})
    return fragments


def test_a_memory_is_replayed_by_the_weights_of_now_to_what_followed_a_sequence() -> None:
    trainer = make({**CUT, **LSTM})
    (fragment,) = fragments_of_older_weights(trainer)
    asked = rows_to_evaluate(fragment, 4)
    values = dict(
        zip(
            zip(asked.row, asked.is_next_observation, strict=True),
            trainer.learner.evaluate(asked.batch)[1],
            strict=True,
        )
    )
    actor, played = trainer.inference.actor, 0
    for env in range(3):
        memory, since = fragment.memory[:1, env], 0
        for t in range(10):
            if since == 4 or (t and fragment.truncated[t - 1, env]):
                memory, since = fragment.memory[t : t + 1, env], 0
            _, now, memory = actor.advance(fragment.observations[t : t + 1, env], memory)
            assert values[t * 3 + env, False] == pytest.approx(now[0], abs=1e-5)
            since += 1
            if since == 4 or t == 9 or fragment.truncated[t, env]:
                _, after, _ = actor.advance(fragment.new_obs[t : t + 1, env], memory)
                assert values[t * 3 + env, True] == pytest.approx(after[0], abs=1e-5)
                played += 1
    assert played == np.count_nonzero(asked.is_next_observation) >= 3 * 4
    trainer.stop()


def test_what_is_written_has_all_columns_beside_those_that_v_trace_needs(tmp_path: Path) -> None:
    own = {**SMALL, "observation_filter": "NoFilter", "output": "logdir"}
    trainer = IMPALA(own, TrialContext(seed=1, logdir=tmp_path))
    (fragment,) = fragments_of(trainer)
    trainer.stop()
    assert set(fragment.columns) >= WRITTEN


def log_probabilities(trainer: IMPALA, x: Any, actions: Any) -> Any:
    """By the head of the actor that plays, in plain numpy."""
    head = trainer.inference.actor.forward(x)[0].astype(np.float64)
    if actions.dtype.kind == "i":
        logs = head - np.log(np.exp(head).sum(axis=1, keepdims=True))
        return np.take_along_axis(logs, actions, axis=1)[:, 0]
    log_std = trainer.get_weights()["default_policy"]["log_std"].astype(np.float64)
    scaled = (actions - head) / np.exp(log_std)
    return (-0.5 * scaled**2 - log_std - 0.5 * np.log(2 * np.pi)).sum(axis=1)


def test_rows_that_are_not_valid_keep_what_the_worker_said_of_them() -> None:
    trainer = make({"learner": "fused"})
    (fragment,) = fragments_of_older_weights(trainer)
    fragment.valid[2:4, 1] = False
    asked = rows_to_evaluate(fragment, 10)
    assert not {2 * 3 + 1, 3 * 3 + 1} & set(asked.row.tolist())
    (batch,) = trainer.all_rows([fragment])
    changed = batch.values.reshape(10, 3) != fragment.values
    assert np.array_equal(changed, fragment.valid)
    fragment.valid[:] = False
    assert len(trainer.learning_rows([fragment])) == 0
    trainer.stop()


@pytest.mark.parametrize("way", ["fused", "torch", "lstm"])
def test_without_children_it_goes_on_to_the_bit_after_a_restore(way: str, tmp_path: Path) -> None:
    straight = make(WAYS[way])
    assert straight.exactness == "A exact state"
    assert "weights_age" not in run(straight, 2)[0]
    check_restored_exactly(straight, make(WAYS[way]), tmp_path)


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_both_learners_train_alike(env: str) -> None:
    check_learners_train_alike(make, env)


def test_without_children_it_is_a2c_on_longer_fragments() -> None:
    """On its own samples V-trace is what A2C learns from."""
    own = {**SMALL, "learner": "torch", "observation_filter": "NoFilter", "lr": 1e-3}
    trainers = [cls(own, TrialContext(seed=7)) for cls in (IMPALA, A2C)]
    weights = []
    for trainer in trainers:
        trainer.train()
        weights.append(trainer.get_weights()["default_policy"])
        trainer.stop()
    for name, value in weights[0].items():
        np.testing.assert_allclose(value, weights[1][name], atol=1e-4, err_msg=name)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"sample_async": True, "num_workers": 1}, "sample_async: true cannot be used with impala"),
        (
            {"num_workers": 2, "data_parallel": True},
            "data_parallel: true cannot be used with IMPALA",
        ),
        ({"c_bar": 2.0}, "c_bar: 2.0 is more than rho_bar, which is 1.0"),
        ({"c_bar": None}, r"c_bar: null \(no limit\) is more than rho_bar, which is 1.0"),
        ({"num_sgd_iter": 2}, "num_sgd_iter"),
    ],
)
def test_what_cannot_be_together_is_refused(config: dict[str, Any], words: str) -> None:
    own = {"observation_filter": "NoFilter", **config}
    with pytest.raises(ConfigError, match=words):
        make(own)


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_a_batch_does_not_grow_with_the_workers(workers: int) -> None:
    settings = parse(Config, {"env": "a", "num_workers": workers, "num_envs_per_worker": 4})
    assert (settings.fragment_size, settings.batch_size) == (80, 80)
    larger = settings.model_copy(update={"train_batch_size": 200})
    assert larger.batch_size == 240
    assert settings.clock_settings == (("num_workers",) if workers else ())


@pytest.mark.parametrize("workers", [0, 1])
def test_what_a_callback_writes_is_learnt_from(
    workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {"callbacks": "tests.support.callbacks:Praises", "num_workers": workers}
    trainer = make({**own, "env_level": "C", "timesteps_per_iteration": 600})
    take_steps, learnt = trainer.take_steps, list[float]()

    def seen(learner: Any, batch: TrainBatch) -> dict[str, float]:
        learnt.extend(batch.advantages.tolist())
        return take_steps(learner, batch)

    monkeypatch.setattr(trainer, "take_steps", seen)
    result = trainer.train()
    assert len(learnt) == 600
    assert all(one == int(one) > 0 for one in learnt)
    assert result["custom_metrics"]["pieces_mean"] >= 1
    trainer.stop()

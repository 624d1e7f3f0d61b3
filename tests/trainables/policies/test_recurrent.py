"""A policy with a memory: what it carries, where it forgets, and that what is learnt was played."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray

from tests.support.trainers import PLAIN, differences, make
from tests.support.vector_envs import Altered
from trainables.algorithms.ppo import PPO, Config
from trainables.core.settings import parse
from trainables.envs.exactness import measuring
from trainables.envs.vector.base import Step
from trainables.errors import ConfigError, ExportError
from trainables.learners.sequences import SequenceBatch
from trainables.learners.torch_learner import shuffled
from trainables.policies.learning.networks import sequence_layout_of
from trainables.policies.onnx.export import check
from trainables.policies.onnx.formats import FILES, load_model
from trainables.rollout.batch import Fragment
from trainables.rollout.workers.worker_set import LocalWorkers

MEMORY = "tests.support.memory"
UNITS = 8
LSTM: dict[str, Any] = {"use_lstm": True, "lstm_cell_size": UNITS, "hidden": [16]}
COUNTING: dict[str, Any] = {
    **PLAIN,
    "env": f"{MEMORY}:CountsFromOne",
    "env_config": {"length": 5},
    "model": LSTM,
}
WHOLE = {"batch_mode": "complete_episodes", "train_batch_size": None}


def sampler_of(trainer: PPO) -> Any:
    assert isinstance(trainer.workers, LocalWorkers)
    return trainer.workers.worker._sampler


def fragments_of(trainer: PPO) -> list[Fragment]:
    return [one for sample in trainer.workers.sample() for one in sample.fragments]


def altered(alter: Any, **settings: Any) -> tuple[PPO, Fragment]:
    trainer = make({**COUNTING, **settings})
    sampler = sampler_of(trainer)
    sampler.envs = Altered(sampler.envs, alter)
    return trainer, fragments_of(trainer)[0]


def replayed(trainer: PPO, observations: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Memories (T, M) with which one episode's observations (T, D) are seen, and values (T,)."""
    actor = trainer.inference.actor
    memory = actor.initial_memory(1)
    memories, values = [], []
    for one in observations:
        memories.append(memory[0])
        _, value, memory = actor.advance(one[None], memory)
        values.append(value[0])
    return np.stack(memories), np.array(values)


CASES: dict[str, dict[str, Any]] = {
    "choices": {},
    "real numbers": {"env": "Pendulum-v1"},
    "whole episodes": {"batch_mode": "complete_episodes"},
    "whole episodes of real numbers": {"env": "Pendulum-v1", **WHOLE},
    "short sequences": {"model": {**LSTM, "max_seq_len": 5}},
    "a native vector": {"native_vector_env": True},
    "no hidden layer": {"model": {**LSTM, "hidden": []}},
    "images": {"env": "tests.support.spaces:AnySpaces", "env_config": {"observation": "image"}},
}


@pytest.mark.parametrize("case", CASES)
def test_P18_stored_log_probabilities_are_those_of_the_sequences_that_are_learnt(case: str) -> None:
    config = {"model": LSTM, "rollout_fragment_length": 32, **CASES[case]}
    trainer = make(config)
    if "batch_mode" not in config:
        trainer.train()  # whole episodes in flight would be older than the weights
    batch = trainer.learning_rows(fragments_of(trainer))
    minibatches = shuffled(batch, 64, np.random.default_rng(0), trainer.policy.in_torch().device)
    assert sum(len(one["logp"]) for one in minibatches) == len(batch)
    for one in minibatches:
        with torch.no_grad():
            evaluated = trainer.policy.model.evaluate(
                one["observations"], one["actions"], sequence_layout_of(one)
            )
        np.testing.assert_allclose(evaluated.logp, one["logp"], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(evaluated.values, one["values"], rtol=1e-4, atol=1e-4)
    trainer.stop()


@pytest.mark.slow
def test_P18_a_memory_is_carried_from_step_to_step_and_empty_where_an_episode_begins() -> None:
    trainer = make(COUNTING)
    (fragment,) = fragments_of(trainer)
    memories, values = replayed(trainer, np.arange(1, 7, dtype=np.float32)[:, None])
    assert not memories[0].any()
    assert memories[1:].any(axis=1).all()
    for first in (0, 5):
        np.testing.assert_allclose(fragment.memory[first : first + 5, 0], memories[:5], atol=1e-6)
    np.testing.assert_allclose(fragment.values[:5, 0], values[:5], atol=1e-6)
    # what comes after is seen with all that was seen before
    np.testing.assert_allclose(fragment.final_values[[4, 9], 0], values[5], atol=1e-6)
    np.testing.assert_allclose(fragment.last_values[0], values[2], atol=1e-6)
    (following,) = fragments_of(trainer)
    np.testing.assert_allclose(following.memory[0, 0], memories[2], atol=1e-6)
    trainer.stop()


def test_P17_a_soft_horizon_keeps_the_memory_and_a_hard_one_does_not() -> None:
    memories: dict[bool, NDArray[Any]] = {}
    for soft in (True, False):
        trainer = make({**COUNTING, "horizon": 3, "soft_horizon": soft})
        (fragment,) = fragments_of(trainer)
        memories[soft] = fragment.memory[:, 0]
        trainer.stop()
    assert np.flatnonzero(~memories[True].any(axis=1)).tolist() == [0, 5, 10]
    assert np.flatnonzero(~memories[False].any(axis=1)).tolist() == [0, 3, 6, 9]


def test_P17_whole_episodes_keep_it_over_a_soft_horizon_too() -> None:
    trainer = make(
        {**COUNTING, **WHOLE, "horizon": 3, "soft_horizon": True, "num_envs_per_worker": 1}
    )
    fragments = fragments_of(trainer)
    memories, values = replayed(trainer, np.arange(1, 7, dtype=np.float32)[:, None])
    assert len(fragments[0].logp) == 3
    np.testing.assert_allclose(fragments[0].last_values, [[values[3]]], atol=1e-6)
    np.testing.assert_allclose(fragments[1].memory[:2, 0], memories[3:5], atol=1e-6)
    batch = trainer.learning_rows(fragments[:2])
    assert isinstance(batch, SequenceBatch)
    np.testing.assert_allclose(batch.columns()["states"][1], memories[3], atol=1e-6)
    trainer.stop()


def test_E4_a_faulty_episode_takes_its_memory_with_it_and_its_siblings_keep_theirs() -> None:
    def fails(number: int, step: Step) -> Step:
        if number != 8:
            return step
        observations = np.array(step.observations)
        observations[0] = 1.0
        return step._replace(observations=observations, faults={0: ValueError("the world ended")})

    trainer, fragment = altered(fails)
    assert not fragment.memory[8, 0].any()
    assert fragment.memory[8, 1].any()
    trainer.stop()


def test_an_episode_that_is_dropped_takes_its_memory_with_it() -> None:
    trainer = make(COUNTING)
    fragments_of(trainer)
    sampler = sampler_of(trainer)
    kept = sampler.memory[1].copy()
    sampler.drop_episode(0, np.zeros(1, dtype=np.float32))
    assert not sampler.memory[0].any()
    np.testing.assert_array_equal(sampler.memory[1], kept)
    assert kept.any()
    trainer.stop()


def test_a_row_that_only_restarts_does_not_begin_the_next_episodes_memory() -> None:
    native = {"env": "tests.support.vectors:counting_next_step", "native_vector_env": True}
    trainer = make({**COUNTING, **native})
    (fragment,) = fragments_of(trainer)
    assert np.flatnonzero(fragment.autoreset[:, 0]).tolist() == [5, 11]
    memories, _ = replayed(trainer, fragment.observations[6:11, 0])
    np.testing.assert_allclose(fragment.memory[6:11, 0], memories, atol=1e-6)
    batch = trainer.learning_rows([fragment])
    assert isinstance(batch, SequenceBatch)
    assert batch.seq_lens.tolist() == [5, 5] * 2
    assert not batch.columns()["states"].any()
    trainer.stop()


def test_E13_one_decision_for_all_lanes_is_that_of_each_alone() -> None:
    trainer = make({**COUNTING, "env": "Pendulum-v1", "env_config": {}})
    (fragment,) = fragments_of(trainer)
    actor = trainer.inference.actor
    together = actor.advance(fragment.observations[5], fragment.memory[5])
    for env_index in range(2):
        one = slice(env_index, env_index + 1)
        alone = actor.advance(fragment.observations[5, one], fragment.memory[5, one])
        for ours, theirs in zip(alone, together, strict=True):
            np.testing.assert_allclose(ours, theirs[one], atol=1e-6)
    trainer.stop()


@pytest.mark.parametrize(
    ("longest", "expected"), [(None, [5, 5, 2]), (4, [4, 1, 4, 1, 2]), (1, [1] * 12)]
)
def test_E13_sequences_end_with_their_episode_and_after_so_many_steps(
    longest: int | None, expected: list[int]
) -> None:
    trainer = make({**COUNTING, "model": {**LSTM, "max_seq_len": longest}})
    (fragment,) = fragments_of(trainer)
    batch = trainer.learning_rows([fragment])
    assert isinstance(batch, SequenceBatch)
    assert batch.seq_lens.tolist() == expected * 2
    firsts = np.flatnonzero(batch.begins)
    np.testing.assert_array_equal(batch.columns()["states"], batch.memory[firsts])
    assert batch.observations[:12, 0].tolist() == [1, 2, 3, 4, 5] * 2 + [1, 2]
    trainer.stop()


def test_rows_that_are_not_learnt_cut_a_sequence_and_are_remembered_all_the_same() -> None:
    def excluded(number: int, step: Step) -> Step:
        return step._replace(infos={0: {"training_enabled": number != 3}})

    trainer, fragment = altered(excluded)
    batch = trainer.learning_rows([fragment])
    assert isinstance(batch, SequenceBatch)
    assert batch.seq_lens.tolist() == [2, 2, 5, 2, 5, 5, 2]
    memories, _ = replayed(trainer, np.arange(1, 6, dtype=np.float32)[:, None])
    np.testing.assert_allclose(batch.columns()["states"][1], memories[3], atol=1e-6)
    trainer.stop()


def test_minibatches_are_whole_sequences_of_about_as_many_rows_and_cover_the_batch_once() -> None:
    numbers = np.arange(100, dtype=np.float32)
    begins = np.zeros(100, dtype=np.bool_)
    begins[[0, 3, 10, 30, 31, 50, 60, 80, 90]] = True
    names = ("observations", "actions", "logp", "values", "advantages", "returns")
    batch = SequenceBatch(**dict.fromkeys(names, numbers), memory=numbers[:, None], begins=begins)
    parts = batch.minibatches(25, np.random.default_rng(3))
    assert sorted(np.concatenate([one["logp"] for one in parts]).tolist()) == numbers.tolist()
    assert len(parts) == 4
    assert all(5 <= len(one["logp"]) <= 45 for one in parts)
    for one in parts:
        count = len(one["states"])
        for row, place in zip(one["logp"], one["positions"], strict=True):
            assert row == one["states"][place % count, 0] + place // count


def test_only_sequences_can_be_learnt_from_with_a_memory() -> None:
    trainer = make({"model": LSTM})
    batch = trainer.learning_rows(fragments_of(trainer))
    assert trainer.learn_on_batch(batch)["default_policy"]["batch_count"] == 96
    rows = {name: torch.from_numpy(c) for name, c in vars(batch).items()}
    with pytest.raises(ValueError, match="learn from sequences"):
        trainer.policy.model.evaluate(rows["observations"], rows["actions"])
    trainer.stop()


RECALL: dict[str, Any] = {
    **PLAIN,
    "env": f"{MEMORY}:Recall",
    "num_envs_per_worker": 16,
    "rollout_fragment_length": 40,
    "train_batch_size": None,
    "num_sgd_iter": 6,
    "lr": 5e-3,
    "lr_schedule": "constant",
    "evaluation_num_episodes": 40,
}


@pytest.mark.slow
@pytest.mark.parametrize("remembers", [True, False])
def test_a_policy_with_a_memory_learns_what_one_without_cannot(remembers: bool) -> None:
    model = {"use_lstm": True, "lstm_cell_size": 16, "hidden": [16]}
    trainer = make({**RECALL, "model": model if remembers else {"hidden": [32]}})
    for _ in range(20):
        trainer.train()
    reward = trainer.evaluate()["episode_reward_mean"]
    assert reward > 0.9 if remembers else abs(reward) < 0.6
    trainer.stop()


@pytest.mark.slow
def test_T16_an_evaluation_does_not_depend_on_how_many_environments_or_processes_play() -> None:
    results = []
    for width, children in ((1, 0), (3, 0), (2, 1)):
        trainer = make(
            {
                "env": f"{MEMORY}:StatelessCartPole",
                "model": LSTM,
                "evaluation_interval": None,
                "evaluation_num_episodes": 5,
                "evaluation_num_workers": children,
                "evaluation_config": {"num_envs_per_worker": width, "explore": True},
            }
        )
        trainer.train()
        results.append(trainer.evaluate())
        trainer.stop()
    assert differences(results[0], results[1]) == []
    assert differences(results[0], results[2]) == []


def test_T19_a_state_is_given_and_given_back() -> None:
    trainer = make({"model": LSTM})
    trainer.train()
    state = trainer.get_initial_state()
    assert [part.tolist() for part in state] == [[0.0] * UNITS] * 2
    actor, memory = trainer.inference.actor, trainer.inference.actor.initial_memory(1)
    for obs in trainer.recent[:20]:
        head, value, memory = actor.advance(trainer.inference.prepare(obs[None], memory)[0], memory)
        action, state, fetches = trainer.compute_action(obs, state=state)
        assert action == head[0].argmax()
        assert fetches["value"] == pytest.approx(float(value[0]))
        np.testing.assert_array_equal(np.concatenate(state), memory[0])
    first = trainer.recent[0]
    assert trainer.compute_action(first) == trainer.compute_action(first, full_fetch=True)[0]
    fresh = trainer.compute_action(first, full_fetch=True)[1]
    known = trainer.compute_action(first, state=trainer.get_initial_state())[1]
    assert differences(fresh, known) == []
    trainer.stop()


def test_P18_a_state_of_another_arity_is_refused_with_both_lengths() -> None:
    trainer = make({"model": LSTM})
    obs = np.zeros(4, np.float32)
    with pytest.raises(ValueError, match="a list of length 1; expected length 2"):
        trainer.compute_action(obs, state=[np.zeros(UNITS)])
    with pytest.raises(ValueError, match=r"shapes \[\(3,\), \(8,\)\].*\[\(8,\), \(8,\)\]"):
        trainer.compute_action(obs, state=[np.zeros(3), np.zeros(UNITS)])
    trainer.stop()
    plain = make()
    assert plain.get_initial_state() == []
    with pytest.raises(ValueError, match="a list of length 2; expected length 0"):
        plain.compute_action(obs, state=[np.zeros(UNITS)] * 2)
    plain.stop()


@pytest.mark.parametrize("config", [{}, {"env": "Pendulum-v1"}, {"model": {**LSTM, "hidden": []}}])
def test_an_exported_policy_takes_and_gives_its_state(
    config: dict[str, Any], tmp_path: Path
) -> None:
    trainer = make({"model": LSTM, **config})
    trainer.train()
    files = trainer.export_model(list(FILES), tmp_path)
    session = onnxruntime.InferenceSession(files["onnx"])
    card = trainer.describe_model()
    for kind, found in (("inputs", session.get_inputs()), ("outputs", session.get_outputs())):
        assert {one.name: one.shape for one in found} == {
            name: one["shape"] for name, one in card[kind].items()
        }
    assert card["inputs"]["state_in_0"] == {"shape": ["batch", UNITS], "dtype": "float32"}
    for run in (load_model(Path(files[form])) for form in FILES):
        state, own = [np.zeros((1, UNITS), np.float32)] * 2, trainer.get_initial_state()
        for obs in trainer.recent:
            given = run({"observation": obs[None], "state_in_0": state[0], "state_in_1": state[1]})
            state = [given["state_out_0"], given["state_out_1"]]
            expected, own, _ = trainer.compute_action(obs, state=own)
            np.testing.assert_allclose(given["action"][0], expected, atol=1e-4)
        assert np.abs(state).max() > 0.01
    trainer.stop()


def test_a_file_whose_memory_disagrees_over_a_sequence_is_refused(tmp_path: Path) -> None:
    trainer = make({"model": LSTM})
    trainer.train()
    path = Path(trainer.export_model("onnx", tmp_path)["onnx"])
    actor: Any = trainer.inference.actor
    # It forgets more slowly than the file, which first observations alone would not show.
    actor._gates[1][UNITS : 2 * UNITS] += 1e-2
    with pytest.raises(ExportError, match="differs from the trained one"):
        check(trainer.inference, load_model(path), trainer.recent)
    trainer.stop()


def test_its_size_and_its_longest_sequence_are_settings() -> None:
    trainer = make({"model": {"use_lstm": True}})
    assert trainer.policy.model.weights()["lstm.weight_hh_l0"].shape == (256, 64)
    weight = trainer.policy.model.weights()["lstm.weight_ih_l0"]
    np.testing.assert_allclose(weight.T @ weight, np.eye(64), atol=1e-5)
    assert not trainer.policy.model.weights()["lstm.bias_ih_l0"].any()
    trainer.stop()
    with pytest.raises(ConfigError, match=r"model\.max_seq_len"):
        make({"model": {"max_seq_len": 0}})


def test_W7_a_policy_with_a_memory_sees_single_frames() -> None:
    for model, frames in (({}, 4), (LSTM, 1)):
        settings = parse(Config, {"env": "ALE/Pong-v5", "model": model})
        assert measuring.inspect(settings.environment).spaces.observation.shape == (84, 84, frames)

"""A person's callbacks: the phases, what they are told, what of them stands in the state."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.callbacks import Diary, Measures, Praises
from tests.support.trainers import PLAIN, differences, final_state, make, run
from tests.support.vector_envs import Altered
from trainables import Callbacks
from trainables.algorithms.ppo import PPO
from trainables.envs.vector.base import Step
from trainables.errors import CallbackError, ConfigError, StateError
from trainables.rollout.episodes.episode import Episode
from trainables.rollout.episodes.metrics import checked_numbers
from trainables.rollout.workers.worker_set import LocalWorkers

HERE = "tests.support.callbacks"
COUNTING: dict[str, Any] = {
    **PLAIN,
    "env": "tests.support.environments:Counting",
    "env_config": {"length": 3},
    "num_envs_per_worker": 1,
    "rollout_fragment_length": 4,
    "train_batch_size": None,
}
CHILD: dict[str, Any] = {"num_workers": 1, "train_batch_size": None}


def diary(trainer: PPO) -> list[tuple[Any, ...]]:
    calls = trainer.reporter.calls
    assert calls is not None
    assert isinstance(calls._own, Diary)
    return calls._own.notes


@pytest.mark.slow
def test_P16_E8_the_phases_come_in_order_with_what_was_just_seen() -> None:
    trainer = make({**COUNTING, "callbacks": f"{HERE}:Diary"})
    assert diary(trainer) == [
        ("created", "0-0-0", 0, 0.0, None),
        ("start", "0-0-0", 0, 0.0, 0.0),
    ]
    trainer.train()
    assert diary(trainer)[2:] == [
        ("step", "0-0-0", 1, 1.0, 1.0),
        ("step", "0-0-0", 2, 2.0, 2.0),
        ("step", "0-0-0", 3, 3.0, 3.0),
        ("end", "0-0-0", 3, 3.0, 3.0),
        ("created", "0-0-1", 0, 0.0, None),
        ("start", "0-0-1", 0, 0.0, 0.0),
        ("step", "0-0-1", 1, 1.0, 1.0),
        ("sample", 0, 1),
    ]
    trainer.stop()


class Longer(Callbacks):
    """A curriculum: every episode is as long as its number, and the environment does not know."""

    def on_episode_created(self, *, worker: Any, episode: Any) -> None:
        env = worker.envs.sub_envs[episode.env_index].unwrapped
        assert env.steps in (0, env.length), "the environment has been reset already"
        env.length = 1 + int(episode.episode_id.rsplit("-")[-1])


def test_E8_an_episode_is_created_before_its_environment_is_reset() -> None:
    trainer = make({**COUNTING, "callbacks": Longer, "rollout_fragment_length": 10})
    trainer.train()
    hist = trainer.collect_metrics()["hist_stats"]
    assert hist["episode_lengths"] == [1, 2, 3, 4]
    trainer.stop()


def test_E8_the_native_vector_creates_episodes_before_it_restarts_lanes() -> None:
    config = {"env": "CartPole-v1", "native_vector_env": True, "callbacks": f"{HERE}:Diary"}
    trainer = make({**config, "num_envs_per_worker": 2, "evaluation_interval": None})
    trainer.train()
    phases = [note[0] for note in diary(trainer) if note[0] not in ("step", "sample")]
    assert phases[:4] == ["created", "created", "start", "start"]
    assert phases.count("end") == trainer.collect_metrics()["episodes_this_iter"] > 0
    assert set(phases[4:]) == {"end", "created", "start"}
    trainer.stop()


def test_E8_callbacks_that_only_look_change_nothing_of_what_is_learnt() -> None:
    told, plain = make({"callbacks": f"{HERE}:Diary"}), make()
    one, other = ([{**r, "config": None} for r in run(t, 2)] for t in (told, plain))
    assert differences(one, other) == []
    told.stop()
    plain.stop()


def test_E8_the_end_of_a_faulty_episode_is_told_with_its_exception() -> None:
    trainer = make({**COUNTING, "callbacks": Diary})
    assert isinstance(trainer.workers, LocalWorkers)
    sampler = trainer.workers.worker._sampler
    sampler.envs = Altered(sampler.envs, fault_in_second_step)
    trainer.train()
    assert [note[:3] for note in diary(trainer)[2:6]] == [
        ("step", "0-0-0", 1),
        ("end: the world ended", "0-0-0", 2),
        ("created", "0-0-1", 0),
        ("start", "0-0-1", 0),
    ]
    trainer.stop()


def fault_in_second_step(number: int, step: Step) -> Step:
    return step._replace(faults={0: ValueError("the world ended")}) if number == 2 else step


@pytest.mark.parametrize("workers", [{}, CHILD], ids=["in process", "child"])
def test_K1_custom_metrics_and_histories_stand_in_the_result(workers: dict[str, Any]) -> None:
    trainer = make({**COUNTING, "rollout_fragment_length": 8, **workers})
    assert "custom_metrics" not in trainer.train()
    trainer.stop()
    config = {**COUNTING, "rollout_fragment_length": 8, "callbacks": Measures, **workers}
    trainer = make({**config, "train_batch_size": None})
    first = trainer.train()
    assert first["custom_metrics"] == {
        "angle_mean": 1.5,
        "angle_min": 1.5,
        "angle_max": 1.5,
        "ended_mean": 1.5,
        "ended_min": 1.0,
        "ended_max": 2.0,
    }
    assert first["hist_stats"] == {
        "episode_reward": [3.0, 3.0],
        "episode_lengths": [3, 3],
        "ends": [1.0, 3.0, 2.0, 3.0],
    }
    second = trainer.train()
    assert second["custom_metrics"]["ended_max"] == 5.0
    assert second["hist_stats"]["ends"] == [3.0, 3.0, 4.0, 3.0, 5.0, 3.0]
    # The object in the trainer's process is the worker's where there are no children.
    assert second["ended_here"] == (0 if workers else 5)
    trainer.stop()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [{}, {"num_workers": 2}], ids=["in process", "children"])
def test_K1_what_callbacks_keep_comes_back_with_the_checkpoint(workers: dict[str, Any]) -> None:
    config = {"callbacks": Measures, "train_batch_size": None, **workers}
    straight = make(config)
    expected = run(straight, 4)
    end = final_state(straight)
    straight.stop()
    saving = make(config)
    run(saving, 2)
    state = copy.deepcopy(saving.get_state())
    saving.stop()
    other = make(config)
    other.train()
    other.set_state(state)
    assert differences(expected[2:], run(other, 2)) == []
    assert differences(end, final_state(other)) == []
    assert any(one["user_data"] for one in end_episodes(end))
    other.stop()


def end_episodes(state: dict[str, Any]) -> list[dict[str, Any]]:
    written: list[dict[str, Any]] = state["trainable"]["data"]["workers"][0]["callbacks"][
        "episodes"
    ]
    return written


@pytest.mark.parametrize("part", ["own", "episodes"])
def test_K1_the_equality_fails_without_what_callbacks_keep(part: str) -> None:
    trainer = make({"callbacks": Measures})
    run(trainer, 2)
    state = copy.deepcopy(trainer.get_state())
    expected = run(trainer, 2)
    other = make({"callbacks": Measures})
    data, fresh = (one["trainable"]["data"] for one in (state, other.get_state()))
    data["workers"][0]["callbacks"][part] = fresh["workers"][0]["callbacks"][part]
    data["callbacks"] = fresh["callbacks"]
    other.set_state(state)
    assert differences(expected, run(other, 2)) != []


def test_K1_what_cannot_stand_in_a_checkpoint_is_named(tmp_path: Path) -> None:
    trainer = make({**COUNTING, "callbacks": f"{HERE}:KeepsAnObject"})
    with pytest.raises(StateError, match=r"callbacks/episode 0-0-0.user_data.mine"):
        trainer.save(tmp_path)
    trainer.stop()


@pytest.mark.parametrize("workers", [{}, CHILD], ids=["in process", "child"])
def test_K1_a_callback_that_raises_is_named_with_its_phase(workers: dict[str, Any]) -> None:
    trainer = make({**COUNTING, "callbacks": {"on_episode_end": f"{HERE}:raises"}, **workers})
    with pytest.raises(
        CallbackError,
        match=f"{HERE}:raises raised in phase on_episode_end: ZeroDivisionError: at 0-0-0",
    ):
        trainer.train()
    trainer.stop()


def test_K1_a_metric_that_is_no_number_is_named() -> None:
    trainer = make({**COUNTING, "callbacks": f"{HERE}:WritesAWord"})
    with pytest.raises(CallbackError, match=r"custom_metrics\['mood'\]: 'fine' is not a number"):
        trainer.train()
    trainer.stop()


@pytest.mark.parametrize(
    ("kind", "name", "value", "why"),
    [
        ("hist_data", "angles", 1.5, r"hist_data\['angles'\]: 1.5 is not a list of numbers"),
        ("hist_data", "angles", [1.5, None], r"hist_data\['angles'\]: None is not a number"),
        ("custom_metrics", "huge", 10**400, r"custom_metrics\['huge'\]: 1000.* is not a number"),
        ("custom_metrics", 3, 1.0, r"custom_metrics\[3\]: a name must be text"),
    ],
)
def test_K1_what_a_callback_wrote_wrongly_is_named(
    kind: str, name: Any, value: Any, why: str
) -> None:
    episode = Episode("0-0-0", 0, 0)
    getattr(episode, kind)[name] = value
    with pytest.raises(CallbackError, match=why):
        checked_numbers(episode)


@pytest.mark.parametrize(
    ("callbacks", "words"),
    [
        ("no_such_module:Name", "callbacks: .* cannot be loaded: there is no module"),
        (f"{HERE}:Diry", "did you mean 'Diary'"),
        (f"{HERE}:makes_no_callbacks", "returned an int"),
        ("json:dumps", "needs obj, but is called without arguments"),
        ({"on_episode_ended": f"{HERE}:raises"}, "did you mean 'on_episode_end'"),
        ({"on_episode_end": 3}, "callbacks.on_episode_end: 3 is not allowed"),
        (7, "callbacks: 7 is not allowed"),
    ],
)
def test_K1_callbacks_that_cannot_work_are_refused(callbacks: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        PPO.check_config({"env": "CartPole-v1", "callbacks": callbacks})


def test_B4_pieces_of_a_batch_that_comes_again_and_again_are_told_to_nobody() -> None:
    told = {"on_postprocess_traj": f"{HERE}:adds_one"}
    with pytest.raises(
        ConfigError,
        match="fake_sampler: true cannot be used with a callback for on_postprocess_traj",
    ):
        PPO.check_config({"env": "CartPole-v1", "callbacks": told, "fake_sampler": True})
    PPO.check_config({"env": "CartPole-v1", "callbacks": Diary, "fake_sampler": True})


def test_K1_children_are_told_of_callbacks_by_dotted_path_or_not_at_all() -> None:
    class Local(Callbacks):
        """No other process can import it."""

    with pytest.raises(ConfigError, match="child processes cannot import"):
        PPO.check_config({"env": "CartPole-v1", "callbacks": Local, "num_workers": 1})
    PPO.check_config({"env": "CartPole-v1", "callbacks": Local})
    PPO.check_config({"env": "CartPole-v1", "callbacks": Diary, "num_workers": 1})


def test_T14_a_result_is_changed_before_it_is_logged() -> None:
    logged: list[dict[str, Any]] = []

    class Logs(PPO):
        def log_result(self, result: dict[str, Any]) -> None:
            logged.append(dict(result))

    trainer = Logs({"env": "CartPole-v1", "callbacks": {"on_train_result": f"{HERE}:adds_one"}})
    result = trainer.train()
    assert result["one"] == logged[0]["one"] == 1
    assert result["training_iteration"] == 1
    trainer.stop()


def test_B2_samples_are_handed_to_on_sample_end_before_they_are_told_of_or_sent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    order: list[str] = []

    def doubles(told: dict[str, Any]) -> None:
        order.append(f"on_sample_end {'sample batch' in caplog.text}")
        told["samples"].fragments[0].rewards[:] = 77.0

    with caplog.at_level("INFO", logger="trainables"):
        trainer = make({**COUNTING, "callbacks": {"on_sample_end": doubles}})
        (sample,) = trainer.workers.sample()
    assert order == ["on_sample_end False"]
    assert "min 77 max 77" in caplog.text
    assert (sample.fragments[0].rewards == 77.0).all()
    trainer.stop()


@pytest.mark.parametrize("workers", [{}, CHILD], ids=["in process", "child"])
def test_P16_what_on_postprocess_traj_writes_is_learnt(workers: dict[str, Any]) -> None:
    config = {**COUNTING, "callbacks": Praises, "normalize_advantages": False}
    trainer = make({**config, "rollout_fragment_length": 7, "train_batch_size": None, **workers})
    samples = trainer.workers.sample()
    trainer.reporter.sampled(samples)
    batch = trainer.learning_rows(samples[0].fragments)
    # Two whole episodes and one row of a third.
    assert batch.advantages.tolist() == [3.0] * 6 + [1.0]
    pieces = [one.custom_metrics for one in samples[0].episodes]
    assert pieces == [{"pieces": 1.0}, {"pieces": 1.0}]
    trainer.stop()


def test_P16_on_postprocess_traj_sees_the_batch_before_and_after() -> None:
    told: list[dict[str, Any]] = []
    trainer = make({**COUNTING, "callbacks": {"on_postprocess_traj": told.append}})
    trainer.train()
    first = told[0]
    assert list(first) == ["agent_id", "episode", "pre_batch", "post_batch", "all_pre_batches"]
    assert first["agent_id"] == "agent0"
    assert first["all_pre_batches"] == {"agent0": (trainer.policy, first["pre_batch"])}
    assert first["pre_batch"]["rewards"].tolist() == [1.0, 1.0, 1.0]
    assert "advantages" not in first["pre_batch"]
    assert np.isfinite(first["post_batch"]["advantages"]).all()
    assert [len(one["pre_batch"]["logp"]) for one in told] == [3, 1]
    trainer.stop()


@pytest.mark.parametrize("mode", ["truncate_episodes", "complete_episodes"])
def test_B2_pieces_of_a_sample_are_given_away_with_it(mode: str) -> None:
    trainer = make({"batch_mode": mode, "callbacks": Praises, "evaluation_interval": None})
    assert isinstance(trainer.workers, LocalWorkers)
    watch = trainer.workers.worker._sampler.watch
    assert watch is not None
    kept = []
    for _ in range(3):
        trainer.train()
        kept.append(len(watch._pieces))
    assert kept == [0, 0, 0]
    trainer.stop()


def test_P16_after_a_restore_no_piece_of_a_broken_sample_is_left() -> None:
    trainer = make({"callbacks": Praises, "evaluation_interval": None})
    assert isinstance(trainer.workers, LocalWorkers)
    run(trainer, 1)
    saved = trainer.get_state()
    expected = run(trainer, 1)
    sampler = trainer.workers.worker._sampler
    ticks = iter(range(13))

    def breaks() -> None:
        if next(ticks) == 12:
            raise KeyboardInterrupt

    sampler.between_ticks = breaks
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    sampler.between_ticks = None
    trainer.set_state(saved)
    assert differences(run(trainer, 1), expected) == []
    trainer.stop()

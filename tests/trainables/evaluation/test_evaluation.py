import logging
import os
import random
import signal
import sys
import threading
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, ClassVar, get_type_hints

import cloudpickle
import numpy as np
import psutil
import pytest

from tests.support.callbacks import Diary, Measures
from tests.support.environments import Broken, Counting, Tally
from tests.support.trainers import PLAIN, SMALL, differences, final_state, make, run
from trainables import Callbacks
from trainables.algorithms.ppo import PPO, Config
from trainables.core import rng
from trainables.core.settings import Section, known_keys
from trainables.envs.vector.slot import EnvSlot
from trainables.errors import CallbackError, ConfigError, EnvError, NotFiniteError, TrainableError
from trainables.evaluation.config import ALWAYS, READ, READ_BY_CHILDREN, WHY_NOT
from trainables.evaluation.play import play
from trainables.rollout.workers.worker_spec import WorkerSpec
from trainables.trainable import TrialContext
from trainables.trainer.config import default_config
from trainables.trainer.evaluation import evaluation_plan

HERE = "tests.support.environments"
CALLBACKS = "tests.support.callbacks"


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1", f"{HERE}:GlobalChance"])
def test_evaluating_changes_the_training_curve_by_not_one_bit(env: str) -> None:
    often = make({"env": env, "evaluation_interval": 1, "evaluation_config": {"explore": True}})
    with_, with_state = run(often, 3), final_state(often)
    assert with_[0].pop("evaluation_at_start")["episodes"] == 3
    never = make({"env": env, "evaluation_interval": None})
    without, without_state = run(never, 3), final_state(never)
    for one in with_:
        assert one.pop("evaluation")["episodes"] == 3
    for results in (with_, without):
        for one in results:
            del one["config"]
    assert differences(with_, without) == []
    assert differences(with_state, without_state) == []


def test_evaluating_writes_nothing_where_no_video_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    trainer = PPO({**SMALL, "evaluation_interval": 1})
    trainer.train()
    trainer.stop()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(("episodes", "width"), [(1, 4), (5, 2), (7, 3)])
def test_exactly_so_many_fresh_episodes_are_played(episodes: int, width: int) -> None:
    config = {
        "env": f"{HERE}:Counting",
        "env_config": {"length": 4},
        "evaluation_num_episodes": episodes,
        "num_envs_per_worker": width,
        "train_batch_size": None,
    }
    result = make(config).evaluate()
    assert result["episodes"] == episodes
    assert result["episode_reward_mean"] == result["episode_len_mean"] == 4.0


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
@pytest.mark.parametrize("explore", [False, True])
def test_T16_the_result_does_not_depend_on_how_many_play_side_by_side(
    env: str, explore: bool
) -> None:
    shared: dict[str, Any] = {
        "env": env,
        "evaluation_num_episodes": 6,
        "evaluation_config": {"explore": explore},
    }
    widths = (1, 4, 6)
    override = [{"explore": explore, "num_envs_per_worker": n} for n in widths]
    results = [make({**shared, "evaluation_config": one}).evaluate() for one in override]
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize(
    ("changes", "width"),
    [
        ({}, 10),  # a second wave of two episodes would take as many steps again
        ({"evaluation_num_episodes": 6}, 8),
        ({"evaluation_num_episodes": 17}, 8),
        ({"evaluation_num_episodes": 20, "evaluation_num_workers": 2}, 10),
        ({"num_envs_per_worker": 1}, 1),
        ({"remote_worker_envs": True}, 8),
        ({"evaluation_config": {"num_envs_per_worker": 8}}, 8),
        ({"evaluation_config": {"num_envs_per_worker": 3}}, 3),
    ],
)
def test_all_episodes_begin_at_once_if_they_need_at_most_twice_the_environments(
    changes: dict[str, Any], width: int
) -> None:
    config = {"env": "CartPole-v1", "num_envs_per_worker": 8, "evaluation_num_episodes": 10}
    trainer = make({**config, **changes})
    assert evaluation_plan(trainer.settings).width == width


class WearsOut(Counting):
    """Its episodes are longer each time; how long, is in an object."""

    def __init__(self) -> None:
        super().__init__(length=3)
        self.world = Tally()

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.world.episodes += 1
        self.length = 3 + self.world.episodes
        return super().reset(seed=seed, options=options)


@pytest.mark.parametrize("width", [1, 2])
def test_T16_no_episode_depends_on_those_before_it_in_its_environment(width: int) -> None:
    override = {"num_envs_per_worker": width}
    config = {"env": f"{__name__}:WearsOut", "env_level": "C", "evaluation_config": override}
    assert metrics_of(config)["hist_stats"]["episode_lengths"] == [4, 4, 4]


class DrawsGlobally(Counting):
    """Draws the length of each episode from numpy's global stream."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.length = 3 + int(np.random.randint(1000))  # noqa: NPY002 as old environments do
        return super().reset(seed=seed, options=options)


@pytest.mark.slow
def test_T16_global_draws_in_processes_of_their_own_are_each_episodes_own() -> None:
    """Whichever process has which of them."""
    config = {"env": f"{__name__}:DrawsGlobally", "env_level": "C", "remote_worker_envs": True}
    widths = [{"num_envs_per_worker": width} for width in (1, 2)]
    each = [metrics_of({**config, "evaluation_config": one})["hist_stats"] for one in widths]
    assert each[0]["episode_lengths"] == each[1]["episode_lengths"]
    assert len(set(each[0]["episode_lengths"])) == 3


def test_T16_an_environment_whose_state_is_known_is_made_once_for_all_its_episodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = []
    remake = EnvSlot.remake

    def counted(slot: EnvSlot, seed: int) -> Any:
        made.append(seed)
        return remake(slot, seed)

    monkeypatch.setattr(EnvSlot, "remake", counted)
    metrics_of({"env": f"{HERE}:Counting", "evaluation_config": {"num_envs_per_worker": 1}})
    assert made == []
    config: dict[str, Any] = {"env_config": {"length": 3}, "num_envs_per_worker": 1}
    metrics_of({"env": f"{HERE}:Counting", "evaluation_config": config})
    assert len(made) == 2  # nobody has measured that one


def played(trainer: PPO, iterations: int) -> list[Any]:
    try:
        return [
            [{k: v for k, v in one.items() if k != "config"} for one in run(trainer, iterations)],
            final_state(trainer),
        ]
    finally:
        trainer.stop()


def test_T15_children_that_evaluate_change_no_number_and_no_state() -> None:
    shared = {
        "evaluation_interval": 1,
        "evaluation_num_episodes": 5,
        "observation_filter": "ConcurrentMeanStdFilter",
    }
    alone = played(make(shared), 2)
    shared_out = played(make({**shared, "evaluation_num_workers": 2}), 2)
    assert differences(alone, shared_out) == []


def test_T15_a_child_acts_to_the_bit_as_its_trainer() -> None:
    results = []
    for workers in (0, 1):
        config = {"env": "Pendulum-v1", "evaluation_config": {"horizon": 100}}
        trainer = make({**config, "evaluation_num_workers": workers, "evaluation_num_episodes": 2})
        actor, drawn = trainer.inference.actor, np.random.default_rng(0)
        pickled = cloudpickle.loads(cloudpickle.dumps(actor))
        for row in drawn.standard_normal((200, 1, 3)).astype(np.float32):
            assert differences(actor.forward(row), pickled.forward(row)) == []
        results.append(trainer.evaluate())
        trainer.stop()
    assert differences(results[0], results[1]) == []


def test_T15_a_child_that_died_is_replaced_and_its_episodes_are_played_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = {"evaluation_num_workers": 2, "evaluation_num_episodes": 5}
    trainer, alone = make(config), make()
    first = trainer.evaluate()
    pids = trainer.evaluation.workers.pids()
    os.kill(pids[1], signal.SIGKILL)
    assert trainer.evaluate() == first
    assert "evaluation worker 1" in caplog.text
    replaced = trainer.evaluation.workers.pids()
    assert (replaced[0] == pids[0], replaced[1] == pids[1]) == (True, False)
    processes = [psutil.Process(pid) for pid in replaced]
    trainer.stop()
    alone.stop()
    assert not any(process.is_running() for process in processes)


@pytest.mark.slow
def test_T16_after_a_failure_nothing_of_that_evaluation_leaks_into_the_next() -> None:
    config = {
        "env": f"{HERE}:Broken",
        "env_config": {"what": ""},
        "evaluation_config": {"env_config": {"what": "reward"}},
        "evaluation_num_workers": 2,
    }
    trainer = make(config)
    for _ in range(2):
        with pytest.raises(NotFiniteError, match="evaluation episode"):
            trainer.evaluate()
        assert trainer.evaluation.workers.pids() == []
    trainer.stop()


def test_T15_what_cannot_be_sent_to_a_child_is_said() -> None:
    trainer = make({"evaluation_num_workers": 1})
    trainer.inference.note = threading.Lock()  # type: ignore[attr-defined]  # somebody's own
    with pytest.raises(TrainableError, match="set evaluation_num_workers: 0"):
        trainer.evaluate()
    trainer.stop()


class Customised(PPO):
    """Counts its evaluations, and evaluates in its own way."""

    returned: ClassVar[Any] = {"evaluation": {"score": 1.0}}
    before = 0

    def _before_evaluate(self) -> None:
        self.before += 1

    def _evaluate(self) -> Any:
        return self.returned


def test_T13_a_custom_evaluation_adds_what_it_returns_after_the_hook() -> None:
    trainer = Customised({**SMALL, "evaluation_interval": 2}, TrialContext(seed=1))
    results = run(trainer, 4)
    assert [one.get("evaluation") for one in results] == [None, {"score": 1.0}] * 2
    assert results[0]["evaluation_at_start"] == {"score": 1.0}
    assert trainer.before == 3
    trainer.stop()


def test_T13_an_evaluation_that_returns_no_dict_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Customised, "returned", 5)
    trainer = Customised({**SMALL, "evaluation_interval": 1}, TrialContext(seed=1))
    with pytest.raises(TrainableError, match=r"_evaluate\(\) returned 5; expected a dict"):
        trainer.train()
    trainer.stop()


class Unlucky(PPO):
    """Draws from Python's global stream and raises when it is evaluated."""

    def _evaluate(self) -> Any:
        random.random()  # noqa: S311 the stream that an evaluation must leave as it was
        raise ZeroDivisionError


def test_T13_an_evaluation_that_raises_leaves_the_global_streams_as_they_were() -> None:
    trainer = Unlucky({**SMALL, "evaluation_interval": 1}, TrialContext(seed=1))
    before = random.getstate()
    with pytest.raises(ZeroDivisionError):
        trainer._run_evaluation(1)
    assert random.getstate() == before
    trainer.stop()


def test_T15_a_restored_trainer_is_not_evaluated_at_the_start_again(tmp_path: Path) -> None:
    first = make({"evaluation_interval": 5})
    first.train()
    path = first.save(tmp_path)
    again = make({"evaluation_interval": 5})
    again.restore(path)
    assert "evaluation_at_start" not in again.train()
    first.stop()
    again.stop()


@pytest.mark.parametrize(
    ("config", "place", "words"),
    [
        (
            {"lr": 0.1},
            "evaluation_config.lr",
            "has no effect in an evaluation: only training reads",
        ),
        ({"explor": True}, "evaluation_config.explor", "did you mean 'explore'"),
        ({"horizon": 501}, "evaluation_config.horizon", "the environment's own limit of 500"),
        ({"env_step_timeout_s": 1.0}, "evaluation_config.env_step_timeout_s", "has no effect"),
        ({"callbacks": f"{CALLBACKS}:Diry"}, "evaluation_config.callbacks", "did you mean 'Diary'"),
        ({"batch_mode": "truncate_episodes"}, "evaluation_config.batch_mode", "complete_episodes"),
        ({"fake_sampler": 0}, "evaluation_config.fake_sampler", "where it is always false"),
        ({"env_level": "A"}, "evaluation_config.env_level", "has no effect"),
        ({"env_replay_limit": 5}, "evaluation_config.env_replay_limit", "has no effect"),
        ({"explore": 1}, "evaluation_config.explore", "true or false"),
        ({"num_envs_per_worker": 0}, "evaluation_config.num_envs_per_worker", "greater than 0"),
        ({"env": "CartPole-v9"}, "evaluation_config.env", "did you mean 'CartPole-v1'"),
        ({"env": "Pendulum-v1"}, "evaluation_config.env_config", "the training's spaces"),
    ],
)
def test_T15_what_is_different_is_checked_like_any_setting(
    config: dict[str, Any], place: str, words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        PPO.check_config({"env": "CartPole-v1", "evaluation_config": config})
    assert caught.value.place == place
    assert words in str(caught.value)


def test_T15_the_overrides_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    override = {"explore": True, "horizon": 7}
    with caplog.at_level("INFO", logger="trainables"):
        trainer = make({"evaluation_interval": 1, "evaluation_config": override})
        run(trainer, 2)
        trainer.stop()
    assert caplog.text.count("trainer: evaluation_config: {explore: True, horizon: 7}") == 1


def test_greedy_evaluation_repeats_itself_and_exploring_differs() -> None:
    greedy, exploring = make(), make({"evaluation_config": {"explore": True}})
    assert greedy.evaluate() == greedy.evaluate()
    assert greedy.evaluate() != exploring.evaluate()


def test_the_environment_of_evaluation_can_be_another() -> None:
    config = {
        "env": f"{HERE}:Counting",
        "env_config": {"length": 4},
        "evaluation_config": {"env_config": {"length": 9}},
    }
    assert make(config).evaluate()["episode_len_mean"] == 9.0


def test_filters_are_frozen_while_evaluating() -> None:
    trainer = make()
    trainer.train()
    before = trainer.filters["observation"].get_state()
    trainer.evaluate()
    np.testing.assert_equal(trainer.filters["observation"].get_state(), before)


def test_each_evaluation_has_seeds_of_its_own() -> None:
    trainer = make(
        {
            "lr": 1e-12,
            "lr_schedule": "constant",
            "evaluation_interval": 1,
            "observation_filter": "NoFilter",
        }
    )
    results = [one["evaluation"] for one in run(trainer, 3)]
    assert len({one["episode_reward_mean"] for one in results}) > 1


FAULTY: dict[str, Any] = {
    "env": f"{HERE}:ChancyMishap",
    "env_level": "C",
    "restart_failed_sub_environments": True,
    "normalize_rewards": False,
    "evaluation_num_episodes": 7,
}


def evaluated(config: dict[str, Any]) -> dict[str, float]:
    trainer = make({**FAULTY, **config})
    try:
        return trainer.evaluate()
    finally:
        trainer.stop()


@pytest.mark.parametrize("explore", [False, True])
def test_T16_E4_an_episode_whose_environment_fails_is_played_anew_wherever_it_is_played(
    explore: bool,
) -> None:
    widths = [{"num_envs_per_worker": n, "explore": explore} for n in (1, 2, 7)]
    results = [evaluated({"evaluation_config": one}) for one in widths]
    children = evaluated({"evaluation_config": widths[1], "evaluation_num_workers": 2})
    assert results[0] == results[1] == results[2] == children
    assert results[0]["episodes"] == 7
    assert results[0]["episode_len_mean"] == 6.0
    assert results[0]["num_faulty_episodes"] > 0
    assert results[0]["episode_reward_max"] <= 6 * 0.5  # no part of an episode that failed counts


@pytest.mark.slow
@pytest.mark.parametrize("how", ["hangs", "dies"])
def test_E4_environments_of_an_evaluation_are_cut_off_in_processes_of_their_own(how: str) -> None:
    trainer = make({**FAULTY, "num_envs_per_worker": 2, "train_batch_size": None})
    plan = evaluation_plan(trainer.settings)
    here = play(trainer.inference, plan, 5, range(2))
    assert sum(one.faults for one in here) == 1
    own = {"remote_worker_envs": True, "env_step_timeout_s": 10.0}
    envs = plan.envs.model_copy(update=own)
    environment = plan.environment.model_copy(update={"env_config": {"how": how}})
    assert play(
        trainer.inference, replace(plan, environment=environment, envs=envs), 5, [0, 1]
    ) == (here)
    trainer.stop()


def test_T16_an_evaluation_that_fails_again_and_again_ends_with_the_cause() -> None:
    with pytest.raises(EnvError, match=r"evaluation episode 0: .*failed 9 times in a row.*world"):
        evaluated({"evaluation_config": {"env_config": {"above": -1.0}}})


class RaisesAgainWhenClosed(Broken):
    """Raises once in its process, and when it is closed after that."""

    failed: ClassVar[bool] = False

    def step(self, action: Any) -> Any:
        if self.steps == 2 and not RaisesAgainWhenClosed.failed:
            self.what, RaisesAgainWhenClosed.failed = "raise and close", True
            raise ZeroDivisionError("the world ended")
        return super().step(action)

    def close(self) -> None:
        if self.what == "raise and close":
            raise ConnectionError("nothing to close")


@pytest.mark.parametrize("restarts", [True, False])
def test_T16_what_closing_raises_hides_no_failure_and_hinders_no_restart(
    restarts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {"env": f"{__name__}:RaisesAgainWhenClosed", "env_config": {"what": ""}}
    trainer = make({**FAULTY, **env, "restart_failed_sub_environments": restarts})
    plan = evaluation_plan(trainer.settings)
    monkeypatch.setattr(RaisesAgainWhenClosed, "failed", False)
    before = rng.capture_global()
    if restarts:
        played = play(trainer.inference, plan, 5, range(2))
        assert [one.metrics.length for one in played] == [10, 10]
        assert sum(one.faults for one in played) == 1
    else:
        with pytest.raises(EnvError, match="the world ended"):
            play(trainer.inference, plan, 5, range(2))
    assert differences(rng.capture_global(), before) == []
    trainer.stop()


@pytest.mark.parametrize("workers", [0, 1])
def test_T16_an_environment_that_may_not_be_restarted_is_named_with_what_would_help(
    workers: int,
) -> None:
    config = {"restart_failed_sub_environments": False, "evaluation_num_workers": workers}
    with pytest.raises(EnvError, match=r"evaluation episode \d: step\(\) raised ZeroDivision.*at "):
        evaluated(config)


# ---- callbacks ---------------------------------------------------------------------------------


def metrics_of(config: dict[str, Any], iterations: int = 0) -> dict[str, Any]:
    """What an evaluation after so many iterations gives."""
    trainer = make({"evaluation_interval": None, **config})
    try:
        run(trainer, iterations)
        return trainer.evaluate()
    finally:
        trainer.stop()


def test_K1_T16_what_callbacks_write_depends_on_no_neighbour_and_no_process() -> None:
    shared = {"callbacks": Measures, "evaluation_num_episodes": 5}
    widths = [{"num_envs_per_worker": n, "explore": True} for n in (1, 3, 5)]
    one, *others = (metrics_of({**shared, "evaluation_config": width}, 1) for width in widths)
    children = {"evaluation_config": widths[1], "evaluation_num_workers": 2}
    assert [*others, metrics_of({**shared, **children}, 1)] == [one] * 3
    assert one["custom_metrics"]["angle_min"] < one["custom_metrics"]["angle_max"]
    # Each episode counts on from what the trainer's callbacks had counted.
    trained = metrics_of({**shared, "evaluation_num_episodes": 1}, 1)["hist_stats"]["ends"][0]
    assert one["hist_stats"]["ends"][::2] == [trained] * 5
    assert one["hist_stats"]["ends"][1::2] == one["hist_stats"]["episode_lengths"]
    assert trained > 1


def test_K1_callbacks_in_evaluations_change_no_bit_of_the_training() -> None:
    told, untold = (make({"callbacks": Measures, "evaluation_interval": n}) for n in (1, None))
    with_, without = run(told, 3), run(untold, 3)
    for one in with_:
        assert one.pop("evaluation")["custom_metrics"]
    assert with_[0].pop("evaluation_at_start")["custom_metrics"]["ended_max"] == 1.0
    for one in (*with_, *without):
        del one["config"]
    assert differences(with_, without) == []
    assert differences(final_state(told), final_state(untold)) == []
    told.stop()
    untold.stop()


COUNTED: dict[str, Any] = {
    **PLAIN,
    "env": f"{HERE}:Counting",
    "env_config": {"length": 2},
    "evaluation_num_episodes": 2,
    "env_level": "C",  # nothing is measured
}


@pytest.mark.slow
def test_P16_E8_the_phases_of_an_evaluation_come_in_order_and_say_that_it_is_one() -> None:
    notes: list[tuple[Any, ...]] = []

    def noting(phase: str) -> Any:
        def note(told: dict[str, Any]) -> None:
            episode = told["episode"]
            if told["worker"].in_evaluation:
                seen = episode.last_observation
                notes.append(
                    (
                        phase,
                        episode.episode_id,
                        episode.length,
                        None if seen is None else float(seen[0]),
                    )
                )

        return note

    phases = ("created", "start", "step", "end")
    trainer = make({**COUNTED, "callbacks": {f"on_episode_{one}": noting(one) for one in phases}})
    trainer.train()
    assert notes == []  # in training a worker says that it is not an evaluation
    trainer.evaluate()
    of_first = [note for note in notes if note[1] == "evaluation-0"]
    assert of_first == [
        ("created", "evaluation-0", 0, None),
        ("start", "evaluation-0", 0, 0.0),
        ("step", "evaluation-0", 1, 1.0),
        ("step", "evaluation-0", 2, 2.0),
        ("end", "evaluation-0", 2, 2.0),
    ]
    assert [note[0] for note in notes if note[1] == "evaluation-1"] == [n[0] for n in of_first]
    trainer.stop()


@pytest.mark.parametrize("workers", [0, 2])
def test_E8_callbacks_steer_the_environment_of_their_episode(workers: int) -> None:
    config = {**COUNTED, "callbacks": f"{CALLBACKS}:Lengthens", "evaluation_num_workers": workers}
    assert metrics_of(config, 1)["hist_stats"]["episode_lengths"] == [12, 12]


def test_E8_an_episode_that_failed_is_told_with_its_exception_and_played_with_new_callbacks() -> (
    None
):
    ends: list[tuple[str, str]] = []

    class Hears(Callbacks):
        def __init__(self) -> None:
            self.heard = 0

        def on_episode_end(self, *, worker: Any, episode: Any, error: Exception | None) -> None:
            self.heard += 1
            episode.custom_metrics["heard"] = self.heard
            ends.append((episode.episode_id, str(error)))

    result = metrics_of({**FAULTY, "callbacks": Hears})
    assert result["custom_metrics"]["heard_max"] == 1.0
    lost = [episode for episode, error in ends if error == "the world ended"]
    assert len(lost) == result["num_faulty_episodes"] > 0
    assert len(ends) == len(set(ends)) == 7 + len(lost)


@pytest.mark.parametrize("workers", [0, 1])
def test_K1_a_callback_that_raises_in_an_evaluation_is_named(workers: int) -> None:
    told = {"on_episode_end": f"{CALLBACKS}:raises"}
    config = {"evaluation_config": {"callbacks": told}, "evaluation_num_workers": workers}
    with pytest.raises(CallbackError, match=r"phase on_episode_end: .*: at evaluation-\d"):
        metrics_of(config)


def test_K1_callbacks_that_evaluating_children_cannot_import_are_refused() -> None:
    class Local(Diary):
        """No other process can import it."""

    class Silent(Callbacks):
        """Nor this one, and none needs to: no method of it is called there."""

    config = {"env": "CartPole-v1", "evaluation_num_workers": 1}
    with pytest.raises(ConfigError, match="child processes cannot import") as caught:
        PPO.check_config({**config, "callbacks": Local})
    assert caught.value.place == "callbacks"
    with pytest.raises(ConfigError) as caught:
        PPO.check_config({**config, "evaluation_config": {"callbacks": Local}})
    assert caught.value.place == "evaluation_config.callbacks"
    PPO.check_config({**config, "callbacks": Silent})


# ---- every key ---------------------------------------------------------------------------------


class Longer(Counting):
    """Nine steps."""

    def __init__(self) -> None:
        super().__init__(length=9)


SENSED = {**COUNTED, "callbacks": f"{CALLBACKS}:Senses"}
CONTINUOUS = {**SENSED, "env_config": {"continuous": True}}
CHILD = {"evaluation_num_workers": 1}


def told(config: dict[str, Any], **override: Any) -> dict[str, Any]:
    """An evaluation's custom metrics, of which all episodes have the same."""
    found = metrics_of({**config, "evaluation_config": override})["custom_metrics"]
    return {key[:-4]: value for key, value in found.items() if key.endswith("_max")}


def lengths(config: dict[str, Any], **override: Any) -> list[float]:
    found = metrics_of({**config, "evaluation_config": override})
    return list(found["hist_stats"]["episode_lengths"])


def of_plan(**override: Any) -> Any:
    trainer = make({"evaluation_config": override})
    trainer.stop()
    return evaluation_plan(trainer.settings)


def read_explore() -> None:
    assert [of_plan(**one).explore for one in ({}, {"explore": True})] == [False, True]


def read_env() -> None:
    assert lengths(COUNTED, env=f"{__name__}:Longer") == [9, 9]


def read_env_config() -> None:
    assert lengths(COUNTED, env_config={"length": 4}) == [4, 4]


def read_env_engine() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "envpool", None)  # as where its package is missing
        with pytest.raises(ConfigError, match="env_engine: EnvPool is not installed"):
            make({"evaluation_config": {"env_engine": "envpool"}}).evaluate()


def read_preprocessor_pref() -> None:
    assert of_plan(preprocessor_pref="rllib").environment.preprocessor_pref == "rllib"


def read_no_framestack() -> None:
    assert of_plan(no_framestack=True).environment.no_framestack


def read_num_envs_per_worker() -> None:
    assert of_plan(num_envs_per_worker=5).width == 5


def read_horizon() -> None:
    assert lengths(COUNTED, horizon=1) == [1, 1]
    assert lengths({**COUNTED, "horizon": 1}, horizon=None) == [2, 2]
    assert lengths({**COUNTED, "horizon": 1, "soft_horizon": True}, soft_horizon=False) == [1, 1]


def read_restart_failed_sub_environments() -> None:
    config = {**FAULTY, "restart_failed_sub_environments": False, "evaluation_interval": None}
    found = metrics_of({**config, "evaluation_config": {"restart_failed_sub_environments": True}})
    assert found["num_faulty_episodes"] > 0


def read_remote_worker_envs() -> None:
    assert told(SENSED)["here"] == 1
    assert told(SENSED, remote_worker_envs=True)["here"] == 0
    apart = {"remote_worker_envs": True, "env_step_timeout_s": 60.0, "train_batch_size": None}
    assert told({**SENSED, **apart}, remote_worker_envs=False)["here"] == 1


def read_env_step_timeout_s() -> None:
    override = {"remote_worker_envs": True, "env_step_timeout_s": 1.0}
    env = {"env_config": {"how": "hangs"}, "evaluation_num_episodes": 2}
    found = metrics_of({**FAULTY, **env, "evaluation_config": override})
    assert found["hist_stats"]["episode_lengths"] == [6, 6]


def read_clip_actions() -> None:
    drawn = {"explore": True}
    assert told(CONTINUOUS, **drawn)["sent"] <= np.float32(0.1)
    assert told(CONTINUOUS, clip_actions=False, **drawn)["sent"] > 0.1
    assert told({**CONTINUOUS, "clip_actions": False}, clip_actions=True, **drawn)["sent"] < 0.11


def read_callbacks() -> None:
    assert "custom_metrics" in metrics_of(
        {**COUNTED, "evaluation_config": {"callbacks": f"{CALLBACKS}:Senses"}}
    )
    for none in (None, f"{CALLBACKS}:SensesNothing"):
        silenced = {**SENSED, "evaluation_config": {"callbacks": none}}
        assert "custom_metrics" not in metrics_of(silenced)


def read_log_level() -> None:
    before = logging.getLogger("trainables").level
    for where in ({}, CHILD):
        assert told({**SENSED, **where}, log_level="ERROR")["level"] == logging.ERROR
        assert told({**SENSED, **where})["level"] == logging.INFO
    logging.getLogger("trainables").setLevel(before)


def read_seed() -> None:
    drawn = {**SENSED, "env": f"{HERE}:DrawsFromItsSpace", "env_config": {}}
    of_seeds = [told({**drawn, "seed": trial}, seed=0)["first"] for trial in (1, 2)]
    assert of_seeds[0] == of_seeds[1] != told({**drawn, "seed": 1})["first"]


def read_num_cpus_per_worker() -> None:
    assert asked(num_cpus_per_worker=3)["extra_cpu"] == 2 + 2 * 3


def read_num_gpus_per_worker() -> None:
    assert asked(num_gpus_per_worker=0.5)["extra_gpu"] == 1.0


def read_memory_per_worker() -> None:
    quota = 2**33
    assert told({**SENSED, **CHILD}, memory_per_worker=quota)["quota"] == quota
    assert asked(memory_per_worker=quota)["extra_memory"] == 2 * quota


def read_extra_python_environs() -> None:
    assert told({**SENSED, **CHILD}, extra_python_environs={"SENSED": 5})["told"] == 5.0


def asked(**override: Any) -> dict[str, float]:
    """What a trainer with two children that collect and two that evaluate asks of a pool."""
    config = {"num_workers": 2, "evaluation_num_workers": 2, "evaluation_config": override}
    return PPO.default_resource_request({"env": "CartPole-v1", "evaluation_interval": 1, **config})


def test_T15_each_key_that_evaluation_reads_has_its_test() -> None:
    shown = {name.removeprefix("read_") for name in globals() if name.startswith("read_")}
    assert shown == {*READ, *READ_BY_CHILDREN}


@pytest.mark.slow
@pytest.mark.parametrize("key", [*READ, *READ_BY_CHILDREN])
def test_T15_what_evaluation_config_says_is_done(key: str) -> None:
    globals()[f"read_{key}"]()


@pytest.mark.parametrize("key", READ_BY_CHILDREN)
def test_T15_what_only_children_read_is_refused_without_them(key: str) -> None:
    value = default_config(Config)[key]
    with pytest.raises(ConfigError, match="set evaluation_num_workers to 1 or more") as caught:
        PPO.check_config({"env": "CartPole-v1", "evaluation_config": {key: value}})
    assert caught.value.place == f"evaluation_config.{key}"


@pytest.mark.parametrize("key", ALWAYS)
def test_T15_what_is_the_same_in_every_evaluation_may_be_said_and_not_changed(key: str) -> None:
    value, why = ALWAYS[key]
    PPO.check_config({"env": "CartPole-v1", "evaluation_config": {key: value}})
    with pytest.raises(ConfigError, match=why) as caught:
        PPO.check_config({"env": "CartPole-v1", "evaluation_config": {key: "other"}})
    assert caught.value.place == f"evaluation_config.{key}"


@pytest.mark.parametrize(
    "key", sorted(set(known_keys(Config)) - {*READ, *READ_BY_CHILDREN, *ALWAYS})
)
def test_T15_what_no_evaluation_reads_is_refused_with_the_reason(key: str) -> None:
    value = default_config(Config)[key]
    with pytest.raises(ConfigError) as caught:
        PPO.check_config({"env": "CartPole-v1", "evaluation_config": {key: value}})
    assert caught.value.place == f"evaluation_config.{key}"
    why = WHY_NOT.get(key, "only training reads it")
    assert caught.value.problem == f"has no effect in an evaluation: {why}"


def test_T15_each_key_that_a_rollout_worker_reads_has_been_decided_on() -> None:
    kinds = get_type_hints(WorkerSpec, localns=dict.fromkeys(("LearnerSpec", "Rank"), object))
    sections = [kinds[one.name] for one in fields(WorkerSpec)]
    of_worker = {
        key
        for kind in sections
        if isinstance(kind, type) and issubclass(kind, Section)
        for key in kind.model_fields
    } | {"seed", "gamma", "callbacks"}
    # Of these sections only the trainer's own process reads:
    of_trainer = {
        *("log_sys_usage", "memory", "num_cpus_for_driver", "num_gpus", "object_store_memory"),
        *("tf_session_args", "local_tf_session_args"),
    }
    decided = [*READ, *READ_BY_CHILDREN, *ALWAYS, *WHY_NOT]
    assert len(decided) == len(set(decided))
    assert set(decided) <= set(known_keys(Config))
    assert of_worker - of_trainer <= set(decided)
    assert {"horizon", "clip_actions", "extra_python_environs", "log_level"} <= of_worker

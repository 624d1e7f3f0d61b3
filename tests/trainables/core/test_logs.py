"""What a trainer tells of itself: times, one-time logs, metrics, the length of an iteration."""

import logging
import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest

from tests.support.trainers import differences, make, run, stable
from trainables.algorithms.ppo import PPO
from trainables.core import logs
from trainables.core.logs import OneTimeLog, summary
from trainables.core.results import VOLATILE_KEYS
from trainables.errors import ConfigError
from trainables.rollout.episodes.metrics import RolloutMetrics
from trainables.rollout.progress import PARTS, MetricsConfig, PerfConfig, PerfStats, Progress
from trainables.rollout.workers.worker_set import LocalWorkers

PERF_KEYS = {f"mean_{part}_ms" for part in PARTS}
QUIET: dict[str, Any] = {"evaluation_interval": None}


def test_P1_E1_every_result_holds_mean_times_that_no_comparison_looks_at() -> None:
    trainer = make(QUIET)
    result = trainer.train()
    assert set(result["sampler_perf"]) == PERF_KEYS
    assert all(value > 0 for value in result["sampler_perf"].values())
    # A part of the sampling cannot have lasted longer than all of it.
    ticks = result["timesteps_this_iter"] / 3
    assert sum(result["sampler_perf"].values()) * ticks < result["timers"]["sample_time_ms"]
    assert {"sampler_perf", "perf"} <= VOLATILE_KEYS
    assert "sampler_perf" not in str(trainer.get_state())
    trainer.stop()


def test_P1_times_are_means_over_all_ticks() -> None:
    stats = PerfStats(PerfConfig())
    assert stats.means() == {}
    stats.add(0.0, 1.0, 3.0, 6.0, 10.0)
    stats.add(10.0, 13.0, 13.0, 13.0, 13.0)
    assert stats.means() == {
        "mean_raw_obs_processing_ms": 2000.0,
        "mean_inference_ms": 1000.0,
        "mean_action_processing_ms": 1500.0,
        "mean_env_wait_ms": 2000.0,
    }


def test_E1_times_are_moving_averages_where_a_weight_is_set() -> None:
    stats = PerfStats(PerfConfig(sampler_perf_stats_ema_coef=0.25))
    for seconds in (4.0, 8.0, 0.0):
        stats.add(0.0, seconds, seconds, seconds, seconds)
    moved = 0.75 * (0.75 * 4.0 + 0.25 * 8.0)
    assert stats.means()["mean_raw_obs_processing_ms"] == pytest.approx(1e3 * moved)
    assert stats.means()["mean_env_wait_ms"] == 0.0


@pytest.mark.parametrize("coefficient", [None, 0.25, 1.0])
def test_time_for_several_steps_together_counts_as_if_each_had_taken_its_share(
    coefficient: float | None,
) -> None:
    config = PerfConfig(sampler_perf_stats_ema_coef=coefficient)
    together, apart = PerfStats(config), PerfStats(config)
    for ticks in (2, 3, 1):
        for _ in range(ticks):
            together.add(0.0, 1.0, 3.0, 4.0, 5.0)
            apart.add(0.0, 1.0, 3.0 + ticks, 4.0 + ticks, 5.0 + ticks)
        together.add_deciding(ticks * ticks, ticks)
        assert together.means() == pytest.approx(apart.means())


def test_K6_an_iteration_goes_on_until_it_has_so_many_steps() -> None:
    one, many = make(QUIET), make({**QUIET, "timesteps_per_iteration": 97})
    result = many.train()
    assert result["timesteps_this_iter"] == 2 * 96
    first, second = run(one, 2)
    assert result["learner"] == second["learner"]
    assert (
        result["episodes_this_iter"] == first["episodes_this_iter"] + second["episodes_this_iter"]
    )
    assert result["episode_reward_mean"] == second["episode_reward_mean"]
    assert many.exactness == "A exact state"
    one.stop()
    many.stop()


def test_K6_an_iteration_that_a_clock_ends_lasts_so_long_and_says_that_it_is_inexact() -> None:
    trainer = make({**QUIET, "min_iter_time_s": 0.3})
    result = trainer.train()
    assert result["time_this_iter_s"] >= 0.3
    assert result["timesteps_this_iter"] > 96
    assert result["timesteps_this_iter"] % 96 == 0
    assert trainer.exactness == "D not bit-exact: a clock steers (min_iter_time_s)"
    trainer.stop()


def test_T23_B11_metrics_can_be_asked_for_again_and_of_some_workers() -> None:
    trainer = make(
        {**QUIET, "num_workers": 2, "rollout_fragment_length": 40, "train_batch_size": None}
    )
    result = trainer.train()
    everything = trainer.collect_metrics()
    assert differences(everything, {key: result[key] for key in everything}) == []
    halves = [trainer.collect_metrics([index]) for index in (0, 1)]
    for name in ("timesteps_this_iter", "episodes_this_iter"):
        assert sum(half[name] for half in halves) == everything[name]
    rewards = [half["hist_stats"]["episode_reward"] for half in halves]
    assert rewards[0] + rewards[1] == everything["hist_stats"]["episode_reward"]
    assert halves[1]["episode_reward_mean"] == np.mean(rewards[1])
    trainer.stop()


def test_B11_a_worker_gives_the_metrics_of_its_latest_sample() -> None:
    trainer = make({**QUIET, "num_envs_per_worker": 3, "rollout_fragment_length": 32})
    assert isinstance(trainer.workers, LocalWorkers)
    (sample,) = trainer.workers.sample()
    episodes, perf = trainer.workers.worker.get_metrics()
    assert episodes == sample.episodes
    assert len(episodes) > 0
    assert perf == sample.perf
    trainer.stop()


def test_P10_a_finished_episode_has_its_length_reward_and_what_callbacks_wrote() -> None:
    one = RolloutMetrics(7.0, 3, custom_metrics={"x": 1.0}, hist_data={"h": [1.0, 2.0]})
    progress = Progress(MetricsConfig(metrics_smoothing_episodes=2))
    progress.count(1, 10, [RolloutMetrics(9.0, 1), one], {})
    progress.count(0, 10, [RolloutMetrics(5.0, 1, faulty=True), one], {})
    told = progress.collect()
    assert told["episode_reward_mean"] == 7.0
    assert told["custom_metrics"] == {"x_mean": 1.0, "x_min": 1.0, "x_max": 1.0}
    assert told["hist_stats"] == {
        "episode_reward": [9.0, 7.0, 7.0],
        "episode_lengths": [1, 3, 3],
        "h": [1.0, 2.0, 1.0, 2.0],
    }
    assert (told["num_faulty_episodes"], told["episodes_this_iter"]) == (1, 3)
    again = Progress(MetricsConfig(metrics_smoothing_episodes=2))
    again.set_state(progress.get_state())
    assert again.collect([1])["custom_metrics"] == {"x_mean": 1.0, "x_min": 1.0, "x_max": 1.0}
    assert again.collect()["episodes_total"] == 3


def test_episodes_without_custom_metrics_come_back_from_checkpoints_old_and_new() -> None:
    progress = Progress(MetricsConfig())
    progress.count(0, 10, [RolloutMetrics(9.0, 1)], {})
    progress.count(2, 10, [RolloutMetrics(7.0, 3)], {})
    state = progress.get_state()
    assert state["window"]["custom_metrics"] == []
    old = {**state, "window": {**state["window"], "custom_metrics": [{}, {}]}}
    for saved in (state, old):
        again = Progress(MetricsConfig())
        again.set_state(saved)
        assert again.collect()["episode_len_mean"] == 2.0
        assert again.collect()["episode_reward_mean"] == 8.0
        assert again.collect([2])["episode_reward_mean"] == 7.0


SUBJECTS = (
    "worker 0: spaces",
    "worker 0: sample asked for",
    "worker 0: raw observations",
    "worker 0: infos",
    "worker 0: policy inputs",
    "worker 0: policy outputs",
    "worker 0: sample batch",
    "worker 0: filters",
    "worker 0: policy",
    "trainer: training batch",
    "trainer: gradients",
    "trainer: training output",
)


def test_B5_the_data_are_told_of_once_as_shapes_and_bounds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    trainer = make(QUIET)
    run(trainer, 3)
    told = [one.getMessage() for one in caplog.records if one.name == logs.logger.name]
    for subject in SUBJECTS:
        assert sum(line.startswith(f"{subject}: ") for line in told) == 1, subject
    batch = next(line for line in told if "training batch" in line)
    assert "observations: float32 (96, 4) min " in batch
    assert " mean " in batch
    trainer.stop()


@pytest.mark.parametrize("env", ["agents:Targets", "external:Counting", "external:Roles"])
def test_P1_every_part_of_a_step_is_timed_where_agents_come_and_go(env: str) -> None:
    policies = {"policies": ["shared"]}
    more = {} if env.endswith("Counting") else {"multiagent": policies}
    config = {"env": f"tests.support.{env}", "rollout_fragment_length": 40, **more}
    trainer = PPO({**config, "train_batch_size": 40, "sgd_minibatch_size": 10})
    times = trainer.train()["sampler_perf"]
    trainer.stop()
    assert set(times) >= {
        f"mean_{one}_ms" for one in ("raw_obs_processing", "inference", "env_wait")
    }
    assert all(ms > 0 for ms in times.values()), times


def test_B5_of_several_policies_the_data_of_each_are_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = {"env": "tests.support.agents:Informed", "rollout_fragment_length": 10}
    agents = {"policies": ["left", "right", "brief"]}
    with caplog.at_level("INFO"):
        trainer = PPO({**config, "sgd_minibatch_size": 10, "multiagent": agents})
        run(trainer, 3)
        trainer.stop()
    told = [one.getMessage() for one in caplog.records if one.name == logs.logger.name]
    alone = ("spaces", "sample asked for", "infos", "connectors", "filters", "policy")
    each = ("raw observations", "policy inputs", "policy outputs", "sample batch")
    subjects = [f"worker 0: {one}" for one in alone]
    for pid in agents["policies"]:
        subjects += [f"worker 0: {one} of policy {pid}" for one in each]
        subjects += [f"trainer, policy {pid}: {one[9:]}" for one in SUBJECTS[-3:]]
    assert sorted(re.match(r"[^:]*: [^:]*", line)[0] for line in told) == sorted(subjects)  # type: ignore[index]
    (spaces,) = [line for line in told if line.startswith("worker 0: spaces: ")]
    assert "left: {observation: 'Discrete(3)', action: 'Discrete(3)'}" in spaces
    (connectors,) = [line for line in told if line.startswith("worker 0: connectors: ")]
    assert "left: FlatteningPreprocessor, rows, NoFilter, policy, clip" in connectors
    rounded = [one for one in caplog.records if "train_batch_size" in one.getMessage()]
    assert len(rounded) <= 1


def test_W2_the_level_is_the_package_loggers(caplog: pytest.LogCaptureFixture) -> None:
    trainer = make({**QUIET, "log_level": "WARN"})
    trainer.train()
    assert logging.getLogger("trainables").level == logging.WARNING
    assert caplog.records == []
    trainer.stop()
    with pytest.raises(ConfigError, match="log_level"):
        make({"log_level": "LOUD"})


def test_W3_only_one_worker_tells_and_debug_tells_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG, logger="trainables"):
        off, on = OneTimeLog("worker 1", is_on=False), OneTimeLog("worker 0")
        for _ in range(2 * logs.PERIOD + 1):
            off.begin_round()
            on.begin_round()
            off("data", 1)
            on("data", np.arange(3))
    told = [(one.levelname, one.getMessage()) for one in caplog.records]
    words = "worker 0: data: int64 (3,) min 0 max 2 mean 1"
    assert told == [("INFO", words), ("DEBUG", words), ("DEBUG", words)]


def test_W3_a_child_tells_where_its_trainer_does_and_only_the_first(
    capfd: pytest.CaptureFixture[str],
) -> None:
    trainer = make({**QUIET, "num_workers": 2, "train_batch_size": None})
    trainer.train()
    trainer.stop()
    told = capfd.readouterr().err
    assert "INFO rollout worker 0: worker 0: sample batch: " in told
    assert "worker 1" not in told


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.zeros((0, 2)), "float64 (0, 2)"),
        ({"a": 1, "b": [1.0, 3.0]}, "{a: 1, b: float64 (2,) min 1 max 3 mean 2}"),
        (object(), "object"),
        (RolloutMetrics(1.0, 2), "total_reward: 1.0, length: 2"),
    ],
)
def test_B5_whatever_is_told_of_has_a_summary(value: Any, words: str) -> None:
    assert words in summary(value)


def test_K1_the_use_of_the_machine_stands_in_the_result_unless_switched_off() -> None:
    trainer = make(QUIET)
    assert set(trainer.train()["perf"]) == {"cpu_util_percent", "ram_util_percent"}
    assert "perf" not in stable(trainer.train())
    trainer.stop()
    trainer = make({**QUIET, "log_sys_usage": False})
    assert "perf" not in trainer.train()
    trainer.stop()


def test_K1_the_use_of_the_machine_is_read_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1e9]
    reads: list[float] = []

    def read(interval: None) -> float:
        reads.append(now[0])
        return 7.0

    monkeypatch.setattr(logs, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(psutil, "cpu_percent", read)
    config = logs.LogConfig()
    first = logs.system_usage(config)
    first["perf"]["cpu_util_percent"] = 0.0  # a result is its owner's
    assert logs.system_usage(config)["perf"]["cpu_util_percent"] == 7.0
    assert len(reads) == 1
    now[0] += 1.0
    logs.system_usage(config)
    assert len(reads) == 2


def test_B5_what_is_costly_to_make_is_made_only_when_it_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made: list[int] = []

    def gradients() -> dict[str, Any]:
        made.append(1)
        return {"x": np.ones(2)}

    log = OneTimeLog("trainer")
    with caplog.at_level(logging.INFO, logs.PACKAGE):
        for _ in range(3):
            log("gradients", gradients)
    assert len(made) == 1
    assert "x: float64 (2,) min 1 max 1 mean 1" in caplog.text

"""A whole trainer in slices: filter, evaluation and child processes, the same however it is cut."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sweep.history.events import End, Goal, Saved
from sweep.pools import loky
from sweep.slices import cache
from sweep.slices.messages import SliceOutcome, SliceSpec
from sweep.slices.slice import run_slice
from tests.support.slices import slice_spec
from tests.support.sweeps import curve, history, make, plain, run, stable
from trainables.checkpoint import file

CONFIG = {
    "env": "CartPole-v1",
    "learner": "torch",  # so that every process has imported torch, whose stream is compared
    "num_workers": 2,
    "num_envs_per_worker": 2,
    "rollout_fragment_length": 16,
    "train_batch_size": 64,
    "sgd_minibatch_size": 32,
    "num_sgd_iter": 2,
    "observation_filter": "MeanStdFilter",
    "evaluation_interval": 2,
    "evaluation_num_episodes": 2,
    "model": {"hidden": [8, 8]},
}
ITERATIONS = 4

Result = tuple[list[dict[str, Any]], Any]


def spec_in(folder: Path, **changes: Any) -> SliceSpec:
    values = {
        "trainable": "ppo",
        "goal": Goal(ITERATIONS),
        "metric": "episode_reward_mean",
        "sign": 1.0,
    }
    return slice_spec(folder, CONFIG, **{**values, **changes})


def result_of(folder: Path, outcomes: list[SliceOutcome]) -> Result:
    """The whole curve, and the final weights and streams."""
    newest = outcomes[-1].saved[-1]
    state = file.read(folder / newest.file, newest.digest).state
    rows = [stable(row.metrics) for outcome in outcomes for row in outcome.rows]
    return rows, plain({key: state[key] for key in ("trainable", "streams")})


def test_a_custom_metric_of_the_evaluation_is_what_a_sweep_compares(tmp_path: Path) -> None:
    watched = {"callbacks": "tests.support.callbacks:Measures", "evaluation_num_workers": 1}
    config = {**CONFIG, **watched, "num_workers": 0, "evaluation_interval": 1}
    folder = make(
        tmp_path,
        trainable="ppo",
        config=config,
        space={"lr": {"loguniform": [1e-4, 1e-2]}},
        metric="evaluation/custom_metrics/angle_mean",
        mode="max",
        trials=2,
        stop={"training_iteration": 2},
        scheduler="fifo",
        deterministic=None,
    )
    assert run(folder) == "finished"
    rows = [curve(folder, number)[-1].metrics for number in (0, 1)]
    angles = [float(one["evaluation/custom_metrics/angle_mean"]) for one in rows]
    assert angles[0] != angles[1]
    assert [trial.score_at() for trial in history(folder).trials] == angles


@pytest.fixture(autouse=True)
def cold() -> Iterator[None]:
    cache.forget()
    yield
    cache.forget()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Result:
    folder = tmp_path_factory.mktemp("alone")
    cache.forget()
    return result_of(folder, [run_slice(spec_in(folder))])


@pytest.mark.slow
def test_in_slices_of_one_iteration_each_restored_cold(alone: Result, tmp_path: Path) -> None:
    outcomes: list[SliceOutcome] = []
    sources: tuple[Saved, ...] = ()
    while not outcomes or outcomes[-1].end is End.TIME:
        cache.forget()
        spec = spec_in(tmp_path, slice_s=1e-9, sources=sources, number=len(outcomes))
        outcomes.append(run_slice(spec))
        sources = (outcomes[-1].saved[-1],)
    assert len(outcomes) == ITERATIONS
    assert result_of(tmp_path, outcomes) == alone


@pytest.mark.slow
def test_after_three_other_trials_in_the_same_worker(alone: Result, tmp_path: Path) -> None:
    for number in range(1, 4):
        other = spec_in(tmp_path / str(number), trial=number, seed=number, goal=Goal(1))
        run_slice(other)
    assert result_of(tmp_path / "this", [run_slice(spec_in(tmp_path / "this"))]) == alone


@pytest.mark.slow
def test_in_a_worker_of_the_pool_and_restored_in_another(alone: Result, tmp_path: Path) -> None:
    half = spec_in(tmp_path, goal=Goal(ITERATIONS // 2), paths=(str(Path.cwd()),))
    with closing(loky.Pool(1)) as pool:
        head = pool.submit(half).result(timeout=240)
    rest = replace(half, goal=Goal(ITERATIONS), sources=(head.saved[-1],), number=1)
    with closing(loky.Pool(1)) as pool:
        tail = pool.submit(rest).result(timeout=240)
    assert (head.end, tail.end, tail.source) == (End.GOAL, End.GOAL, ITERATIONS // 2)
    assert result_of(tmp_path, [head, tail]) == alone

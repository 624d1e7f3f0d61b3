"""Samplers give the rows that the scripts of their environments lead to, and no other ones."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.support.oracle import scripts
from tests.support.oracle.alone import AloneRun
from tests.support.oracle.compare import require_counted, require_episodes, require_fragments
from tests.support.oracle.drawing import draw_alone, draw_rules, stream_of
from tests.support.oracle.players import drawing
from tests.support.oracle.rows import Rules
from tests.support.oracle.workers import alone_spec, take_over
from tests.support.waiting import wait_until
from trainables.rollout.episodes.metrics import RolloutMetrics
from trainables.rollout.workers.worker import RolloutWorker


def require_alone(
    run: AloneRun, worker: RolloutWorker, twin: RolloutWorker | None = None, samples: int = 4
) -> None:
    """Compare samples of a worker, one after the other, with what the script leads to.

    With a `twin` this goes on after each sample where the worker stood, and the other way round.
    """
    for _ in range(samples):
        found, expected = worker.sample(), run.sample()
        require_episodes(found.episodes, expected.episodes)
        require_fragments(found.fragments, expected.fragments, worker.spec.columns)
        require_counted(worker._filters, ("observation", "reward"), run.policy)
        if twin is not None:
            take_over(worker, twin)
            worker, twin = twin, worker
    worker.close()


#: What differs from the plain rules.
ALONE: dict[str, dict[str, Any]] = {
    "plain": {},
    "clipped rewards": {"clip": 1.0},
    "signs of rewards": {"clip": True},
    "filter": {"filtered": True},
    "scaled rewards": {"scaled": True},
    "previous choice": {"previous": True},
    "previous number": {"previous": True, "kind": "interval", "filtered": True},
    "unfiltered": {"filtered": True, "scaled": True, "unfiltered": True, "previous": True},
    "horizon": {"horizon": 4},
    "soft horizon": {"horizon": 3, "soft": True},
    "no end": {"no_done": True},
    "one environment": {"envs": 1, "steps": 4},
    "second worker": {"worker": (1, 3)},
}


@pytest.mark.parametrize("whole", [False, True], ids=["fragments", "whole episodes"])
@pytest.mark.parametrize("name", ALONE)
def test_rows_of_one_agent_go_on_from_what_was_saved(
    name: str, whole: bool, folders: Iterator[Path]
) -> None:
    rules = Rules(**{"whole": whole, **ALONE[name]})
    script = draw_alone(stream_of("saved", name, whole), rules.envs)
    worker, twin = (RolloutWorker(alone_spec(script, rules, next(folders))) for _ in range(2))
    require_alone(AloneRun(script, rules), worker, twin, samples=5)


@pytest.mark.parametrize("whole", [False, True], ids=["fragments", "whole episodes"])
@pytest.mark.parametrize("name", ALONE)
def test_rows_of_one_agent_are_those_of_its_script(
    name: str, whole: bool, folders: Iterator[Path]
) -> None:
    rules = Rules(**{"whole": whole, **ALONE[name]})
    stream = stream_of("alone", name, whole)
    for folder in islice(folders, 2):
        script = draw_alone(stream, rules.envs)
        require_alone(AloneRun(script, rules), RolloutWorker(alone_spec(script, rules, folder)))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(60))
def test_rows_of_one_agent_are_those_of_its_script_whatever_the_rules(
    number: int, folders: Iterator[Path]
) -> None:
    stream = stream_of("rules of one", number)
    given = draw_rules(stream)
    soft = given["horizon"] is not None and bool(stream.random() < 0.5)
    rules, script = Rules(**given, soft=soft), draw_alone(stream, given["envs"], episodes=6)
    worker, twin = (RolloutWorker(alone_spec(script, rules, next(folders))) for _ in range(2))
    require_alone(AloneRun(script, rules), worker, twin, samples=6)


#: With an actor that draws and nobody who looks on; what is decided for a fragment at once.
DRAWN: dict[str, dict[str, Any]] = {
    "one environment": {"envs": 1, "steps": 8},
    "clipped rewards": {"envs": 1, "steps": 8, "clip": 1.0},
    "two environments": {},
    "filter": {"filtered": True},
    "scaled rewards": {"scaled": True},
    "horizon": {"horizon": 4},
    "soft horizon": {"envs": 1, "steps": 8, "horizon": 3, "soft": True},
    "no end": {"envs": 1, "steps": 8, "no_done": True},
}


@pytest.mark.parametrize("columns", [frozenset(), frozenset({"new_obs", "t"})], ids=["few", "more"])
@pytest.mark.parametrize("name", DRAWN)
def test_actions_of_rows_decided_together_equal_those_of_the_script(
    name: str, columns: frozenset[str], folders: Iterator[Path]
) -> None:
    rules, stream = Rules(**DRAWN[name]), stream_of("drawn", name)
    actor = drawing(stream)
    for folder in islice(folders, 2):
        script = draw_alone(stream, rules.envs)
        spec = replace(alone_spec(script, rules, folder), columns=columns, make_actor=lambda: actor)
        require_alone(AloneRun(script, rules, actor), RolloutWorker(spec))


@pytest.mark.parametrize("whole", [False, True], ids=["fragments", "whole episodes"])
def test_a_sampling_thread_gives_each_row_and_each_episode_once(
    whole: bool, folders: Iterator[Path]
) -> None:
    """Episodes come as soon as they have ended, so with a sample before their rows."""
    rules, stream = Rules(whole=whole, horizon=6), stream_of("thread")
    script = draw_alone(stream, rules.envs)
    spec = alone_spec(script, rules, next(folders))
    spec = replace(spec, sampling=spec.sampling.model_copy(update={"sample_async": True}))
    run, worker = AloneRun(script, rules), RolloutWorker(spec)
    expected = [run.sample() for _ in range(30)]
    ended = [one for sample in expected for one in sample.episodes]
    told: list[RolloutMetrics] = []
    try:
        for i in range(12):
            sample = worker.sample()
            require_fragments(sample.fragments, expected[i].fragments)
            told += sample.episodes
            require_episodes(told, ended[: len(told)])
            assert len(told) >= sum(len(one.episodes) for one in expected[: i + 1])
    finally:
        worker.close()


@pytest.mark.parametrize("blackhole", [False, True])
def test_a_sampling_thread_forgets_the_episodes_of_what_is_discarded(
    blackhole: bool, folders: Iterator[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scripts, "MOST_EPISODES", 10**9)  # the thread goes on until it is closed
    rules = Rules(horizon=6)
    script = draw_alone(stream_of("thread"), rules.envs)
    spec = alone_spec(script, rules, next(folders))
    own = {"sample_async": True, "fake_sampler": blackhole, "blackhole_outputs": blackhole}
    worker = RolloutWorker(replace(spec, sampling=spec.sampling.model_copy(update=own)))
    source = worker._async
    assert source is not None
    try:
        worker.sample()
        wait_until(lambda: len(source._episodes) > 2)
        with source.paused():
            source.discard()
            assert source.get_metrics() == []
            assert not source._results
    finally:
        worker.close()


@pytest.mark.slow
@pytest.mark.timeout(120)  # a sampler that asks nobody waits for ever
@pytest.mark.parametrize("horizon", [None, 4])
def test_rows_of_environments_that_are_polled_are_those_of_their_script(
    horizon: int | None, folders: Iterator[Path]
) -> None:
    """Ends of episodes are heard in any order."""
    rules, stream = Rules(horizon=horizon, scaled=False), stream_of("polled")
    polls = {"remote_worker_envs": True, "remote_env_batch_wait_ms": 1.0}
    script = draw_alone(stream, rules.envs)
    spec = alone_spec(script, rules, next(folders), **polls)
    run, worker = AloneRun(script, rules), RolloutWorker(spec)
    try:
        for _ in range(6):
            found, expected = worker.sample(), run.sample()
            require_fragments(found.fragments, expected.fragments)
            told = sorted(found.episodes)
            require_episodes(told, sorted(expected.episodes, key=lambda e: (e.total, e.length)))
    finally:
        worker.close()

"""Judgement of a run's trials: the same questions to every tool.

A tool's answer is a list of trials: index, whether it is done, ended, was charged with a failure,
the curve as it is reported, and the state of its newest checkpoint. What they must be is known.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.chaos import peer_curve

Trials = Sequence[Mapping[str, Any]]
#: Question → what a trouble it is; the order is that of the table.
QUESTIONS = {
    "lost": "trials never finished",
    "stuck": "trials that stay running or waiting for ever",
    "twice": "trials finished twice",
    "missing": "iterations missing in curves",
    "repeated": "iterations that stand twice in curves",
    "other_curve": "trials with another curve",
    "other_end": "trials with another final state",
}


def judge(trials: Trials, folder: Path) -> dict[str, int]:
    """Return the count of each trouble; `again`: iterations that were trained again."""
    done = [trial for trial in trials if trial["done"]]
    finished = Counter(trial["index"] for trial in done)
    steps = Counter((index, iteration) for index, iteration, _ in peer_curve.notes(folder))
    return {
        "lost": sum(not finished[index] for index in range(peer_curve.TRIALS)),
        "stuck": sum(not trial["ended"] for trial in trials),
        "twice": sum(count - 1 for count in finished.values()),
        "missing": sum(len(_all() - set(_iterations(trial))) for trial in done),
        "repeated": sum(_repeated(_iterations(trial)) for trial in done),
        "other_curve": sum(_differs(trial) for trial in done),
        "other_end": sum(
            trial["final"] != peer_curve.expected(trial["index"])[1] for trial in done
        ),
        "charged": sum(bool(trial["charged"]) for trial in trials),
        "again": sum(count - 1 for count in steps.values()),
    }


def _all() -> set[int]:
    return set(range(1, peer_curve.ITERATIONS + 1))


def _iterations(trial: Mapping[str, Any]) -> list[int]:
    return [iteration for iteration, _ in trial["curve"]]


def _repeated(iterations: Iterable[int]) -> int:
    return sum(count - 1 for count in Counter(iterations).values())


def _differs(trial: Mapping[str, Any]) -> bool:
    """Return whether a value is not, to the bit, that of the trial nobody disturbed."""
    losses = peer_curve.expected(trial["index"])[0]
    return any(loss != losses[iteration - 1] for iteration, loss in trial["curve"])

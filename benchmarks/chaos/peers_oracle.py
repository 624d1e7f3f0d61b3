"""Judgement of a run's trials by the same conditions for every tool.

The answer of a tool is a list of trials, each with its index, its reported curve, the state of its
newest checkpoint, and flags: completed (`done`), `ended`, and with a counted failure (`charged`).
The right values are known.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.chaos import peer_curve

Trials = Sequence[Mapping[str, Any]]
#: Name of an error → its description, in the order of the table.
ERRORS = {
    "lost": "trials never finished",
    "stuck": "trials that run or wait forever",
    "twice": "trials finished twice",
    "missing": "iterations missing in curves",
    "repeated": "iterations that curves contain twice",
    "other_curve": "trials with a wrong curve",
    "other_end": "trials with a wrong final state",
}


def judge(trials: Trials, folder: Path) -> dict[str, int]:
    """Return the count of each error, of counted failures, and of repeated iterations (`again`)."""
    done = [trial for trial in trials if trial["done"]]
    finished = Counter(trial["index"] for trial in done)
    steps = Counter((index, iteration) for index, iteration, _ in peer_curve.read_log(folder))
    return {
        "lost": sum(not finished[index] for index in range(peer_curve.TRIALS)),
        "stuck": sum(not trial["ended"] for trial in trials),
        "twice": sum(count - 1 for count in finished.values()),
        "missing": sum(len(_all_iterations() - set(_iterations(trial))) for trial in done),
        "repeated": sum(_repeated(_iterations(trial)) for trial in done),
        "other_curve": sum(_differs(trial) for trial in done),
        "other_end": sum(
            trial["final"] != peer_curve.expected(trial["index"])[1] for trial in done
        ),
        "charged": sum(bool(trial["charged"]) for trial in trials),
        "again": sum(count - 1 for count in steps.values()),
    }


def _all_iterations() -> set[int]:
    return set(range(1, peer_curve.ITERATIONS + 1))


def _iterations(trial: Mapping[str, Any]) -> list[int]:
    return [iteration for iteration, _ in trial["curve"]]


def _repeated(iterations: Iterable[int]) -> int:
    return sum(count - 1 for count in Counter(iterations).values())


def _differs(trial: Mapping[str, Any]) -> bool:
    """Return whether a value differs, in any bit, from that of the undisturbed trial."""
    losses = peer_curve.expected(trial["index"])[0]
    return any(loss != losses[iteration - 1] for iteration, loss in trial["curve"])

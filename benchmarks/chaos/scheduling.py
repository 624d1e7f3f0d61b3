"""Sweeps to which anything may happen, in any order; hypothesis looks for a claim that is false.

A case is `EXAMPLES` sweeps drawn under one seed: spec, scheduler and searcher, then what happens to
driver, workers, disk and database, and what people ask (`scheduling_machine`). What must be true
after each step stands in `scheduling_oracle`, at the end in `scheduling_end`. A line of a failed
case holds the smallest sweep that fails, and the words with which `replay` plays it again.
"""

import contextlib
import functools
import io
import re
import warnings
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

from hypothesis import HealthCheck, Phase, reproduce_failure, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from benchmarks.chaos.scheduling_machine import Scheduling
from benchmarks.chaos.store_cases import Cases, Failed, main

#: Sweeps of a case, and steps of a sweep.
EXAMPLES, STEPS = 200, 15

_BLOB = re.compile(r"reproduce_failure\('([^']+)', (b'[^']*')\)")


def run(out: Path, rounds: int, seed: int) -> int:
    """Return how many of `rounds` cases failed."""
    cases = Cases(out, "scheduling")
    for number in range(rounds):
        one = functools.partial(case, 1000 * seed + number, EXAMPLES)
        cases.run(f"seed {seed}, round {number}", one)
    return cases.close()


def case(chosen: int, examples: int, shrinks: bool = True) -> dict[str, Any]:
    """Draw some sweeps under one seed; returns how often what happened.

    Raises:
        Failed: a claim is false; with the example, made as small as can be if `shrinks`.
    """
    machine = _machine()
    _explore(seed(chosen)(machine), _settings(examples, shrinks))
    return dict(sorted(machine.happened.items()))


def replay(version: str, blob: bytes) -> None:
    """Play a failed example again; both stand in its line. Raises what it raised."""
    machine = _machine()
    _explore(reproduce_failure(version, blob)(machine), _settings(1, False))


def words_to_replay(failed: str) -> tuple[str, bytes]:
    """The arguments of `replay` in what was said of a failed case."""
    found = _BLOB.search(failed)
    if found is None:
        raise ValueError("there are no words to replay it")
    return found[1], found[2][2:-1].encode()


def _machine() -> type[Scheduling]:
    """One that has counted nothing yet."""

    class Drawn(Scheduling):
        happened: ClassVar[Counter[str]] = Counter()

    return Drawn


def _settings(examples: int, shrinks: bool) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        print_blob=True,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, *([Phase.shrink] if shrinks else [])],
    )


def _explore(machine: Any, chosen: settings) -> None:
    """Run the machine; its failure with all that hypothesis says of it."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    told = io.StringIO()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(told):
            warnings.simplefilter("ignore")
            run_state_machine_as_test(machine, settings=chosen)
    except Exception as error:
        within = error.exceptions if isinstance(error, ExceptionGroup) else ()
        notes = (*getattr(error, "__notes__", ()), *(f"within: {one!r}" for one in within))
        text = "\n".join((f"{type(error).__name__}: {error}", *notes, told.getvalue()))
        raise Failed(text) from error
    finally:
        optuna.logging.set_verbosity(before)


if __name__ == "__main__":
    main(run, rounds=100)

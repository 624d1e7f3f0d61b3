"""Random sweeps with random events; hypothesis searches a condition that does not hold.

A case consists of `EXAMPLES` random sweeps of one seed: spec, scheduler and searcher, then events
of driver, workers, disk and database, and requests of people (`scheduling_machine`). The conditions
after each step are in `scheduling_oracle`, those at the end in `scheduling_end`. The line of a
failed case contains the smallest failing sweep and the arguments of `replay`, which repeats it.
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

#: Number of sweeps in a case, and of steps in a sweep.
EXAMPLES, STEPS = 200, 15

_BLOB = re.compile(r"reproduce_failure\('([^']+)', (b'[^']*')\)")


def run(out: Path, rounds: int, seed: int) -> int:
    """Run `rounds` cases; return the number of failed ones."""
    cases = Cases(out, "scheduling")
    for number in range(rounds):
        one = functools.partial(case, 1000 * seed + number, EXAMPLES)
        cases.run(f"seed {seed}, round {number}", one)
    return cases.close()


def case(number: int, examples: int, shrinks: bool = True) -> dict[str, Any]:
    """Run random sweeps of one seed; return event → its number.

    Args:
        number: the seed.
        examples: number of sweeps.
        shrinks: True to reduce a failing sweep to the smallest one.

    Raises:
        Failed: a condition does not hold; the message contains the sweep.
    """
    machine = _machine()
    _run(seed(number)(machine), _settings(examples, shrinks))
    return dict(sorted(machine.happened.items()))


def replay(version: str, blob: bytes) -> None:
    """Repeat a failed sweep.

    Args:
        version: of hypothesis, from the line of the case.
        blob: the sweep, from the line of the case.

    Raises:
        Failed: the sweep fails again.
    """
    machine = _machine()
    _run(reproduce_failure(version, blob)(machine), _settings(1, False))


def replay_arguments(failed: str) -> tuple[str, bytes]:
    """Return the arguments of `replay` from the message of a failed case."""
    found = _BLOB.search(failed)
    if found is None:
        raise ValueError("the message contains no arguments of replay")
    return found[1], found[2][2:-1].encode()


def _machine() -> type[Scheduling]:
    """Return a new class of the state machine with its own counter."""

    class Counted(Scheduling):
        happened: ClassVar[Counter[str]] = Counter()

    return Counted


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


def _run(machine: Any, options: settings) -> None:
    """Run the machine.

    Raises Failed if the machine failed; the message contains the output of hypothesis.
    """
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    output = io.StringIO()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(output):
            warnings.simplefilter("ignore")
            run_state_machine_as_test(machine, settings=options)
    except Exception as error:
        within = error.exceptions if isinstance(error, ExceptionGroup) else ()
        notes = (*getattr(error, "__notes__", ()), *(f"within: {one!r}" for one in within))
        text = "\n".join((f"{type(error).__name__}: {error}", *notes, output.getvalue()))
        raise Failed(text) from error
    finally:
        optuna.logging.set_verbosity(before)


if __name__ == "__main__":
    main(run, rounds=100)

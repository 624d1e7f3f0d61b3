"""Runs of the cases: both sides alternately, each in a process; figures are stored at once."""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.speed import peers
from benchmarks.speed.cases import Case, Side

ROOT = Path(__file__).parents[2]
MEASURES = Path(__file__).with_name("measures")
#: Variables that give every side one thread for its arithmetic.
ALONE = {
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
    "SWEEP_ATTACH": "later",  # no command leaves a process that would slow the next one
}
#: Variables that are removed, because a library would not choose the fastest code for this
#: processor, or Python would compile modules at every start.
REMOVED = (
    "OPENBLAS_CORETYPE",
    "OPENBLAS_L2_SIZE",
    "MKL_DEBUG_CPU_TYPE",
    "MKL_ENABLE_INSTRUCTIONS",
    "MKL_CBWR",
    "ATEN_CPU_CAPABILITY",
    "XLA_FLAGS",
    "PYTHONDONTWRITEBYTECODE",
)
RUNS = ROOT / "build" / "speed" / "runs.jsonl"


@dataclass(frozen=True)
class Pair:
    """Figures of one run of ours and of the run of the other side next to it."""

    ours: float
    other: float


@dataclass(frozen=True)
class Figures:
    """All pairs of runs of a case."""

    case: Case
    pairs: Sequence[Pair]
    failure: str = ""
    """Reason why there are no more pairs; empty if no run failed."""

    @property
    def ratio(self) -> float:
        """Median of the pairs' ratios."""
        return statistics.median(self.case.ratio(one.ours, one.other) for one in self.pairs)

    @property
    def spread(self) -> tuple[float, float]:
        """Smallest and largest ratio of a pair."""
        ratios = [self.case.ratio(one.ours, one.other) for one in self.pairs]
        return min(ratios), max(ratios)

    def median(self, side: str) -> float:
        """Return the median figure of a side: ``ours`` or ``other``."""
        return float(statistics.median(getattr(one, side) for one in self.pairs))


def measure(side: Side) -> float:
    """Return the figure of one side; it raises the errors of `run_side`."""
    return float(run_side(side)["value"])


def run_side(side: Side) -> dict[str, Any]:
    """Run the program of one side and return the line of JSON that it prints.

    Raises RuntimeError if the program failed; the message is its last line.
    """
    interpreter = str(peers.interpreter_of(side.group)) if side.group else sys.executable
    # The other checkout may lack this measure, so it is run by its path. -P: without its folder.
    by_name = ["-m", f"benchmarks.speed.measures.{side.module}"]
    program = ["-P", str(MEASURES / f"{side.module}.py")] if side.root else by_name
    command = [interpreter, "-W", "ignore", *program]
    root = side.root or str(ROOT)
    own = {name: value for name, value in os.environ.items() if name not in REMOVED}
    process = subprocess.run(  # noqa: S603 our own module
        [*command, *side.arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=root,
        env={**own, **ALONE, "PYTHONPATH": root},
    )
    if process.returncode:
        last = (process.stderr.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
        raise RuntimeError(f"{side.module} {' '.join(side.arguments)}: {last}")
    row: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    return row


def version(root: Path = ROOT) -> str:
    """Return the commit of a checkout, marked as dirty if there are uncommitted changes."""
    shown = subprocess.run(
        ["git", "describe", "--always", "--dirty"],  # noqa: S607
        capture_output=True,
        text=True,
        check=True,
        cwd=root,
    )
    return shown.stdout.strip()


def stored_pairs(commit: str) -> Iterator[tuple[str, Pair]]:
    """Yield (name of the case, pair) of earlier runs of this commit; skip a truncated line."""
    lines = RUNS.read_text(encoding="utf-8").splitlines() if RUNS.exists() else []
    for line in lines:
        if line.endswith("}"):
            row = json.loads(line)
            if row["version"] == commit:
                yield row["case"], Pair(row["ours"], row["other"])


def run(cases: Sequence[Case], runs: int) -> list[Figures]:
    """Return the figures of all cases, with `runs` pairs each, including those of earlier runs.

    Cases that are only drawn need a third of the pairs.
    """
    commit = version()
    RUNS.parent.mkdir(parents=True, exist_ok=True)
    figures = []
    for number, case in enumerate(cases, 1):
        pairs = [pair for name, pair in stored_pairs(commit) if name == case.name]
        wanted, failure = -(-runs // 3) if case.is_only_drawn else runs, ""
        while len(pairs) < wanted:
            sys.stderr.write(
                f"{number} of {len(cases)}: {case.title}, pair {len(pairs) + 1} of {wanted}\n"
            )
            first, second = (case.ours, case.other) if len(pairs) % 2 else (case.other, case.ours)
            try:
                value = {one: measure(one) for one in (first, second)}
            except RuntimeError as error:
                failure = str(error)
                break
            pair = Pair(value[case.ours], value[case.other])
            pairs.append(pair)
            with RUNS.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"version": commit, "case": case.name, **vars(pair)}) + "\n")
        figures.append(Figures(case, pairs, failure))
    return figures

"""Runs the sides of a case in turn, each in a process of its own, and keeps each figure at once."""

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
#: One thread for the arithmetic of every side.
ALONE = {
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
    "SWEEP_ATTACH": "later",  # no command leaves a process that the next one is measured beside
}
#: Variables that make a library compute otherwise than it would on this processor, or a program
#: compile its modules at every start.
CHOSEN = (
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
    """One run of ours and, next to it in time, one of the other."""

    ours: float
    other: float


@dataclass(frozen=True)
class Figures:
    """All pairs of a case."""

    case: Case
    pairs: Sequence[Pair]
    failure: str = ""
    """Why there are no more pairs; empty: nothing failed."""

    @property
    def ratio(self) -> float:
        """Median of the pairs' ratios."""
        return statistics.median(self.case.ratio(one.ours, one.other) for one in self.pairs)

    @property
    def spread(self) -> tuple[float, float]:
        """Least and greatest ratio of a pair."""
        ratios = [self.case.ratio(one.ours, one.other) for one in self.pairs]
        return min(ratios), max(ratios)

    def median(self, side: str) -> float:
        """Median of ``ours`` or ``other``."""
        return float(statistics.median(getattr(one, side) for one in self.pairs))


def measure(side: Side) -> float:
    """The figure of one side; see `ask`."""
    return float(ask(side)["value"])


def ask(side: Side) -> dict[str, Any]:
    """The line of JSON that one side prints.

    Raises:
        RuntimeError: the program failed; the message is its last line.
    """
    interpreter = str(peers.python(side.group)) if side.group else sys.executable
    # By its path, as the other checkout may have no such measure, and never with what lies beside.
    named = ["-m", f"benchmarks.speed.measures.{side.module}"]
    program = ["-P", str(MEASURES / f"{side.module}.py")] if side.root else named
    command = [interpreter, "-W", "ignore", *program]
    root = side.root or str(ROOT)
    own = {name: value for name, value in os.environ.items() if name not in CHOSEN}
    ran = subprocess.run(  # noqa: S603 our own module
        [*command, *side.arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=root,
        env={**own, **ALONE, "PYTHONPATH": root},
    )
    if ran.returncode:
        last = (ran.stderr.strip().splitlines() or [f"exit code {ran.returncode}"])[-1]
        raise RuntimeError(f"{side.module} {' '.join(side.arguments)}: {last}")
    told: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return told


def version(root: Path = ROOT) -> str:
    """The commit that is measured; with changes that are not committed, so marked."""
    shown = subprocess.run(
        ["git", "describe", "--always", "--dirty"],  # noqa: S607
        capture_output=True,
        text=True,
        check=True,
        cwd=root,
    )
    return shown.stdout.strip()


def kept(at: str) -> Iterator[tuple[str, Pair]]:
    """(case, pair) of earlier runs of this version; a torn last line is left out."""
    lines = RUNS.read_text(encoding="utf-8").splitlines() if RUNS.exists() else []
    for line in lines:
        if line.endswith("}"):
            row = json.loads(line)
            if row["version"] == at:
                yield row["case"], Pair(row["ours"], row["other"])


def run(cases: Sequence[Case], runs: int) -> list[Figures]:
    """So many pairs of every case (a third where it is only drawn); those of earlier runs count."""
    at = version()
    RUNS.parent.mkdir(parents=True, exist_ok=True)
    figures = []
    for number, case in enumerate(cases, 1):
        pairs = [pair for name, pair in kept(at) if name == case.name]
        wanted, failure = -(-runs // 3) if case.only_drawn else runs, ""
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
                file.write(json.dumps({"version": at, "case": case.name, **vars(pair)}) + "\n")
        figures.append(Figures(case, pairs, failure))
    return figures

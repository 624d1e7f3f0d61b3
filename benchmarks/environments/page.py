"""The page of environments: its introduction, and a table for each group."""

import os
import platform
from collections.abc import Sequence
from importlib import metadata
from typing import Any

GROUPS = {
    "classic_control": "Classic control",
    "toy_text": "Toy text",
    "box2d": "Box2D",
    "mujoco": "MuJoCo",
}
OTHERS = "Other packages"
PACKAGES = (
    "gymnasium",
    "mujoco",
    "box2d",
    "ale-py",
    "gymnasium-robotics",
    "minigrid",
    "highway-env",
    "numpy",
    "torch",
)
HEADING = "\n## "


Row = dict[str, Any]
"""The measurements of one environment."""

INTRODUCTION = """\
# Environments

A checkpoint restores most common environments exactly (levels A and B), and PPO can train on nearly
all listed environments. The tables show levels and speeds; `sweep check-env ENV` measures any
environment.

| level | a restored trial |
| --- | --- |
| A | equals the uninterrupted trial: the checkpoint contains the environment's whole state |
| B | equals the uninterrupted trial: the unfinished episode is replayed from its seed and actions |
| C | drops the unfinished episode and starts the next one from a derived seed |
| D | is restored as at level C, and even two uninterrupted runs differ |

`python -m benchmarks.environments` writes this page. Speeds are for random actions on one core of
one machine ({machine}), one environment at a time, in CPU time. A speed measurement ends after 10
s. Environments with fewer than 100 steps/s are trained for 32 steps per iteration, others for 128.
The column *resumed* compares every number of three iterations of a restored trainer: at levels A
and B with the uninterrupted trainer, at C and D with a second restored trainer. The function
`minigrid` in `benchmarks/wrapped.py` shows how to wrap an environment.

When its first trial starts, a sweep measures the environment's level: a separate process steps
copies of the environment side by side and compares every number. The ledger (the sweep's database)
and each checkpoint contain the level; the setting `env_level` requests another level. If a call of
an environment's method takes longer than `env_measure_timeout_s`, the trial ends with an error that
names the call. An environment that uses threads, other processes or clocks is measured three times
with pauses, and the lowest level counts. The levels of gymnasium 1.4.0's classic control
environments are built in, so trials do not measure them.

At level B every episode starts in a newly created environment, so training is slow if creating the
environment is slow, and an environment that changes from episode to episode (a curriculum) never
advances. If the measurement detects such changes, the level is C; `env_level: B` selects level B
nevertheless. Unfinished episodes of more than `env_replay_limit` steps are dropped instead of
replayed.
"""


def page(rows: Sequence[tuple[str, Row]], batch_modes: Sequence[str]) -> str:
    """Return the whole page."""
    lines = [INTRODUCTION.format(machine=_machine())]
    return "\n".join(lines + sections(rows, batch_modes)) + "\n"


def sections(rows: Sequence[tuple[str, Row]], batch_modes: Sequence[str]) -> list[str]:
    """Return the lines of each group that has rows: title, table and load of the machine."""
    lines: list[str] = []
    modes = [f"sampled, {mode}" for mode in batch_modes]
    titles = [
        "environment",
        "level",
        "steps/s",
        "in 8 environments",
        "saved bytes",
        *modes,
        "resumed",
    ]
    for group in (*GROUPS.values(), OTHERS):
        mine = [row for name, row in rows if name == group]
        if mine:
            lines += [f"\n## {group}\n", _line(titles), _line(["---"] * len(titles))]
            lines += [_line(_cells(row, batch_modes)) for row in mine]
            loads = [row["load"] for row in mine]
            lines.append(
                f"\nThe machine's load meanwhile: {min(loads):.1f} to {max(loads):.1f} on "
                f"{os.cpu_count()} cores."
            )
    return lines


def replace_section(old: str, rows: Sequence[tuple[str, Row]], batch_modes: Sequence[str]) -> str:
    """Return the page `old` with the current introduction and with one section replaced.

    Args:
        rows: (group, row) of the section's environments, all of one group.
        batch_modes: those that were measured.
    """
    fresh = page(rows, batch_modes)
    introduction, _, section = fresh.partition(HEADING)
    title = section.partition("\n")[0]
    kept = old.split(HEADING)[1:]
    after = [section if one.partition("\n")[0] == title else f"{one.rstrip()}\n" for one in kept]
    return HEADING.join([introduction, *after])


def _cells(row: Row, batch_modes: Sequence[str]) -> list[str]:
    if reason := row.get("error") or row["unsupported"]:
        empty = [""] * (4 + len(batch_modes))
        return [f"`{row['env']}`", row.get("level") or "", *empty[1:], f"not supported: {reason}"]
    costs = [_number(row[k]) for k in ("steps_per_s", "steps_per_s_in_8", "saved_bytes")]
    sampled = [row[f"sampled: {mode}"] for mode in batch_modes]
    return [f"`{row['env']}`", row["level"], *costs, *sampled, row["resumed"]]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _line(cells: Sequence[str]) -> str:
    words = [" ".join(cell.split()).replace("|", "\\|")[:500] for cell in cells]
    return f"| {' | '.join(words)} |"


def _machine() -> str:
    versions = []
    for name in PACKAGES:
        try:
            versions.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return f"{platform.machine()}, Python {platform.python_version()}, {', '.join(versions)}"

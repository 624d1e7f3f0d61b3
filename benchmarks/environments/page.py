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

How exactly each environment comes back from a checkpoint, how fast it is, and whether PPO trains
on it. Made by `python -m benchmarks.environments`; `sweep check-env ENV` measures one. Speeds are
those of random actions on one core of the machine that made this page ({machine}), one
environment after the other; time in which other programs had that core is not counted. A measure of
speed ends after 10 s, and an environment of fewer than 100 steps/s is trained with 32 steps an
iteration, others with 128. `benchmarks.wrapped:minigrid` is a function in `benchmarks/wrapped.py`:
so an environment gets a wrapper of one's own, here one that turns the mission's words into numbers.

| level | a restored trial |
| --- | --- |
| A | equals the uninterrupted one: the environment's whole state is in the checkpoint |
| B | equals the uninterrupted one: the episode in flight is replayed from its seed and actions |
| C | drops the episode in flight; the next one begins from a derived seed |
| D | likewise, and no two runs are equal anyway |

The level is measured when a trial begins, once in a sweep for all trials of the same environment,
and stands in the ledger and in each checkpoint: copies are stepped beside each other and every
number is compared. `env_level` asks for a weaker one, or for B instead of A. That happens in a
process of its own, beside the trainer's start; a call that does not come back within
`env_measure_timeout_s` is named and ends the trial. An environment that cannot be sent to another
process, such as a function that holds a lock, is measured in the trainer's own, which ends should
it hang. Gymnasium's classic control, as gymnasium 1.4.0 registers it, was measured before and is
measured again by a test, so no trial waits for it; `sweep check-env` measures it all the same.
Threads, other processes and clocks hint at chance: then it is measured three times, with
pauses, and the weakest level counts.

At level B every episode begins in an environment made anew, because an object that has played an
episode may not repeat what a new one does. That is slower where making is slow, and an
environment that changes from episode to episode (a curriculum) would forget. Where such a memory
is seen, the level is C; `env_level: B` overrides that. An episode of more than `env_replay_limit`
steps is dropped on restore, and the log says so.

*Resumed*: a trainer is saved after one iteration and restored into another one, and every number
of its next three is compared: at A and B with the uninterrupted trainer, at C and D with a second
restored one.
"""


def page(rows: Sequence[tuple[str, Row]], batch_modes: Sequence[str]) -> str:
    """The whole page."""
    lines = [INTRODUCTION.format(machine=_machine())]
    return "\n".join(lines + sections(rows, batch_modes)) + "\n"


def sections(rows: Sequence[tuple[str, Row]], batch_modes: Sequence[str]) -> list[str]:
    """Title and table of each group that has rows."""
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


def renewed(old: str, rows: Sequence[tuple[str, Row]], batch_modes: Sequence[str]) -> str:
    """The page `old` with this introduction, and the one section of these rows in its place."""
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

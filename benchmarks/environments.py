"""What is measured of each environment that can be made here; writes docs/environments.md.

    python benchmarks/environments.py [--only PART] [--section TITLE] [--also ID …]
                                      [--batch-mode MODE …]

Every environment is measured in a process of its own, one after the other, with progress on
standard error. An environment that is not supported, or fails, is a row with the reason. With
``--section`` the page's other sections stay as they are.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import gymnasium

PAGE = Path(__file__).parents[1] / "docs" / "environments.md"
GROUPS = {
    "classic_control": "Classic control",
    "toy_text": "Toy text",
    "box2d": "Box2D",
    "mujoco": "MuJoCo",
}
OTHERS = "Other packages"
ALSO = (
    "ALE/Pong-v5",
    "gymnasium_robotics:PointMaze_UMaze-v3",
    "minigrid:MiniGrid-Empty-5x5-v0",
    "wrapped:minigrid",
    "highway_env:highway-v0",
)
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
BATCH_MODES = ("truncate_episodes", "complete_episodes")
LIMIT_S = 1800.0
ITERATIONS = 3
SLOW = 100.0
"""Fewer steps per second than this, and a trainer takes fewer, too."""
SIZES: Mapping[bool, dict[str, Any]] = {
    False: {"rollout_fragment_length": 32, "train_batch_size": 128},
    True: {"rollout_fragment_length": 8, "train_batch_size": 32, "sgd_minibatch_size": 16},
}
"""Whether it is slow → what its trainer samples."""

HEADING = "\n## "

Row = dict[str, Any]


def shipped() -> Iterator[tuple[str, str]]:
    """(group, id) of gymnasium's own environments, the newest version of each."""
    newest: dict[str, gymnasium.envs.registration.EnvSpec] = {}
    for spec in gymnasium.registry.values():
        if spec.namespace is None:
            held = newest.get(spec.name)
            if held is None or (spec.version or 0) > (held.version or 0):
                newest[spec.name] = spec
    for spec in newest.values():
        parts = str(spec.entry_point).split(".")
        if len(parts) > 2 and parts[2] in GROUPS:
            yield GROUPS[parts[2]], spec.id


# ---- one environment, in a process of its own -------------------------------------------------


def measure(env: str, batch_modes: Sequence[str]) -> Row:
    """All cells of one row; a cell that failed says why."""
    from trainables import env_check

    row: Row = env_check.check(env, steps=400)
    if not row["unsupported"]:
        slow = (row["steps_per_s"] or 0.0) < SLOW
        for mode in batch_modes:
            settings = {**SIZES[slow], "env": env, "batch_mode": mode}
            row[f"sampled: {mode}"] = _told(partial(_train, settings))
        row["resumed"] = _told(partial(_resume, {**SIZES[slow], "env": env}))
    return row


def _told(act: Any) -> str:
    try:
        return str(act())
    except Exception as error:  # noqa: BLE001 a failure is a cell
        return f"{type(error).__name__}: {error}"


def _make(settings: Mapping[str, Any]) -> Any:
    from trainables.algorithms.ppo import PPO

    return PPO({"num_envs_per_worker": 2, "num_sgd_iter": 2, "seed": 1, **settings})


def _train(settings: Mapping[str, Any]) -> str:
    trainer = _make(settings)
    try:
        results = [trainer.train() for _ in range(ITERATIONS)]
    finally:
        trainer.stop()
    sampled = results[-1]["timesteps_total"]
    return "ok" if sampled >= ITERATIONS * settings["train_batch_size"] else f"{sampled} steps only"


def _resume(settings: Mapping[str, Any]) -> str:
    """Whether a trainer restored from a saved state goes on as the one that was saved.

    At the levels at which the episode in flight is dropped, two restored ones are compared.
    """
    import copy

    from trainables.results import VOLATILE_KEYS

    def on(trainer: Any) -> list[str]:
        try:
            told = [trainer.train() for _ in range(ITERATIONS)]
        finally:
            trainer.stop()
        return [repr({k: v for k, v in one.items() if k not in VOLATILE_KEYS}) for one in told]

    def restored(state: Any) -> Any:
        trainer = _make(settings)
        trainer.train()
        trainer.set_state(copy.deepcopy(state))
        return trainer

    saved = _make(settings)
    saved.train()
    state = copy.deepcopy(saved.get_state())
    exact = saved.level in ("A", "B")
    expected = on(saved) if exact else on(restored(state))
    if not exact:
        saved.stop()
    same = on(restored(state)) == expected
    words = "as uninterrupted" if exact else "the same each time"
    return words if same else f"not {words}"


# ---- all of them ------------------------------------------------------------------------------


def measured(env: str, batch_modes: Sequence[str]) -> Row:
    """The row of one environment, measured in a process of its own."""
    arguments = [
        sys.executable,
        "-W",
        "ignore",
        __file__,
        "--one",
        env,
        "--batch-mode",
        *batch_modes,
    ]
    try:
        done = subprocess.run(  # noqa: S603 this very file
            arguments, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return {"env": env, "error": f"not done after {LIMIT_S:.0f} s"}
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return {"env": env, "error": last}
    row: Row = json.loads(done.stdout.splitlines()[-1])
    return row


def page(rows: Sequence[tuple[str, Row]], batch_modes: Sequence[str]) -> str:
    """The whole page."""
    lines = [INTRODUCTION.format(machine=_machine())]
    return "\n".join(lines + sections(rows, batch_modes)) + "\n"


def sections(rows: Sequence[tuple[str, Row]], batch_modes: Sequence[str]) -> list[str]:
    """Title and table of each group that has rows."""
    lines: list[str] = []
    modes = [f"sampled, {mode}" for mode in batch_modes]
    titles = ["environment", "level", "steps/s", "in 8 lanes", "saved bytes", *modes, "resumed"]
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


INTRODUCTION = """\
# Environments

How exactly each environment comes back from a checkpoint, how fast it is, and whether PPO trains
on it. Made by `python benchmarks/environments.py`; `sweep check-env ENV` measures one. Speeds are
those of random actions on one core of the machine that made this page ({machine}), one
environment after the other; time in which other programs had that core is not counted. A measure of
speed ends after 10 s, and an environment of fewer than 100 steps/s is trained with 32 steps an
iteration, others with 128. `wrapped:minigrid` is a function in `benchmarks/wrapped.py`: so
an environment gets a wrapper of one's own, here one that turns the mission's words into numbers.

| level | a restored trial |
| --- | --- |
| A | equals the uninterrupted one: the environment's whole state is in the checkpoint |
| B | equals the uninterrupted one: the episode in flight is replayed from its seed and actions |
| C | drops the episode in flight; the next one begins from a derived seed |
| D | likewise, and no two runs are equal anyway |

The level is measured when a trial begins, once in each process: copies are stepped beside each
other and every number is compared. `env_level` asks for a weaker one, or for B instead of A.

At level B every episode begins in an environment made anew, because an object that has played an
episode may not repeat what a new one does. That is slower where making is slow, and an
environment that changes from episode to episode (a curriculum) would forget. Where such a memory
is seen, the level is C; `env_level: B` overrides that. An episode of more than `env_replay_limit`
steps is dropped on restore, and the log says so.

*Resumed*: a trainer is saved after one iteration and restored into another one, and every number
of its next three is compared: at A and B with the uninterrupted trainer, at C and D with a second
restored one.
"""


def main() -> None:
    """Measure and write the page, or with ``--one`` print the row of one environment."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", metavar="PART", help="ids that contain it; prints")
    parser.add_argument("--section", default="", metavar="TITLE", help="measure this one only")
    parser.add_argument("--also", nargs="*", default=list(ALSO), metavar="ID")
    parser.add_argument("--batch-mode", nargs="+", default=list(BATCH_MODES), metavar="MODE")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.one, given.batch_mode)))  # noqa: T201
        return
    wanted = [*shipped(), *((OTHERS, env) for env in given.also)]
    wanted = [one for one in wanted if given.only in one[1] and given.section in ("", one[0])]
    rows = []
    for i, (group, env) in enumerate(wanted, start=1):
        started = time.perf_counter()
        row = measured(env, given.batch_mode)
        rows.append((group, {**row, "load": os.getloadavg()[0]}))
        told = rows[-1][1].get("error") or rows[-1][1]["level"]
        seconds = time.perf_counter() - started
        print(f"{i}/{len(wanted)}  {env}  {told}  {seconds:.0f} s", file=sys.stderr)  # noqa: T201
    text = page(rows, given.batch_mode)
    if given.section:
        text = renewed(PAGE.read_text(encoding="utf-8"), rows, given.batch_mode)
    if given.only:
        print(text)  # noqa: T201
    else:
        PAGE.write_text(text)


if __name__ == "__main__":
    main()

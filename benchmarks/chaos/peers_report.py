"""The page docs/reliability-peers.md: kills and failing disks, compared with other libraries.

All figures come from the lines of ``peers.jsonl``.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.chaos.peer_curve import ITERATIONS, SLICE_S, STEP_S, TRIALS
from benchmarks.chaos.peers_oracle import ERRORS

LINES = Path(__file__).with_name("peers.jsonl")
PAGE = Path(__file__).parents[2] / "docs" / "reliability-peers.md"
TOOLS = ("sweep", "Ray Tune", "Ray Tune, two kept", "Optuna + joblib")
PINS = "'ray[tune]==2.60.0' optuna==5.0.0 joblib==1.6.0"
TITLES = {
    "group": "kill -9 of the driver's process group, then a restart",
    "driver": "kill -9 of the driver alone, restart at once",
    "worker": "kill -9 of a worker in a trial",
}
Lines = Sequence[Mapping[str, Any]]
Row = tuple[str, Callable[[Lines], str]]


def write() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """Return the page with the figures of the lines."""
    lines = [json.loads(line) for line in LINES.read_text(encoding="utf-8").splitlines()]
    values = {"trials": TRIALS, "iterations": ITERATIONS, "ms": round(STEP_S * 1000)}
    parts = [_OPENING.format(**values, slice_s=SLICE_S)]
    for kind, title in TITLES.items():
        parts.append("\n".join(_kills([x for x in lines if x["ok"]], kind, title)))
    parts.append("\n".join(_faults(lines)))
    parts.append(_CLOSING.format(pins=PINS))
    return "\n\n".join(part.strip() for part in parts) + "\n"


# ---- kills ------------------------------------------------------------------------------------


def _kills(lines: Lines, kind: str, title: str) -> Iterator[str]:
    own = {
        tool: [line for line in lines if line["case"].startswith(f"{kind} {tool} seed")]
        for tool in TOOLS
    }
    shown = [tool for tool in TOOLS if own[tool]]
    yield from (f"## {title}", "")
    yield f"| | {' | '.join(f'**{tool}**' if tool == 'sweep' else tool for tool in shown)} |"
    yield "| --- |" + " --- |" * len(shown)
    for name, cell in _rows(kind):
        yield f"| {name} | {' | '.join(cell(own[tool]) for tool in shown)} |"
    yield from _reasons(own)


def _rows(kind: str) -> list[Row]:
    rows: list[Row] = [("kills", lambda x: str(len(x)))]
    rows += [(f"{text}, total", _sum(key)) for key, text in ERRORS.items()]
    rows += [("iterations trained again after a kill, median (maximum)", _again)]
    if kind == "worker":
        rows.append(("kills after which the tool had to be restarted by hand", _some("begun")))
        rows.append(("other trials with a counted failure, total", _innocent))
    else:
        rows.append(("kills after which the restarted tool failed", _some("why")))
        rows.append(("kills with processes left after 5 s", _some("left")))
        rows.append(("kills with processes left when the tool had ended", _some("left_at_end")))
    rows.append(("kills with temporary files left", _some("files")))
    return rows


def _sum(key: str) -> Callable[[Lines], str]:
    return lambda lines: str(sum(line.get(key, 0) for line in lines))


def _some(key: str) -> Callable[[Lines], str]:
    return lambda lines: str(sum(bool(line.get(key)) for line in lines))


def _again(lines: Lines) -> str:
    counts = [line["again"] for line in lines if "again" in line]
    return f"{median(counts):g} ({max(counts)})" if counts else "-"


def _innocent(lines: Lines) -> str:
    return str(sum(max(0, line.get("charged", 0) - 1) for line in lines))


def _reasons(own: Mapping[str, Lines]) -> Iterator[str]:
    """Yield the errors with which each tool ended, and the files that it left."""
    yield ""
    for tool, lines in own.items():
        why = [why for line in lines for why in line.get("why", [])]
        why += [line["unread"] for line in lines if "unread" in line]
        left = [name for line in lines for name in line.get("files", {})]
        if why:
            yield f"- *{tool}* ended with {_counted(why)}."
        if left:
            yield f"- *{tool}* left {_counted(left)}."


def _counted(names: Sequence[str]) -> str:
    """Return each name once, with the number of kills after which it existed."""
    return ", ".join(f"`{name}` ({names.count(name)})" for name in dict.fromkeys(names))


# ---- faults -----------------------------------------------------------------------------------


def _faults(lines: Lines) -> Iterator[str]:
    yield from ("## Failing system calls of four checkpoints", "")
    yield "| | calls | faults | faults that occurred | saves refused | saves lost | fsync calls |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for tool in TOOLS:
        found = [line for line in lines if line["case"].startswith(f"fault {tool} ")]
        if not found:
            continue
        sums = [sum(line[key] for line in found) for key in ("tried", "struck", "refused", "lost")]
        calls: Mapping[str, int] = next(
            (x["calls"] for x in lines if x["case"] == f"faults {tool}"), {}
        )
        fsyncs = sum(calls.get(call, 0) for call in ("fsync", "fdatasync"))
        name = f"**{tool}**" if tool == "sweep" else tool
        name = name if calls else f"{name} (incomplete)"
        kinds = ", ".join(dict.fromkeys(line["case"].split()[-2] for line in found))
        yield f"| {name} | {kinds} | {' | '.join(map(str, sums))} | {fsyncs if calls else '?'} |"


_OPENING = """
# Kills and failing disks: sweep, Ray Tune and Optuna

In these tests, sweep's curves had no missing or repeated iterations after kills and failing system
calls; the curves of Ray Tune 2.60.0 had both, and Optuna 5.0.0 with joblib 1.6.0 had to be
restarted after each kill of a worker. Each tool runs {trials} trials of {iterations} iterations of
{ms} ms, two at a time, with a checkpoint after every iteration, and suffers the same failures. The
correct curves are known exactly. Each kill happens after a number of iterations that is drawn from
a seed, so kills are the same for every tool and every machine. Each tool is configured for fault
tolerance as its documentation recommends:

- *Ray Tune*: the class API, `FailureConfig(max_failures=3)`, `Tuner.restore` with unfinished and
  errored trials resumed, all checkpoints kept, and the experiment's state saved at every step
  (`TUNE_GLOBAL_CHECKPOINT_S=0`). *Two kept* uses `num_to_keep=2` and Tune's default interval for
  saving its state. Ray's memory monitor is off, because other programs use the same machine.
- *Optuna + joblib*: SQLite with a long timeout, a heartbeat every second and a grace period of 10
  s, `RetryHeartbeatStaleTrialCallback(max_retry=3, inherit_intermediate_values=True)`, checkpoints
  in the artifact store as in Optuna's example `pytorch_checkpoint.py`, one trial per joblib task.
  After a restart, Optuna waits until the dead processes' heartbeats are stale.
- *sweep*: `sweep run` and `sweep resume`. Slices (a trial's training between two pauses) take
  {slice_s} s, so each trial has several slices. With the default of 30 s, each of these short
  trials would be one slice and restart from the beginning.
"""
_CLOSING = """
Each fault is an error (`EIO`, `ENOSPC`) or a SIGKILL at one system call, in a process that saves
checkpoints with the tool's own API. A save is *acknowledged* for Ray Tune when `Trainable.save` has
returned, for Optuna when the artifact's ID is stored in the trial, and for sweep when the file has
its final name. The last acknowledged checkpoint is *lost* if neither this checkpoint nor a later
checkpoint can be read afterwards, or if the state read differs. If a tool saves in two threads, a
fault may occur in both. The operating system's page cache survives these faults, which therefore
cannot show the effect of fsync; the last column counts the fsync calls during four saves.

## Causes

- *Repeated iterations* (Ray Tune): `result.json` already contains the iterations since the state
  was last saved, and Ray Tune appends them again after a restart.
- *Missing iterations* (Ray Tune): when a trial continues in another process, Ray Tune overwrites
  the newer `result.json` with an older copy from the storage. `progress.csv` still had the rows.
- *Trials never finished* (Ray Tune, two kept): the saved state names a checkpoint that was deleted
  when two newer ones existed. The trial fails until its retries are used up: `Could not recover
  from checkpoint as it does not exist on storage anymore`. The default, which keeps all
  checkpoints, avoids this error.
- *Processes left* (Optuna + joblib): loky's workers survive a driver that is killed alone. The
  surviving workers finish their tasks while the restarted run continues, and then wait.
- `sem.loky-#` in `/dev/shm` (Optuna with joblib) are semaphores of a few bytes each, which remain
  because loky's resource tracker was killed with the group. In sweep, the next driver removes a
  killed driver's semaphores.
- `joblib_memmapping_folder`, listed above for Ray Tune, belongs to another program on the machine.
- Not investigated: the `KeyError` of *two kept*, Optuna's `UpdateFinishedTrialError` after a
  restart, and the processes that Ray Tune left.

## Limits of this comparison

The comparison has few kills, on one busy machine, in a small search: a 0 in a table proves little,
and a single failure says nothing about the rate of failures. Runs in which Ray failed to start
within its own limit of 30 s are not counted, and the age of Tune's saved state at the time of a
kill depends on the machine. sweep repeats the iterations that its database did not yet contain: at
most one slice per worker, by default 30 s of training. A tool that saves after every iteration may
repeat fewer iterations.

## How to repeat it

    python3 -m venv build/peers
    build/peers/bin/pip install {pins}
    python -m benchmarks.chaos.peers --peers build/peers/bin/python --rounds 10

`--rounds 10` means ten kills of each kind for each tool. Cases that `benchmarks/chaos/peers.jsonl`
already contains are not run again unless `--out` names a different folder. `--keep` keeps the
folders of killed runs, and `--report-only` rewrites this page.
"""

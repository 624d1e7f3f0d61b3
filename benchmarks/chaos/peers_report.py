"""The page of kills and failing disks beside our peers: docs/reliability-peers.md.

All figures come from the lines of ``peers.jsonl``; none is typed by hand.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.chaos.peer_curve import ITERATIONS, SLICE_S, STEP_S, TRIALS
from benchmarks.chaos.peers_oracle import QUESTIONS

LINES = Path(__file__).with_name("peers.jsonl")
PAGE = Path(__file__).parents[2] / "docs" / "reliability-peers.md"
TOOLS = ("sweep", "Ray Tune", "Ray Tune, two kept", "Optuna + joblib")
PINS = "'ray[tune]==2.60.0' optuna==5.0.0 joblib==1.6.0"
TITLES = {
    "group": "Kill -9 of the driver's process group, then begun again",
    "driver": "Kill -9 of the driver alone, begun again at once",
    "worker": "Kill -9 of a worker in a trial",
}
Lines = Sequence[Mapping[str, Any]]
Row = tuple[str, Callable[[Lines], str]]


def write() -> None:
    """Make the page anew."""
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """The page as the lines give it."""
    lines = [json.loads(line) for line in LINES.read_text(encoding="utf-8").splitlines()]
    given = {"trials": TRIALS, "iterations": ITERATIONS, "ms": round(STEP_S * 1000)}
    parts = [_OPENING.format(**given, slice_s=SLICE_S)]
    for kind, title in TITLES.items():
        parts.append("\n".join(_kills([x for x in lines if x["ok"]], kind, title)))
    parts.append("\n".join(_faults(lines)))
    parts.append(_CLOSING.format(pins=PINS))
    return "\n\n".join(part.strip() for part in parts) + "\n"


# ---- kills ------------------------------------------------------------------------------------


def _kills(lines: Lines, kind: str, title: str) -> Iterator[str]:
    mine = {
        tool: [line for line in lines if line["case"].startswith(f"{kind} {tool} seed")]
        for tool in TOOLS
    }
    shown = [tool for tool in TOOLS if mine[tool]]
    yield from (f"## {title}", "")
    yield f"| | {' | '.join(f'**{tool}**' if tool == 'sweep' else tool for tool in shown)} |"
    yield "| --- |" + " --- |" * len(shown)
    for name, cell in _rows(kind):
        yield f"| {name} | {' | '.join(cell(mine[tool]) for tool in shown)} |"
    yield from _reasons(mine)


def _rows(kind: str) -> list[Row]:
    rows: list[Row] = [("kills", lambda x: str(len(x)))]
    rows += [(f"{text}, in all", _sum(key)) for key, text in QUESTIONS.items()]
    rows += [("iterations trained again after a kill, median (most)", _again)]
    if kind == "worker":
        rows.append(("kills after which it had to be begun again by hand", _some("begun")))
        rows.append(("other trials charged with the failure, in all", _innocent))
    else:
        rows.append(("kills after which it failed when begun again", _some("why")))
        rows.append(("kills with processes left after 5 s", _some("left")))
        rows.append(("… and when it had ended", _some("left_at_end")))
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


def _reasons(mine: Mapping[str, Lines]) -> Iterator[str]:
    """The errors with which a tool ended, and what it left."""
    for tool, lines in mine.items():
        why = [why for line in lines for why in line.get("why", [])]
        why += [line["unread"] for line in lines if "unread" in line]
        left = [name for line in lines for name in line.get("files", {})]
        if why:
            yield from ("", f"{tool} ended with {_counted(why)}.")
        if left:
            yield from ("", f"{tool} left {_counted(left)}.")


def _counted(names: Sequence[str]) -> str:
    """Each name once, and after how many kills it was there."""
    return ", ".join(f"`{name}` ({names.count(name)})" for name in dict.fromkeys(names))


# ---- faults -----------------------------------------------------------------------------------


def _faults(lines: Lines) -> Iterator[str]:
    yield from ("## Each system call of four checkpoints fails, or is the last one", "")
    yield "| | calls | faults | that struck | saves refused | acknowledged and lost | fsyncs |"
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
        name = name if calls else f"{name} (not yet all)"
        kinds = ", ".join(dict.fromkeys(line["case"].split()[-2] for line in found))
        yield f"| {name} | {kinds} | {' | '.join(map(str, sums))} | {fsyncs if calls else '?'} |"


_OPENING = """
# Kills and failing disks, beside our peers

The same processes are killed at the same moments, and the same system calls fail, for sweep, Ray
Tune 2.60.0, and Optuna 5.0.0 with joblib 1.6.0; then the same questions are asked. A sweep here
is {trials} trials of {iterations} iterations, of {ms} ms each, two at a time, with a checkpoint
after every one. The trials' curves are known to the bit, so nothing is compared by eye.

**Kills** come after so many iterations of all trials, drawn from a seed, not after so many
seconds, so that they are the same for every tool however slow a machine is. Times are left out
for the same reason. **Each tool is used as its documentation says** for fault tolerance, and
where there is a choice, with what favours it:

- *Ray Tune*: the class API, `FailureConfig(max_failures=3)`, `Tuner.restore` with unfinished and
  errored trials resumed, every checkpoint kept, and the state of the experiment saved at every
  step (`TUNE_GLOBAL_CHECKPOINT_S=0`). *Two kept* is the same with `num_to_keep=2`, and saves its
  state when Tune thinks so. Its memory monitor is off, as others use the machine.
- *Optuna + joblib*: SQLite with a long timeout, a heartbeat each second and a grace period of 10
  s, `RetryHeartbeatStaleTrialCallback(max_retry=3, inherit_intermediate_values=True)`,
  checkpoints in the artifact store as in `pytorch_checkpoint.py` of its examples, one trial per
  joblib task. When it is begun again, it waits until the heartbeats of the dead are stale, and
  only then trains.
- *sweep*: `sweep run`, `sweep resume`, slices of {slice_s} s, so that a trial has several. With
  the default of 30 s each of these short trials would be one slice, and be trained again from its
  start.

None of them has rollout workers in this comparison: the trials are plain functions of a state.
"""
_CLOSING = """
A fault is an error (`EIO`, `ENOSPC`) or a SIGKILL at a call, each in its turn, in a process that
saves by the tool's own way. *Acknowledged* is a save that returned: `Trainable.save` through its
storage context, the artifact's id in the trial, our file under its name. The last of these is
lost if neither it nor a later one can be read afterwards, or its state is another. Where a tool
saves in two threads, a fault may strike in both. The page cache survives all this, so it cannot
show what an fsync is for: the last column is how many there are in four saves, and what a power
cut does to ours is `benchmarks/chaos/store_crashes.py`.

## Where it comes from

The folders of runs in which something was wrong were opened. What was found there:

- *Stand twice* (Ray Tune): what was trained after the state was last saved is in `result.json`
  already, and is written there again.
- *Missing* (Ray Tune): when a trial goes on in another process, the older copy of `result.json`
  in the storage is put over the newer one. Tune's analysis reads that file; `progress.csv` had
  the rows.
- *Never finished* (Ray Tune, two kept): the state names a checkpoint that has been deleted since,
  as two newer ones were there. The trial fails as often as it may: `Could not recover from
  checkpoint as it does not exist on storage anymore`. So keep all of them, which is the default.
- *Processes left* (Optuna + joblib): loky's workers outlive a driver that is killed alone. They
  train what they had been given, beside the run that has begun again, and then wait.
- `sem.loky-#` in `/dev/shm` (Optuna with joblib): names of semaphores, a few bytes each. What
  removes them, loky's resource tracker, was killed with the group. The process that takes a
  sweep over removes those of the driver before.
- Not looked into: the `KeyError` of *two kept* and the `UpdateFinishedTrialError` of Optuna with
  which they ended when they were begun again, and the processes that Ray Tune left.
- A `joblib_memmapping_folder` beside Ray Tune is of something else that ran on the machine.

## What this does not show

Few kills, on one machine, in a small search: a zero here is no proof, and a one is no rate. The
machine was busy with other work. Runs in which Ray could not begin within the 30 s that it gives
itself are not counted; how old Tune's saved state is when a kill comes depends on the machine.
Ray Tune and Optuna do much that is not asked for here, such as many machines. Where sweep trains
iterations again, it is what was not yet in the ledger: at most a slice for each worker, by
default 30 s of training, whereas a peer that saves after every iteration may lose less.

## How to repeat it

    python3 -m venv build/peers
    build/peers/bin/pip install {pins}
    python -m benchmarks.chaos.peers --peers build/peers/bin/python --rounds 10

`--rounds 10` is ten kills of each kind and tool; a kill takes a minute or two for Ray Tune and
half of that for the others. Cases that stand in `benchmarks/chaos/peers.jsonl` are not run again,
unless `--out` names another folder. `--keep` keeps the folders of killed runs to be looked at.
`--report-only` makes this page anew.
"""

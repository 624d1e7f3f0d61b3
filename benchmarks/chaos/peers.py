"""The same kills and faults for us, Ray Tune, and Optuna with joblib; writes a page of docs.

    python -m benchmarks.chaos.peers [--peers PYTHON] [--rounds N] [--seed S] [--report-only]

PYTHON is an interpreter of an environment of its own with ``ray[tune]==2.60.0 optuna==5.0.0
joblib==1.6.0``; without it we are asked alone. Cases stand in ``peers.jsonl`` beside this file and
are not run again. What a tool does wrong is a finding and no failed case; a case fails if there
was nothing to find, since the run had ended before the kill.
"""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.chaos import peers_faults, peers_kills, peers_report
from benchmarks.chaos.peers_processes import Tool
from benchmarks.chaos.store_cases import Cases
from benchmarks.chaos.store_faults import can_trace

ROUNDS = 10
HERE = Path(__file__).parent


def tools(python: str) -> list[Tool]:
    """Return the tools to compare."""
    peers = [
        Tool("Ray Tune", python, "benchmarks.chaos.peer_ray"),
        Tool("Ray Tune, two kept", python, "benchmarks.chaos.peer_ray", ("two",)),
        Tool("Optuna + joblib", python, "benchmarks.chaos.peer_optuna"),
    ]
    ours = Tool("sweep", sys.executable, "benchmarks.chaos.peer_sweep")
    return [ours, *(peers if python else ())]


def run(out: Path, rounds: int, seed: int, asked: Sequence[Tool] = (), keep: bool = False) -> int:
    """So many kills of each kind, and every fault once; returns how many cases failed."""
    cases = Cases(out, "peers")
    for tool in asked or tools(""):
        cases.run(f"undisturbed {tool.name}", partial(peers_kills.undisturbed, tool))
    for number in range(rounds):
        for kind in peers_kills.KINDS:
            for tool in asked or tools(""):
                how = peers_kills.draw(kind, number, seed)
                name = f"{kind} {tool.name} seed {seed} round {number}"
                cases.run(name, partial(peers_kills.killed, tool, how, keep))
    for tool in (asked or tools("")) if can_trace() else ():
        if not tool.options:  # they change nothing of how one checkpoint is saved
            _faults(cases, tool)
    return cases.close()


def _faults(cases: Cases, tool: Tool) -> None:
    names = [name for name in cases.done if name.startswith(f"fault {tool.name}")]
    if f"faults {tool.name}" in cases.done:
        return
    with peers_faults.Savers(tool) as savers:
        found = peers_faults.calls(savers)
        for fault in peers_faults.FAULTS:
            for call, (most, _) in found.items():
                name = f"fault {tool.name} {call} {fault}"
                if name not in names:
                    cases.run(name, partial(peers_faults.all_fail, savers, call, most, fault))
        cases.run(f"faults {tool.name}", lambda: {"calls": {k: v[1] for k, v in found.items()}})


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE, help="where lines go")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="kills of each kind")
    parser.add_argument("--seed", type=int, default=0, help="what kills are drawn from")
    parser.add_argument("--peers", default="", metavar="PYTHON", help="has ray[tune] and optuna")
    parser.add_argument("--tools", nargs="*", metavar="NAME", help="these alone")
    parser.add_argument("--keep", action="store_true", help="keep the folders of killed runs")
    parser.add_argument("--report-only", action="store_true", help="only the page")
    given = parser.parse_args()
    failed = 0
    if not given.report_only:
        asked = [tool for tool in tools(given.peers) if tool.name in (given.tools or [tool.name])]
        failed = run(given.out, given.rounds, given.seed, asked, given.keep)
    peers_report.write()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

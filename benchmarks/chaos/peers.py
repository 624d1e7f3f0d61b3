"""Compare kills and faults of sweep, Ray Tune, and Optuna with joblib; write a page of the docs.

    python -m benchmarks.chaos.peers [--peers PYTHON] [--rounds N] [--seed S] [--report-only]

PYTHON is the interpreter of an environment with ``ray[tune]==2.60.0 optuna==5.0.0 joblib==1.6.0``;
without it only sweep is tested. Cases are stored in ``peers.jsonl`` beside this file and not run
again. An error of a tool is a figure of its case and does not make the case fail; a case fails if
its run had ended before the kill.
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
"""Default number of kills of each kind."""
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


def run(out: Path, rounds: int, seed: int, chosen: Sequence[Tool] = (), keep: bool = False) -> int:
    """Make `rounds` kills of each kind, and each fault once; return the number of failed cases.

    Args:
        rounds: number of kills of each kind and tool.
        chosen: tools to test; empty for sweep alone.
        keep: True to keep the folders of killed runs.
    """
    cases = Cases(out, "peers")
    for tool in chosen or tools(""):
        cases.run(f"undisturbed {tool.name}", partial(peers_kills.run_undisturbed, tool))
    for number in range(rounds):
        for kind in peers_kills.KINDS:
            for tool in chosen or tools(""):
                kill = peers_kills.draw(kind, number, seed)
                name = f"{kind} {tool.name} seed {seed} round {number}"
                cases.run(name, partial(peers_kills.run_killed, tool, kill, keep))
    for tool in (chosen or tools("")) if can_trace() else ():
        if not tool.options:  # options do not influence how a checkpoint is saved
            _faults(cases, tool)
    return cases.close()


def _faults(cases: Cases, tool: Tool) -> None:
    names = [name for name in cases.done if name.startswith(f"fault {tool.name}")]
    if f"faults {tool.name}" in cases.done:
        return
    with peers_faults.Savers(tool) as savers:
        calls = peers_faults.calls(savers)
        for fault in peers_faults.FAULTS:
            for call, (most, _) in calls.items():
                name = f"fault {tool.name} {call} {fault}"
                if name not in names:
                    cases.run(name, partial(peers_faults.all_fail, savers, call, most, fault))
        cases.run(f"faults {tool.name}", lambda: {"calls": {k: v[1] for k, v in calls.items()}})


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the results")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="kills of each kind")
    parser.add_argument("--seed", type=int, default=0, help="seed of the kills")
    parser.add_argument(
        "--peers", default="", metavar="PYTHON", help="interpreter with ray[tune] and optuna"
    )
    parser.add_argument("--tools", nargs="*", metavar="NAME", help="tools to test")
    parser.add_argument("--keep", action="store_true", help="keep the folders of killed runs")
    parser.add_argument("--report-only", action="store_true", help="only write the page")
    given = parser.parse_args()
    failed = 0
    if not given.report_only:
        chosen = [tool for tool in tools(given.peers) if tool.name in (given.tools or [tool.name])]
        failed = run(given.out, given.rounds, given.seed, chosen, given.keep)
    peers_report.write()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

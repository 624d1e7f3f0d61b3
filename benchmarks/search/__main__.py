"""Searches beside their peers on the same games; writes docs/search.md.

    python -m benchmarks.search [--seeds 10] [--peers PYTHON] [--report-only]
    python -m benchmarks.search --seeds 30 --methods asha "asha, stopping"

PYTHON is an interpreter in which ``ray[tune]==2.60.0 syne-tune==0.16.0`` are installed, in an
environment of their own; without it their rows are those of earlier runs. What was played stands in
``results.jsonl`` at once, and is not played again.

Every search has one worker, so that all see results in the same order, and the same budget of
iterations. Those that compare schedulers are given the same settings in the same order, under each
seed others; those that compare searchers find their own.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.search import games, ours, peer_optuna, report
from benchmarks.search.game import ITERATIONS, Game
from benchmarks.search.trace import Report, Trace

RESULTS = Path(__file__).with_name("results.jsonl")
#: Iterations that a search may spend: as many as 20 settings need that are trained to their end.
BUDGET = 20 * ITERATIONS
POPULATION_BUDGET = ours.POPULATION * ITERATIONS
#: Seconds after which a peer is given up.
PATIENCE_S = 600
SETTINGS = BUDGET // 4
OUTSIDE = (
    ("schedulers", "Ray Tune", "ASHA"),
    ("schedulers", "Syne Tune", "ASHA"),
    ("populations", "Ray Tune", "PBT"),
)


@dataclass(frozen=True)
class Match:
    """One search under one seed."""

    kind: str
    """``schedulers``, ``searchers`` or ``populations``: what is compared with what."""
    who: str
    method: str
    game: str
    seed: int


def matches(seeds: int, peers: bool) -> Iterator[Match]:
    """Every match, seed by seed."""
    methods = (
        *(("schedulers", "sweep", method) for method in ours.SCHEDULERS),
        *(("schedulers", "Optuna", method) for method in peer_optuna.PRUNERS),
        *(("searchers", "sweep", method) for method in ours.SEARCHERS),
        *(("searchers", "Optuna", method) for method in peer_optuna.SAMPLED),
        ("populations", "sweep", "pbt"),
        *(OUTSIDE if peers else ()),
    )
    for seed in range(seeds):
        for kind, who, method in methods:
            for game in games.BRED if kind == "populations" else games.NAMES:
                yield Match(kind, who, method, game, seed)


def play(match: Match, python: str) -> dict[str, Any]:
    """The match's figures."""
    game = games.load(match.game, match.seed)
    bred = match.kind == "populations"
    budget = POPULATION_BUDGET if bred else BUDGET
    trace = _trace(match, game, python)
    quarter, half = budget // 4, budget // 2
    return {
        **asdict(match),
        "target": trace.to_target(game.target, budget),
        "regret": {str(at): trace.regret(game, at, bred) for at in (quarter, half, budget)},
        "spent": min(len(trace.reports), budget),
        "budget": budget,
    }


def _trace(match: Match, game: Game, python: str) -> Trace:
    given = match.kind == "schedulers"
    settings = game.draw(SETTINGS) if given else []
    if match.who == "sweep":
        methods: Mapping[str, Mapping[str, Any]] = {
            "schedulers": ours.SCHEDULERS,
            "searchers": ours.SEARCHERS,
            "populations": ours.BREEDERS,
        }[match.kind]
        bred = match.kind == "populations"
        count = ours.POPULATION if bred else SETTINGS
        first = game.draw(count) if bred else settings
        return ours.search(methods[match.method], game, match.seed, first, count)
    if match.who == "Optuna":
        pruner = {**peer_optuna.PRUNERS, **peer_optuna.SAMPLED}[match.method]
        return peer_optuna.search(pruner, game, match.seed, settings, BUDGET)
    module = (
        "benchmarks.search.peer_ray" if match.who == "Ray Tune" else "benchmarks.search.peer_syne"
    )
    budget = POPULATION_BUDGET if match.kind == "populations" else BUDGET
    arguments = [match.method, match.game, str(match.seed), str(budget)]
    ran = subprocess.run(  # noqa: S603 our own module, under the interpreter that was asked for
        [python, "-m", module, *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    trace = Trace()
    for trial, iteration, value, config in json.loads(ran.stdout.splitlines()[-1]):
        trace.add(Report(trial, iteration, value, {name: config[name] for name in game.space}))
    return trace


def read() -> list[dict[str, Any]]:
    """What was played; a torn last line is left out."""
    lines = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--peers", default="", metavar="PYTHON")
    parser.add_argument("--games", nargs="*", default=None)
    parser.add_argument("--methods", nargs="*", default=None, help="only these methods of ours")
    parser.add_argument("--report-only", action="store_true")
    asked = parser.parse_args()
    done = {Match(*(row[key] for key in Match.__dataclass_fields__)) for row in read()}
    wanted = [] if asked.report_only else list(matches(asked.seeds, bool(asked.peers)))
    if asked.games is not None:
        wanted = [match for match in wanted if match.game in asked.games]
    if asked.methods is not None:
        wanted = [one for one in wanted if one.who == "sweep" and one.method in asked.methods]
    left = [match for match in wanted if match not in done]
    for place, match in enumerate(left, 1):
        sys.stderr.write(f"\r\033[K{place} of {len(left)}: {match}")
        figures = play(match, asked.peers)
        with RESULTS.open("a", encoding="utf-8") as file:
            file.write(json.dumps(figures) + "\n")
    report.write(read())


if __name__ == "__main__":
    main()

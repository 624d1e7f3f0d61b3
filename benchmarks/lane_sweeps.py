"""Whole sweeps from the shell in lanes and in processes, and the programs that spaces need.

    python -m benchmarks.lane_sweeps [--trials 64] [--steps 51200] [--write]

Runs one sweep with `--pool stack` and an empty cache of programs, again with the programs of the
first, and with `--pool loky` in two processes: random settings, each trained to the end. Each has
the time of the shell, and the CPU time of all processes, which says more on a machine with other
work. Counts the different programs of random settings of the shipped spaces, and the places of
their stacks if all of them train at once. `--write` writes both tables into docs/stack.md.
"""

import argparse
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.gpu import sweep_from_shell
from benchmarks.lanes import PAGE
from benchmarks.pages import replace_between
from sweep.driver.start import prepare
from sweep.driver.start.creation import samples
from sweep.driver.start.creation.samples import StackWidths

SPACES = ("cartpole_lanes", "cartpole_ppo", "pendulum_ppo", "cartpole_dqn")
DRAWN = 256
"""Random settings of a space of which programs and places are counted."""
RUNS = {
    "`--pool stack`, compiling": "stack",
    "`--pool stack`, programs cached": "stack",
    "`--pool loky --jobs 2`": "loky",
}
BEGIN, END = "<!-- begin: benchmarks.lane_sweeps -->", "<!-- end: benchmarks.lane_sweeps -->"


class Needed(NamedTuple):
    """The programs that lanes need, and the places of their stacks."""

    programs: int
    places: int


def count_needed(space: str, count: int) -> Needed:
    """Return what `count` random settings of a shipped space need if all of them train at once."""
    resolved, _ = prepare.prepare(space, [])
    spec, trainable = resolved.spec, resolved.trainable
    widths, lanes = StackWidths(spec, trainable, count), Counter[tuple[Any, int]]()
    for point in samples.draw_samples(spec.space, spec.seed + 1, count):
        config = spec.space.nest(point.settings, spec.config)
        whole = samples.complete_config(trainable, spec, config)
        width = widths.width(whole)
        lanes[trainable.lane_shape(trainable.as_lane(whole, width)), width] += 1
    places = sum(-(-number // width) * width for (_, width), number in lanes.items())
    return Needed(len({shape for shape, _ in lanes}), places)


def options(pool: str, trials: int, steps: int) -> list[str]:
    """Return the options of `sweep run` for random settings that are trained to the end."""
    jobs = 2 if pool == "loky" else trials
    words = ["--trials", str(trials), "--jobs", str(jobs)]
    for setting in (f"stop={{timesteps_total: {steps}}}", "scheduler=fifo", "searcher=random"):
        words += ["--set", setting]
    return words


def compare(space: str, trials: int, steps: int) -> dict[str, dict[str, Any]]:
    """Return the figures of each of `RUNS`, one after the other, and print them as they come."""
    figures: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as cache:
        for name, pool in RUNS.items():
            words = options(pool, trials, steps)
            figures[name] = sweep_from_shell(space, words, Path(cache), pool)
            print(f"{name}: {figures[name]}", flush=True)  # noqa: T201
    return figures


def table(
    figures: Mapping[str, Mapping[str, Any]], needed: Mapping[str, Needed], drawn: int
) -> str:
    """Return the results in Markdown; `drawn` is the number of lanes of which `needed` says."""
    lines = ["| sweep | seconds | CPU seconds |", "| --- | --- | --- |"]
    for name, found in figures.items():
        lines.append(f"| {name} | {found['wall_s']:.0f} | {found['cpu_s']:.0f} |")
    lines += ["", f"| space | programs | places for {drawn} lanes |", "| --- | --- | --- |"]
    lines += [f"| `{space}` | {of.programs} | {of.places} |" for space, of in needed.items()]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the tables; with ``--write`` also write them into the page."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--space", default="cartpole_lanes")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--steps", type=int, default=51_200)
    parser.add_argument("--drawn", type=int, default=DRAWN)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args(arguments)
    needed = {space: count_needed(space, given.drawn) for space in SPACES}
    figures = compare(given.space, given.trials, given.steps)
    if failed := [found["output"] for found in figures.values() if found["exit_code"]]:
        raise SystemExit(failed[0])
    results = table(figures, needed, given.drawn)
    print(results)  # noqa: T201
    if given.write:
        page = PAGE.read_text("utf-8")
        PAGE.write_text(replace_between(page, BEGIN, END, f"\n\n{results}\n\n"), "utf-8")


if __name__ == "__main__":
    main()

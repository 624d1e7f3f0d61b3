"""Measure each environment that can be created here, and write docs/environments.md.

    python -m benchmarks.environments [--only PART] [--section TITLE] [--also ID …]
                                      [--batch-mode MODE …]

The environments are measured one after the other, each in a process of its own; standard error
shows the progress. The row of an environment that is not supported, or fails, has the reason.
``--section`` leaves the page's other sections unchanged.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import gymnasium

from benchmarks.environments.page import GROUPS, OTHERS, Row, page, replace_section
from benchmarks.environments.row import measure

PAGE = Path(__file__).parents[2] / "docs" / "environments.md"
ALSO = (
    "ALE/Pong-v5",
    "gymnasium_robotics:PointMaze_UMaze-v3",
    "minigrid:MiniGrid-Empty-5x5-v0",
    "benchmarks.wrapped:minigrid",
    "highway_env:highway-v0",
)
BATCH_MODES = ("truncate_episodes", "complete_episodes")
LIMIT_S = 1800.0


def environments_of_gymnasium() -> Iterator[tuple[str, str]]:
    """Yield (group, id) of gymnasium's own environments, the newest version of each."""
    newest: dict[str, gymnasium.envs.registration.EnvSpec] = {}
    for spec in gymnasium.registry.values():
        if spec.namespace is None:
            known = newest.get(spec.name)
            if known is None or (spec.version or 0) > (known.version or 0):
                newest[spec.name] = spec
    for spec in newest.values():
        parts = str(spec.entry_point).split(".")
        if len(parts) > 2 and parts[2] in GROUPS:
            yield GROUPS[parts[2]], spec.id


def measure_in_child(env: str, batch_modes: Sequence[str]) -> Row:
    """Return the row of one environment, measured in a process of its own."""
    arguments = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "benchmarks.environments",
        "--one",
        env,
        "--batch-mode",
        *batch_modes,
    ]
    try:
        done = subprocess.run(  # noqa: S603 this very program
            arguments, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return {"env": env, "error": f"not done after {LIMIT_S:.0f} s"}
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return {"env": env, "error": last}
    row: Row = json.loads(done.stdout.splitlines()[-1])
    return row


def main() -> None:
    """Measure and write the page; with ``--one`` print the row of one environment as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--only",
        default="",
        metavar="PART",
        help="measure only ids that contain PART, and print the page",
    )
    parser.add_argument(
        "--section",
        default="",
        metavar="TITLE",
        help="measure only the environments of this section",
    )
    parser.add_argument("--also", nargs="*", default=list(ALSO), metavar="ID", help="others")
    parser.add_argument("--batch-mode", nargs="+", default=list(BATCH_MODES), metavar="MODE")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.one, given.batch_mode)))  # noqa: T201
        return
    wanted = [*environments_of_gymnasium(), *((OTHERS, env) for env in given.also)]
    wanted = [one for one in wanted if given.only in one[1] and given.section in ("", one[0])]
    rows = []
    for i, (group, env) in enumerate(wanted, start=1):
        started = time.perf_counter()
        row = measure_in_child(env, given.batch_mode)
        rows.append((group, {**row, "load": os.getloadavg()[0]}))
        outcome = rows[-1][1].get("error") or rows[-1][1]["level"]
        seconds = time.perf_counter() - started
        print(f"{i}/{len(wanted)}  {env}  {outcome}  {seconds:.0f} s", file=sys.stderr)  # noqa: T201
    text = page(rows, given.batch_mode)
    if given.section:
        text = replace_section(PAGE.read_text(encoding="utf-8"), rows, given.batch_mode)
    if given.only:
        print(text)  # noqa: T201
    else:
        PAGE.write_text(text)


if __name__ == "__main__":
    main()

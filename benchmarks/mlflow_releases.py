"""Test the MLflow store with several releases of MLflow, each in an environment of its own.

    python -m benchmarks.mlflow_releases [RELEASE …] [--folder DIR] [--python PATH …]

RELEASE is an exact version or `newest`, the newest that pip can install. An environment
remains in DIR, so a second run only tests; it takes about 1.5 GB. `--python` names an existing
interpreter with MLflow, the packages of sweep and pytest. The output is that of pip and pytest,
followed by a table. The exit code is 1 if a release failed.
"""

import argparse
import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parents[1]
#: The release before the pinned one, the earliest and the pinned one, and the newest.
RELEASES = ("3.16.1", "3.17.0", "3.17.2", "newest")
NEWEST = "newest"
#: Tests of the store: rows, the page, attachments, repetition after faults.
TESTS = (
    "tests/contracts/test_trackers.py",
    "tests/sweep/driver/test_sync.py",
    "tests/sweep/operations/test_attachments.py",
    "tests/sweep/operations/test_mlflow_page.py",
    "tests/sweep/operations/test_page_server.py",
    "tests/sweep/trackers/test_mlflow_tracker.py",
    "tests/sweep/trackers/test_tracked_media.py",
    "tests/sweep/trackers/test_tracked_replicas.py",
)
#: Packages that these tests import besides those of sweep.
FOR_TESTS = ("hypothesis", "pytest", "pytest-timeout")
#: Script that prints the release and the revision of its tables.
PRINT_RELEASE = """
import sqlite3
from importlib import metadata
from tests.support.mlflow_tables import migrated
database = sqlite3.connect(":memory:")
database.executescript(migrated())
print(metadata.version("mlflow"), *database.execute("SELECT * FROM alembic_version").fetchone())
"""


class Outcome(NamedTuple):
    """Result of the tests of one release."""

    release: str
    revision: str
    summary: str
    """Last line of pytest: the numbers of tests that passed, failed and were skipped."""
    passed: bool


def main(arguments: Sequence[str] | None = None) -> int:
    """Test each release and print the table. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("releases", nargs="*", metavar="RELEASE", help=f"default: {RELEASES}")
    parser.add_argument("--folder", type=Path, default=REPOSITORY / "build" / "mlflow-releases")
    parser.add_argument("--python", type=Path, nargs="+", default=[], metavar="PATH")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="tests instead of all of them")
    given = parser.parse_args(arguments)
    releases = given.releases or ([] if given.python else RELEASES)
    pythons = [*given.python, *(install(given.folder, release) for release in releases)]
    outcomes: dict[str, Outcome] = {}
    for number, python in enumerate(pythons, 1):
        release, revision = read_release(python)
        say(f"{number} of {len(pythons)}: MLflow {release}, tables {revision}")
        if release in outcomes:
            say("this release was tested above")
        else:
            outcomes[release] = run_tests(python, release, revision, given.tests)
    say(table(list(outcomes.values())))
    return 0 if all(outcome.passed for outcome in outcomes.values()) else 1


def requirements(project: Mapping[str, object], lock: Sequence[str], release: str) -> list[str]:
    """Return the requirements of a release of MLflow: the locked packages of sweep, and MLflow.

    Packages that only MLflow needs are not locked. The version of torch is exact, because exact
    versions have a build for the CPU.
    """
    locked = {line.partition("==")[0].lower(): line for line in lock}
    names = [re.split(r"[\s<>=\[;]", str(one))[0] for one in _listed(project["dependencies"])]
    wanted = [locked[name] for name in (*names, *FOR_TESTS) if name != "mlflow"]
    return [*wanted, "mlflow<4" if release == NEWEST else f"mlflow=={release}"]


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def install(folder: Path, release: str) -> Path:
    """Return the interpreter of a release's environment; create the environment if necessary."""
    place = folder / release
    python, ready = place / "bin" / "python", place / ".ready"
    if not ready.exists():
        say(f"{release}: install into {place}")
        project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
        lock = (REPOSITORY / "constraints.txt").read_text().splitlines()
        wanted = requirements(project, lock, release)
        torch = [one for one in wanted if one.startswith("torch==")]
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)  # noqa: S603 ours
        for some in (torch, wanted):
            subprocess.run([str(python), "-m", "pip", "install", "--quiet", *some], check=True)  # noqa: S603 ours
        ready.touch()
    return python


def read_release(python: Path) -> tuple[str, str]:
    """Return the release of MLflow in an environment, and the revision of its tables."""
    command = [str(python), "-W", "ignore", "-c", PRINT_RELEASE]
    process = subprocess.run(  # noqa: S603 ours
        command, env=_environment(), cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=True
    )
    release, revision = process.stdout.split()
    return release, revision


def run_tests(python: Path, release: str, revision: str, tests: Sequence[str]) -> Outcome:
    """Run the tests and show their output; return the result."""
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    began, last = time.monotonic(), ""
    with subprocess.Popen(  # noqa: S603 ours
        command, env=_environment(), cwd=REPOSITORY, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None  # noqa: S101 it is a pipe
        line = b""
        while piece := os.read(process.stdout.fileno(), 1 << 12):
            sys.stdout.buffer.write(piece)
            sys.stdout.flush()
            line = (line + piece)[-(1 << 12) :]
        last = line.decode(errors="replace").strip().rpartition("\n")[2]
    say(f"MLflow {release}: {time.monotonic() - began:.0f} s")
    return Outcome(release, revision, last, process.returncode == 0)


def table(outcomes: Sequence[Outcome]) -> str:
    """Return a line for each release."""
    lines = [
        f"| MLflow {one.release:8} | {one.revision} | {'passed' if one.passed else 'FAILED'} "
        f"| {one.summary} |"
        for one in outcomes
    ]
    return "\n".join(lines)


def say(text: str) -> None:
    """Print a line of progress."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _environment() -> dict[str, str]:
    """Return the environment in which the repository is imported, whatever is installed."""
    return {**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONDONTWRITEBYTECODE": "1"}


if __name__ == "__main__":
    sys.exit(main())

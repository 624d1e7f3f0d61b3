"""The test of several MLflow releases: what it installs, runs and reports, in a small way."""

import sys
import tomllib
from pathlib import Path

import pytest

from benchmarks import mlflow_releases
from sweep.trackers._shared import mlflow_store

REPOSITORY = Path(mlflow_releases.__file__).parents[1]


def test_the_packages_of_a_release_are_the_locked_ones_but_for_mlflow() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    lock = (REPOSITORY / "constraints.txt").read_text().splitlines()
    wanted = mlflow_releases.requirements(project, lock, "3.16.1")
    assert wanted[-1] == "mlflow==3.16.1"
    assert set(wanted[:-1]) <= set(lock)
    assert {"torch", "optuna", "pytest"} <= {one.partition("==")[0] for one in wanted}
    assert len(wanted) == len(project["dependencies"]) + len(mlflow_releases.FOR_TESTS)
    assert mlflow_releases.requirements(project, lock, "newest")[-1] == "mlflow<4"


def test_every_file_that_is_tested_is_there() -> None:
    assert all((REPOSITORY / one).is_file() for one in mlflow_releases.TESTS)


@pytest.mark.proof
def test_a_release_that_fails_is_named_and_ends_with_code_1(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    good, bad = tmp_path / "test_good.py", tmp_path / "test_bad.py"
    good.write_text("def test_good(): pass\n")
    bad.write_text("def test_bad(): assert False\n")
    for files, code, word in (([good], 0, "passed"), ([good, bad], 1, "FAILED")):
        options = ["--python", sys.executable, "--tests", *map(str, files)]
        assert mlflow_releases.main(options) == code
        *_, last = capfd.readouterr().out.splitlines()
        assert f"| {word} |" in last
        assert any(revision in last for revision in mlflow_store.REVISIONS)

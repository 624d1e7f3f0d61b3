"""Files that are called as what is installed disturb no process of a sweep."""

import subprocess
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from sweep.history.events import Status
from sweep.ledger.folder import Folder
from tests.support import sweeps
from tests.support.command_line import Here, start, write_spec

#: A function that cannot end before a file lies beside it.
WAITS = """
import time
from pathlib import Path
from trainables import get_checkpoint, report

def train(config):
    for i in range((get_checkpoint() or {"i": 0})["i"] + 1, 4):
        report({"loss": float(i)}, checkpoint={"i": i})
        while not Path(__file__).with_name("free").exists():
            time.sleep(0.05)
"""


@pytest.mark.slow
def test_a_file_called_as_an_installed_package_is_named_and_never_imported_nor_after_a_kill(
    tmp_path: Path,
) -> None:
    names = ("sweep", "trainables", "optuna", "joblib", "random")
    for name in names:
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong one was imported')\n")
    (tmp_path / "own.py").write_text(WAITS)
    settings = {"trials": 3, "stop": {}, "config": {}, "scheduler": "fifo", "deterministic": None}
    spec = write_spec(tmp_path, trainable="own:train", **settings)
    # As the installed program: `python -m` would put the current folder first itself.
    program = [
        "-c",
        "import sys; del sys.path[0]; from sweep.cli.main import main; sys.exit(main())",
    ]
    begun = start("run", spec, "--jobs", 2, cwd=tmp_path, program=program, stderr=subprocess.STDOUT)
    assert begun.stdout is not None
    said: list[str] = []
    while not said or not said[-1].startswith("trial 1 starts"):
        said.append(begun.stdout.readline())
        assert said[-1], said
    begun.kill()
    begun.communicate(timeout=240)
    (tmp_path / "free").touch()
    for name in names:
        whose = "belongs to Python" if name == "random" else "is installed"
        assert f"{name}.py is not imported, because {name}, which {whose}, comes first" in "".join(
            said
        )
    folder = Folder(tmp_path / "sweeps", "demo")
    before = sweeps.history(folder).trials
    assert [trial.status for trial in before] == [Status.RUNNING] * 2

    for trials in (3, 4):
        resumed = start("resume", "demo", "--trials", trials, cwd=tmp_path, program=program)
        out, err = resumed.communicate(timeout=240)
        assert resumed.returncode == 0, out + err
        assert "the wrong one was imported" not in out + err
        found = sweeps.history(folder).trials
        assert [trial.status for trial in found] == [Status.COMPLETED] * trials
        assert [trial.score for trial in found] == [3.0] * trials


def test_a_file_is_named_if_a_module_of_its_name_comes_first(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("joblib", "own", "sys", "random"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported')\n")
    (tmp_path / "numpy").mkdir()
    (tmp_path / "numpy" / "__init__.py").write_text("raise SystemExit('imported')\n")
    spec = write_spec(tmp_path, trials=2, stop={"training_iteration": 1})
    code, out, err = Here(capsys, tmp_path / "sweeps")("run", spec, "--dry-run")
    assert code == 0, err
    named = [line for line in (out + err).splitlines() if "is not imported" in line]
    assert [line.partition(": ")[2].partition(" is not")[0] for line in named] == [
        str(tmp_path / file) for file in ("joblib.py", "numpy/__init__.py", "random.py", "sys.py")
    ]
    assert "joblib.py is not imported, because joblib, which is installed, comes first" in named[0]
    assert "sys.py is not imported, because sys, which belongs to Python, comes first" in named[3]


def test_a_compiled_module_does_not_hide_its_own_source(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    package = tmp_path / "compiled_beside_the_spec"
    package.mkdir()
    for file in ("__init__.py", f"__init__{EXTENSION_SUFFIXES[0]}"):
        (package / file).write_text("")
    spec = write_spec(tmp_path, trials=2, stop={"training_iteration": 1})
    code, out, err = Here(capsys, tmp_path / "sweeps")("run", spec, "--dry-run")
    assert code == 0, err
    assert "is not imported" not in out + err


def test_a_trainable_in_a_file_that_another_module_hides_is_told_to_rename_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "colorsys.py").write_text("def train(config):\n    pass\n")
    spec = write_spec(tmp_path, trainable="colorsys:train", trials=2)
    code, _, err = Here(capsys, tmp_path / "sweeps")("run", spec, "--dry-run")
    assert code == 2
    assert f"which comes before {tmp_path / 'colorsys.py'}: rename that file" in err

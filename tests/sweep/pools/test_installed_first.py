"""Files that are called as what is installed disturb no process of a sweep."""

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from tests.support.command_line import Here, start, write_spec


@pytest.mark.slow
def test_a_file_called_as_an_installed_package_is_named_and_never_imported(tmp_path: Path) -> None:
    names = ("sweep", "trainables", "optuna", "joblib", "random")
    for name in names:
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong one was imported')\n")
    spec = write_spec(tmp_path, trials=2, stop={"training_iteration": 1}, scheduler="fifo")
    # As the installed program: `python -m` would put the current folder first itself.
    program = [
        "-c",
        "import sys; del sys.path[0]; from sweep.cli.main import main; sys.exit(main())",
    ]
    for words in (["run", spec], ["resume", "demo", "--trials", 4]):
        begun = start(*words, cwd=tmp_path, program=program)
        out, err = begun.communicate(timeout=240)
        assert begun.returncode == 0, out + err
        assert "the wrong one was imported" not in out + err
        if words[0] == "run":
            for name in names:
                whose = "belongs to Python" if name == "random" else "is installed"
                assert f"{name}.py is not imported: {name}, which {whose}, comes first" in err


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
    assert "joblib.py is not imported: joblib, which is installed, comes first" in named[0]
    assert "sys.py is not imported: sys, which belongs to Python, comes first" in named[3]


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

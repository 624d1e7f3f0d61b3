"""A spec without a name makes a sweep that is called as its file."""

from pathlib import Path

import pytest

import sweep
from sweep.cli.main import main
from sweep.ledger.folder import free_name
from sweep.spec.sections import check_name

SPEC = """\
trials: 2
trainable: tests.support.quadratic:Quadratic
metric: loss
mode: min
space: {lr: {loguniform: [1e-3, 0.9]}}
stop: {training_iteration: 1}
trackers: []
"""


def test_a_sweep_without_a_name_is_called_as_its_file_and_numbered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("My try.yaml").write_text(SPEC)
    run = ["run", "My try.yaml", "--pool", "inline"]
    assert main(run) == 0
    assert "this sweep is named" not in capsys.readouterr().err
    assert main(run) == 0
    first = capsys.readouterr().err.splitlines()[0]
    assert first == (
        "sweep: this sweep is named 'My-try-2', because My-try exists already; `sweep resume "
        "My-try` continues that one"
    )
    assert main([*run, "--name", "given"]) == 0
    assert {path.name for path in Path("sweeps").iterdir()} == {"My-try", "My-try-2", "given"}


def test_from_python_the_sweep_called_as_the_file_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(SPEC)
    for trials in (2, 3):
        found = sweep.run(
            space=file, trials=trials, root=tmp_path / "sweeps", pool="inline", progress=False
        )
    assert found.name == "small"
    assert len(found.trials) == 3


def test_a_long_name_is_cut_for_its_number(tmp_path: Path) -> None:
    for name, free in (("x" * 99, "x" * 98 + "-2"), ("y" * 98, "y" * 98 + "-2")):
        assert free_name(tmp_path, name) == name
        (tmp_path / name).mkdir()
        assert check_name(free_name(tmp_path, name)) == free

"""Tests of the comparison of our costs with those of another checkout."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.speed import __main__ as speed
from benchmarks.speed import against, report, runner
from benchmarks.speed.cases import Side

#: A command whose child outlives it, and computes for half a second.
LEAVES_A_CHILD = """
import subprocess, sys, tempfile
from benchmarks.speed.measures.tree_cost import cpu_seconds
burn = "import time\\nwhile time.process_time() < 0.5: pass"
starts = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {burn!r}])"
print(cpu_seconds([sys.executable, "-c", starts], tempfile.gettempdir()))
"""


def other_checkout(root: Path) -> Path:
    """Return a checkout in which every figure is seven."""
    measures = root / "benchmarks" / "speed" / "measures"
    measures.mkdir(parents=True)
    tells = "import json\ndef print_figure(value):\n    print(json.dumps({'value': 7.0}))\n"
    (measures / "clock.py").write_text(tells)
    for folder in (measures, measures.parent, measures.parent.parent):
        (folder / "__init__.py").touch()
    return root


def test_each_side_is_measured_with_the_packages_of_its_own_checkout(tmp_path: Path) -> None:
    root = str(other_checkout(tmp_path))
    assert runner.measure(Side("sweep", "fixed", ("2",))) == 2.0
    assert runner.measure(Side("before", "fixed", ("2",), root=root)) == 7.0


def test_a_cost_may_be_a_tenth_more_than_that_of_the_other_checkout(tmp_path: Path) -> None:
    measures = Path(runner.__file__).with_name("measures")
    for name, case in against.cases(tmp_path, "before").items():
        assert (measures / f"{case.ours.module}.py").exists()
        assert (case.ours.root, case.other.root) == (None, str(tmp_path))
        assert case.ours.arguments == case.other.arguments
        rows = [report.table([runner.Figures(case, [runner.Pair(at, 100.0)])]) for at in (110, 112)]
        assert [row.endswith("| at most 1.1 | yes |") for row in rows] == [True, False], name


def test_a_name_that_is_no_cost_is_refused_with_those_that_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runner, "version", lambda _root: "before")
    asked = ["speed", "--against", str(tmp_path), "--only", "ppo-sb3"]
    monkeypatch.setattr(sys, "argv", asked)
    with pytest.raises(SystemExit):
        speed.main()
    assert "ppo-sb3; expected result, saved, ppo, checkpoint, trials" in capsys.readouterr().err


def test_processes_that_outlive_a_command_count_with_it() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", LEAVES_A_CHILD], capture_output=True, text=True, check=True
    )
    assert float(ran.stdout) >= 0.5


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        "result",
        pytest.param("saved", marks=pytest.mark.proof),
        pytest.param("ppo", marks=pytest.mark.proof),
    ],
)
def test_a_result_costs_something(kind: str) -> None:
    assert 1.0 < runner.measure(Side("sweep", "result_cost", (kind,))) < 1e6

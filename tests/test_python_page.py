"""What docs/python.md and docs/notebook.ipynb show is true: both are run."""

import json
import re
from pathlib import Path

import pytest

import sweep
from tests.support import notebook, scripts

HERE = Path(__file__).parents[1]
PAGE = (HERE / "docs/python.md").read_text(encoding="utf-8")
NOTEBOOK = HERE / "docs/notebook.ipynb"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    return [body for kind, body in FENCE.findall(PAGE) if kind == language]


@pytest.mark.slow
def test_the_script_and_the_commands_of_the_page_work_in_their_order(tmp_path: Path) -> None:
    (tmp_path / "sweeping.py").write_text(blocks("python")[0])
    (commands,) = blocks("sh")
    for line in commands.splitlines():
        words = line.split()
        run = [] if words[0] == "python" else ["-m", "sweep.cli.main"]
        done = scripts.python([*run, *words[1:]], tmp_path)
        assert done.returncode == 0, f"{line}\n{done.stderr}"
    assert len(sweep.load("sweeping", root=tmp_path / "sweeps").trials) == 18


@pytest.mark.slow
def test_the_trainer_without_a_sweep_runs(tmp_path: Path) -> None:
    (script,) = [body for body in blocks("python") if body.startswith("# alone.py")]
    (tmp_path / "alone.py").write_text(script)
    done = scripts.python(["alone.py"], tmp_path)
    assert done.returncode == 0, done.stderr


def test_every_attribute_that_the_page_lists_is_there() -> None:
    tables = re.findall(r"^\| .*\n\| --- \| --- \|\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    kinds = (sweep.Sweep, sweep.Trial, sweep.Comparison)
    for kind, rows in zip(kinds, tables, strict=True):
        named = [
            cell for row in rows.splitlines() for cell in re.findall(r"`\.(\w+)", row.split("|")[1])
        ]
        assert len(named) >= 4
        assert [name for name in named if not hasattr(kind, name)] == []


@pytest.mark.slow
def test_the_notebook_runs_and_shows_what_is_committed(tmp_path: Path) -> None:
    code = f"from tests.support import notebook; notebook.run({str(NOTEBOOK)!r})"
    done = scripts.python(["-c", code], tmp_path)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    committed = [notebook.shown_in(cell) for cell in notebook.code_cells(NOTEBOOK)]
    assert found == committed
    assert sum(text is not None for text in committed) >= 4
    more = scripts.command(tmp_path, "resume", "in_a_notebook", "--trials", "13")
    assert more.returncode == 0, more.stderr


def test_the_notebook_is_small() -> None:
    assert NOTEBOOK.stat().st_size < 20_000

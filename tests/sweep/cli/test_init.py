"""`sweep init`: what it writes runs as it is, and nothing is overwritten."""

import shlex
from pathlib import Path

import pytest

from sweep.cli.main import main
from sweep.cli.train import TEMPLATES
from tests.support.command_line import Here, start


@pytest.fixture
def here(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Here:
    monkeypatch.chdir(tmp_path)
    return Here(capsys, tmp_path / "sweeps")


@pytest.mark.parametrize("kind", TEMPLATES)
def test_what_is_written_runs_and_learns(kind: str, here: Here, tmp_path: Path) -> None:
    assert main(["init", "mine", "--kind", kind]) == 0
    few = ["--trials", "3", "--set", "trackers=[]", "--pool", "inline"]
    code, out, _ = here("run", "mine/space.yaml", *few)
    assert (code, "finished: 3 of 3 trials" in out) == (0, True)
    scores = [trial["score"] for trial in here.json("results", "mine")["trials"]]
    assert max(scores) > -0.5
    written = {path.name for path in (tmp_path / "mine").iterdir()} - {"__pycache__"}
    assert written == {*TEMPLATES[kind], "sweep.schema.json"}


@pytest.mark.slow
def test_of_an_example_without_random_numbers_no_luck_is_claimed(
    here: Here, tmp_path: Path
) -> None:
    """Its trials run in processes of their own, in which nothing else has imported torch."""
    assert main(["init", "mine"]) == 0
    few = ["--trials", "12", "--set", "trackers=[]", "--jobs", "1", "--root", here.root]
    process = start("run", "mine/space.yaml", *few, cwd=tmp_path)
    out, err = process.communicate()
    assert (process.returncode, "on a new seed" in out) == (0, False), err
    code, out, _ = here("best", "mine")
    assert (code, "scores contain no luck" in out, "expected on" in out) == (0, True, False)
    assert here("report", "mine", "--out", tmp_path / "page.html")[0] == 0
    page = (tmp_path / "page.html").read_text()
    assert ("scores contain no luck" in page, "on a new seed" in page) == (True, False)
    assert ("too few trials to see more" in page, "is chance" in page) == (True, False)


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        *(("walker-2", "walker-2"), ("my_agent", "my_agent"), ("Walker", "Walker")),
        *(("My Exp 2", "My-Exp-2"), ("Übung", "Ubung"), ("実験", "sweep"), ("_a..b_", "a.b")),
        *(("true", "'true'"), ("2026", "'2026'"), ("1e3", "'1e3'"), ("2026-01-02", "'2026-01-02'")),
        *(("Con", "sweep-Con"), ("x" * 120, "x" * 100), ("mine-2", "mine-2")),
    ],
)
def test_the_sweep_is_called_as_its_folder(
    folder: str, name: str, here: Here, tmp_path: Path
) -> None:
    """So that a second one does not meet the first."""
    assert main(["init", folder]) == 0
    text = (tmp_path / folder / "space.yaml").read_text()
    assert f"\nname: {name}\n" in text
    called = name.strip("'")
    assert f"sweep results {called} " in text
    assert here("run", str(tmp_path / folder / "space.yaml"), "--dry-run")[0] == 0


def test_the_command_to_try_can_be_pasted(here: Here, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "my sweeps/é ü"]) == 0
    said = capsys.readouterr().out.splitlines()[-1]
    assert shlex.split(said)[-3:] == ["sweep", "run", "my sweeps/é ü/space.yaml"]


def test_a_file_that_exists_is_left_alone(here: Here, tmp_path: Path) -> None:
    (tmp_path / "trainer.py").write_text("mine")
    assert main(["init"]) == 2
    assert (tmp_path / "trainer.py").read_text() == "mine"
    assert not (tmp_path / "space.yaml").exists()

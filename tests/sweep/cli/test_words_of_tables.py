"""Tables and lines say what is so, and nothing that is not."""

import io
from pathlib import Path

from rich.console import Console, RenderableType

from sweep.cli import tables
from tests.support.command_line import Here, write_spec


def test_of_a_sweep_whose_driver_died_no_trial_runs() -> None:
    counts = {"RUNNING": 2, "PAUSED": 1}
    assert tables.counts_text(counts) == "2 running, 1 paused"
    assert tables.counts_text(counts, is_driven=False) == "2 interrupted, 1 paused"


def test_a_used_up_budget_is_named_in_the_command_that_raises_it(
    here: Here, tmp_path: Path
) -> None:
    spec = write_spec(tmp_path, budget={"timesteps": 10})
    _, out, _ = here("run", spec, "--pool", "inline")
    assert "continue    sweep resume demo" in out
    assert "--budget timesteps=NUMBER" in out


def test_a_ranking_has_steps_only_if_a_trial_counts_them(here: Here, tmp_path: Path) -> None:
    assert here("run", write_spec(tmp_path, trials=1), "--pool", "inline")[0] == 0
    data = here.json("results", "demo")
    assert "  steps  " in _text(tables.results(data))
    for row in data["trials"]:
        row["steps"] = row["own_steps"] = None
    assert "steps" not in _text(tables.results(data))


def _text(made: RenderableType) -> str:
    stream = io.StringIO()
    Console(file=stream, width=200).print(made)
    return stream.getvalue()

"""Numbers that no training should report: every command shows them, and JSON stays JSON."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import from_json

from sweep.history.results import flatten
from tests.support.command_line import Here, write_spec
from trainables import get_context, report


def _results(kind: str) -> Iterator[dict[str, Any]]:
    """Four results; those of the kind `far apart` differ from seed to seed, too."""
    odd = int(get_context().trial_name[-1]) % 2
    for place in range(4):
        if kind == "far apart":
            yield {"loss": (-1) ** (place + odd) * 1.6e308}
        else:
            steps = {"nan": math.nan, "infinite": math.inf, "long": 10**400, "longest": 10**5000}[
                kind
            ]
            yield {"loss": 1.0, "timesteps_total": steps}


def train(config: dict[str, Any]) -> None:
    """A function that reports what its setting `kind` says."""
    for result in _results(config["kind"]):
        report(result)


def spec(tmp_path: Path, kind: str, **changes: Any) -> Path:
    how = {"trials": 2, "scheduler": "fifo", "stop": {}, **changes}
    return write_spec(tmp_path, trainable=f"{__name__}:train", config={"kind": kind}, **how)


def parsed(text: str) -> Any:
    """What a strict reader of JSON makes of it."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not a JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("kind", ["nan", "infinite", "long", "longest"])
def test_steps_of_any_size_are_shown_and_are_null_in_json(
    here: Here, tmp_path: Path, kind: str
) -> None:
    code, out, err = here("run", spec(tmp_path, kind), "--pool", "inline", "--json")
    assert (code, parsed(out)["steps"]) == (0, None), err
    for command in ("status", "results", "best", "show"):
        words = (command, "demo", 0) if command == "show" else (command, "demo")
        assert here(*words)[0] == 0
        code, out, err = here(*words, "--json")
        assert (code, err) == (0, "")
        assert parsed(out).get("steps") is None
    assert here("report", "demo", "-o", tmp_path / "report.html")[0] == 0


def test_a_whole_number_that_no_float_holds_is_kept_as_infinite() -> None:
    result = {"long": 10**5000, "below": {"longer": -(10**400)}, "exact": 2**1000, "yes": True}
    kept = {"long": math.inf, "below/longer": -math.inf, "exact": 2**1000, "yes": True}
    assert flatten(result) == kept
    assert from_json(json.dumps(flatten(result))) == kept


def test_values_that_lie_further_apart_than_a_number_says_are_shown(
    here: Here, tmp_path: Path
) -> None:
    apart = spec(tmp_path, "far apart", seeds=2)
    assert here("run", apart, "--pool", "inline")[0] == 0
    code, out, err = here("show", "demo", 0)
    assert (code, err) == (0, "")
    assert "greatest  ████  1.6e+308" in out
    assert "least     ▁▁▁▁  -1.6e+308" in out
    code, out, err = here("curves", "demo", "--json")
    assert (code, err) == (0, "")
    assert set(parsed(out)["drawn"][0]["low"]) == {None}
    code, out, _ = here("best", "demo", "--test-seeds", 3, "--pool", "inline", "--json")
    assert code == 0
    assert parsed(out)["final_evaluation"]["trials"][0]["estimate"]["low"] is None

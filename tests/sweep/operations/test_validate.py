"""`sweep validate`: the expanded space, what is doubtful in it, and what a sweep costs."""

import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from sweep.driver.start.creation.resolving import Resolved
from sweep.driver.start.prepare import prepare
from sweep.operations.rehearsal import validate
from sweep.operations.rehearsal.smoke_test import STEPS, SmokeTest, smoke_test
from sweep.operations.rehearsal.validate import preview
from sweep.spec.space import Space
from tests.support import laned
from tests.support.command_line import Here, start, write_spec
from tests.support.quadratic import TIMESTEPS_PER_STEP
from tests.support.waiting import wait_until
from trainables.trainable import Trainable


def estimate(tmp_path: Path, jobs: int = 2, **changes: Any) -> dict[str, Any]:
    """Costs with an iteration of 2 s and a checkpoint of 100 bytes."""
    resolved, _text = prepare(str(write_spec(tmp_path, **changes)), ())
    measured = smoke_test(resolved)
    smoke = SmokeTest(measured.differences, 2.0, 100, measured.advance)
    found = validate.estimate_costs(resolved, smoke, jobs)
    assert found is not None
    return found


def test_costs_are_those_of_every_trial_run_to_its_end(tmp_path: Path) -> None:
    found = estimate(tmp_path, scheduler="fifo", trials=7, stop={"training_iteration": 9})
    assert found["steps_per_iteration"] == TIMESTEPS_PER_STEP
    assert found["iterations_per_trial"] == 9
    assert found["most_steps"] == found["about_steps"] == 7 * 9 * TIMESTEPS_PER_STEP
    assert found["most_s"] == 4 * 9 * 2.0  # seven trials on two slots: four rounds
    assert found["about_s"] == 7 * 9
    assert found["most_bytes"] == 7 * (2 + 1 + 1) * 100


def test_costs_of_lanes_are_those_of_as_many_lanes_as_there_are_slots(tmp_path: Path) -> None:
    resolved, _text = prepare(str(write_spec(tmp_path, scheduler="fifo", trials=8)), ())
    smoke = SmokeTest([], 2.0, 100, {"timesteps_total": 10.0})
    found = validate.estimate_costs(resolved, smoke, 4, 2)
    assert found is not None
    assert found["iteration_s"] == 2.0 * 4 / 2
    assert found["most_s"] == 2 * 9 * 4.0  # eight trials in four lanes: two rounds


def test_with_lanes_two_trials_are_tried_out_together_and_the_restored_one_alone(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(laned.TOGETHER, str(tmp_path / "together"))
    spec = write_spec(tmp_path, trainable="tests.support.laned:Laned", trials=70)
    seen = here.json("validate", spec, "--pool", "stack")
    assert seen["restore"] == []
    assert seen["jobs"] == 64
    assert (tmp_path / "together").read_text() == "2\n2\n"
    assert not here.root.exists()


@pytest.mark.parametrize("command", [("validate",), ("run", "--dry-run")])
@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "trainable: tests.support.quadratic:Quadratic cannot train several trials in one"),
        (
            {
                "trainable": "tests.support.laned:Laned",
                "config": {"lr": 2.0},
                "space": {"noise": 1},
            },
            "config.lr: 2.0 is not allowed; expected less than 1 with lanes",
        ),
        (
            {"trainable": "tests.support.laned:Laned", "space": {"lr": {"uniform": [1.5, 2.0]}}},
            "expected less than 1 with lanes",
        ),
    ],
)
def test_a_trial_that_cannot_be_a_lane_is_refused_in_one_line_that_names_the_key(
    here: Here, tmp_path: Path, command: Sequence[str], changes: dict[str, Any], line: str
) -> None:
    spec = write_spec(tmp_path, **changes)
    code, out, err = here(command[0], spec, *command[1:], "--pool", "stack")
    assert (code, out) == (2, "")
    (said,) = err.splitlines()
    assert line in said
    assert ("space.lr" if "uniform" in str(changes) else line) in said
    assert not here.root.exists()


def test_a_pool_that_nobody_has_is_refused_by_validate(here: Here, tmp_path: Path) -> None:
    code, _, err = here("validate", write_spec(tmp_path), "--pool", "stak")
    assert code == 2
    assert "did you mean 'stack'" in err


def test_under_rungs_fewer_trials_go_on(tmp_path: Path) -> None:
    """Nine trials: 9 to rung 1, 3 on to rung 3, 1 on to rung 9."""
    found = estimate(tmp_path)
    assert found["most_steps"] == 9 * 9 * TIMESTEPS_PER_STEP
    assert math.isclose(found["about_steps"], (9 * 1 + 3 * 2 + 1 * 6) * TIMESTEPS_PER_STEP)


@pytest.mark.parametrize(
    ("stop", "iterations"),
    [
        ({"timesteps_total": 45}, 5),
        ({"time_total_s": 5}, 3),
        ({"training_iteration": 4, "timesteps_total": 1000}, 4),
        ({"loss": 0.1}, None),
    ],
)
def test_whichever_count_is_reached_first_bounds_a_trial(
    tmp_path: Path, stop: dict[str, float], iterations: int | None
) -> None:
    found = estimate(tmp_path, scheduler="fifo", stop=stop)
    assert found["iterations_per_trial"] == iterations
    assert (found["most_steps"] is None) == (iterations is None)


@pytest.mark.slow
def test_validate_shows_space_costs_and_whether_it_restores(here: Here, tmp_path: Path) -> None:
    space = {"lr": {"lognormal": [-3, 1], "bounds": [1e-3, 0.9]}, "x0": {"grid": [1, 2]}}
    aims = {"objectives": {"x": "min"}, "constraints": {"loss": "<= 2"}}
    more = {"initial": [{"lr": 0.5}], "forbid": ["lr > 0.8"], "seeds": 1, **aims}
    spec = write_spec(tmp_path, space=space, **more)
    code, out, _ = here("validate", spec)
    assert code == 0
    for line in (
        "objective x (min)",
        "constraint loss <= 2",
        "log-normal, mean -3.0 and deviation 1.0 of the logarithm, at least 0.001, at most 0.9",
        "x0 each of 1, 2 in turn",
        "never lr > 0.8",
        "first lr=0.5",
        "at most 810 steps, ",
        "about 210 steps, ",
        "the next iteration is the same, to the bit",
    ):
        assert line in " ".join(out.split())
    told = here.json("validate", spec)
    assert told["costs"]["most_steps"] == 810
    assert told["restore"] == []
    assert told["points"] is None
    assert told["initial"] == [{"lr": 0.5}]
    assert len(told["samples"]) == 10
    assert all(sample["lr"] <= 0.8 for sample in told["samples"])
    assert not here.root.exists()


def test_a_trainable_that_cannot_save_is_trained_all_the_same(here: Here, tmp_path: Path) -> None:
    spec = write_spec(
        tmp_path,
        trainable="tests.sweep.unsaveable:Unsaveable",
        scheduler="fifo",
        metric="x",
        config={"n": 3},
        stop={"training_iteration": 9},
    )
    told = here.json("validate", spec)
    assert told["costs"]["iterations_per_trial"] == 9
    assert told["costs"]["checkpoint_bytes"] is None
    assert "cannot be paused or resumed" in told["restore"][0]
    (warning,) = told["warnings"]
    assert warning.startswith("metric: the first 3 results have no x; they have ")
    assert not {"done", "experiment_tag", "trial_id"} & set(re.split("[ ,;]+", warning))
    spec.write_text(spec.read_text().replace('"n": 3', '"m": 3'))
    code, _, err = here("validate", spec)
    assert code == 2
    assert "Unsaveable raised KeyError: 'n'" in err


def returns_at_once(config: dict[str, Any]) -> dict[str, Any]:
    """A function without any report."""
    return {"loss": config["lr"]}


class DoneAtOnce(Trainable):
    """All of it is one iteration."""

    def step(self) -> dict[str, Any]:
        """The only one."""
        return {"loss": 1.0, "done": True}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        """Nothing decides the future."""
        return {}

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Nothing to take back."""


@pytest.mark.parametrize(
    ("trainable", "why"),
    [
        ("returns_at_once", "it has no checkpoint: it ended at iteration 1"),
        ("DoneAtOnce", "it ends at its first checkpoint"),
    ],
)
def test_a_trainable_that_is_done_in_one_iteration_is_no_mistake(
    trainable: str, why: str, tmp_path: Path
) -> None:
    found = smoke_test(resolved_with(trainable, tmp_path))
    assert found.differences is not None
    assert found.differences[0].startswith(why)
    assert found.seconds is not None
    assert "loss" in found.keys


# ---- trying out takes its time ---------------------------------------------------------------


class Slow(Trainable):
    """Its iteration `stuck` never ends."""

    def step(self) -> dict[str, Any]:
        """One iteration."""
        sys.stdout.write("no part of the answer\n")
        if self.iteration + 1 == self.config["stuck"]:
            self._fail()
        return {"loss": 1.0, "timesteps_total": 10 * (self.iteration + 1)}

    def _fail(self) -> None:
        threading.Event().wait()

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        """Nothing decides the future."""
        return {}

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Nothing to take back."""


class Dying(Slow):
    """The process ends in iteration `stuck`."""

    def _fail(self) -> None:
        os.kill(os.getpid(), signal.SIGSEGV)


class Parent(Slow):
    """Starts a process beside it, in which nobody looks after its parent."""

    def _fail(self) -> None:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
        Path(self.config["told"]).write_text(str(child.pid))
        super()._fail()


def resolved_with(trainable: str, tmp_path: Path, **config: Any) -> Resolved:
    """A spec of one of the trainables above, which do not search anything."""
    name = f"tests.sweep.operations.test_validate:{trainable}"
    spec = write_spec(tmp_path, trainable=name, config=config, metric="loss", scheduler="fifo")
    return prepare(str(spec), ())[0]


class Jump:
    """A clock that goes far ahead once `happened`."""

    def __init__(self, happened: Callable[[str], bool]) -> None:
        self.happened = happened
        self.ahead = 0.0
        self.told = ""

    def tell(self, text: str) -> None:
        """Take a word about what goes on."""
        self.told = text
        self.ahead = 1e6 if self.happened(text) else 0.0

    def __call__(self) -> float:
        """Seconds."""
        return time.monotonic() + self.ahead


@pytest.mark.parametrize(
    ("stuck", "timed", "untried"), [(1, False, STEPS), (2, True, STEPS[2:])], ids=["first", "next"]
)
def test_a_trainable_that_takes_too_long_is_ended_inside_its_step(
    stuck: int, timed: bool, untried: Sequence[str], tmp_path: Path
) -> None:
    resolved = resolved_with("Slow", tmp_path, stuck=stuck)
    clock = Jump(lambda text: f"iteration {stuck}" in text)
    found = smoke_test(resolved, 1000.0, clock.tell, 0.05, clock)
    assert found.cut_short is not None
    assert found.cut_short.step == f"iteration {stuck}"
    assert found.cut_short.untried == tuple(untried)
    assert found.differences is None
    assert (found.seconds is not None) == (found.size is not None) == timed
    assert (found.advance or {}).get("timesteps_total") == (10 if timed else None)
    assert "of at most 1000 s: " in clock.told
    assert " for 0 s" not in clock.told
    assert validate.estimate_costs(resolved, found, 1) is not None or not timed


@pytest.mark.slow
def test_what_a_trainable_started_ends_with_it(tmp_path: Path) -> None:
    told = tmp_path / "told"
    clock = Jump(lambda _: told.exists() and bool(told.read_text()))
    smoke_test(
        resolved_with("Parent", tmp_path, stuck=1, told=str(told)), 1e3, clock.tell, 0.05, clock
    )
    wait_until(lambda: not psutil.pid_exists(int(told.read_text())))


@pytest.mark.slow
def test_validate_says_what_it_is_at_and_what_it_did_not_try(here: Here, tmp_path: Path) -> None:
    resolved_with("Slow", tmp_path, stuck=1)
    code, out, err = here("validate", tmp_path / "spec.yaml", "--for", "5")
    assert code == 0
    assert re.search(r"sweep: trying \S+:Slow out, \d s of at most 5 s: .+\n", err)
    assert "the trainable was not tried to the end" in out
    assert "ended after 5 s" in out
    assert "restoring" in out
    assert "no part of the answer" not in out


@pytest.mark.slow
def test_what_a_trainable_prints_is_no_part_of_the_answer(here: Here, tmp_path: Path) -> None:
    resolved_with("Slow", tmp_path, stuck=0)
    done = start("validate", tmp_path / "spec.yaml", "--json", cwd=tmp_path)
    out, err = done.communicate()
    assert json.loads(out)["cut_short"] is None
    assert json.loads(out)["restore"] == []
    assert err.count("no part of the answer") == 3


def test_the_error_output_of_a_program_that_fails_is_shown_once(here: Here, tmp_path: Path) -> None:
    config = {"command": ["sh", "-c", "echo no such $0 >&2; exit 2", "option"], "settings": "stdin"}
    spec = write_spec(tmp_path, trainable="command", config=config)
    code, _, err = here("validate", spec)
    assert code == 2
    last = "ended with exit code 2: no such option"
    assert re.search(rf"sweep: validate: command raised TrainableError: .* {last}$", err.rstrip())
    assert err.count("no such option") == 1


def test_a_trainable_whose_process_dies_is_named(here: Here, tmp_path: Path) -> None:
    resolved_with("Dying", tmp_path, stuck=2)
    code, _, err = here("validate", tmp_path / "spec.yaml")
    assert code == 2
    assert "died with exit code -11 during: iteration 2" in err


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "1e300", "soon"])
def test_a_time_that_nobody_can_wait_is_refused(seconds: str, here: Here, tmp_path: Path) -> None:
    assert here("validate", write_spec(tmp_path), "--for", seconds)[0] == 2


# ---- warnings ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"n": {"randint": [1, 5]}, "x": {"choice": [1, 2], "when": {"n": 3}}}, []),
        (
            {"n": {"randint": [1, 5]}, "x": {"choice": [1, 2], "when": "n * n == 5"}},
            ["x is not used at any point: n * n == 5 never holds"],
        ),
        (
            {"n": {"uniform": [1, 5]}, "x": {"choice": [1, 2], "when": "n < 0"}},
            ["x is not used at any of 2000 random points: n < 0 never holds"],
        ),
        (
            {"_n": {"randint": [1, 4]}, "size": {"value": "_n // 2"}},
            [
                "1 of 4 points give the same settings as another point, such as {'_n': 2} and "
                "{'_n': 3}"
            ],
        ),
        ({"n": {"randint": [2, 3]}}, ["4 trials are requested, but the space has only 2 points"]),
        ({"n": {"randint": [0, 4]}, "x": {"value": "1 / (n - 2)"}}, []),
        ({f"p{i}": {"randint": [1, 10**9]} for i in range(900)}, []),
    ],
)
def test_what_a_person_may_not_have_meant_is_named(raw: Any, expected: list[str]) -> None:
    assert validate.space_warnings(Space.parse(raw), 4) == expected


def test_points_are_counted_with_their_conditions(tmp_path: Path) -> None:
    space = {
        "a": {"choice": ["x", "y"]},
        "lr": {"uniform": [0.1, 0.4], "step": 0.1, "when": {"a": "x"}},
    }
    resolved, _text = prepare(str(write_spec(tmp_path, space=space)), ())
    assert preview(resolved, 1)["points"] == 5
    assert (
        validate.count_points(Space.parse({f"p{i}": {"randint": [1, 10**9]} for i in range(9)}))
        is None
    )


class Episodic(Trainable):
    """Ends its first episode in iteration `length`, of 10 steps each."""

    def step(self) -> dict[str, Any]:
        steps = 10 * (self.iteration + 1)
        ended = {"episode_reward_mean": 1.0, "episode_len_mean": 10.0 * self.config["length"]}
        return {"timesteps_total": steps, **(ended if steps >= ended["episode_len_mean"] else {})}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {}

    def load_checkpoint(self, checkpoint: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("length", "time_attr", "grace", "expected"),
    [
        (1, "training_iteration", 1, []),
        (4, "training_iteration", 4, []),
        (
            4,
            "training_iteration",
            1,
            [
                "first appeared in iteration 4, with episodes of 40 steps",
                "the rungs 1, 3 of training_iteration lie before it and are evaluated only then",
            ],
        ),
        (
            3,
            "timesteps_total",
            20,
            [
                "first appeared in iteration 3, at timesteps_total 30, with episodes of 30 steps",
                "the rung 20 of timesteps_total lies before it and is evaluated only then",
            ],
        ),
        (
            99,
            "training_iteration",
            20,
            [
                "the first 20 results have no number in episode_reward_mean",
                "the rung 20 of training_iteration lies within them, so trials train on",
            ],
        ),
    ],
)
def test_rungs_before_the_first_episode_has_ended_are_foreseen(
    length: int, time_attr: str, grace: int, expected: list[str], tmp_path: Path
) -> None:
    spec = write_spec(
        tmp_path,
        trainable="tests.sweep.operations.test_validate:Episodic",
        config={"length": length},
        metric="episode_reward_mean",
        scheduler={"name": "asha", "time_attr": time_attr, "grace_period": grace},
        stop={time_attr: 27 * (10 if time_attr == "timesteps_total" else 1)},
    )
    resolved, _text = prepare(str(spec), ())
    warnings = validate.result_warnings(resolved, smoke_test(resolved))
    found = [one for one in warnings if one.startswith("metric: ") and "rung" in one]
    assert len(found) == bool(expected)
    for words in expected:
        assert words in found[0]
    assert not any("\n" in one for one in found)

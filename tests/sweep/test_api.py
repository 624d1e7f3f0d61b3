"""Sweeps from Python: `sweep.run`, `load` and `resume`, and the objects that they return."""

import contextlib
import enum
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import BaseModel

import sweep
from sweep.api import SpecKeys
from sweep.api.arguments import prepare_spec
from sweep.core.errors import BadConfig, NameTaken, SweepError, UnknownName, UsageError
from sweep.driver.tracking import sync
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.ledger.requests import Requests, Verb
from sweep.operations.mlflow import attaching
from sweep.operations.upkeep.repair import repair
from sweep.spec import SweepSpec
from tests.support import scripts, sweeps
from tests.support.command_line import Here, environment, write_spec
from tests.support.processes import run_python
from tests.support.quadratic import Quadratic
from tests.support.waiting import wait_until
from trainables import Trainable, get_checkpoint, report

#: A sweep that takes no time: one rung, no trackers, in this process.
QUICK: dict[str, Any] = {
    "name": "demo",
    "space": {"lr": {"loguniform": (1e-3, 0.9)}},
    "metric": "loss",
    "mode": "min",
    "trials": 4,
    "stop": {"training_iteration": 3},
    "searcher": "random",
    "trackers": [],
    "seed": 7,
}
HERE: dict[str, Any] = {"pool": "inline", "progress": False}


def descend(config: dict[str, Any]) -> None:
    start = get_checkpoint() or {"x": 5.0, "i": 0}
    x = start["x"]
    for i in range(start["i"] + 1, 10):
        x -= config["lr"] * (x - 3.0)
        report({"loss": (x - 3.0) ** 2}, checkpoint={"x": x, "i": i})


def local() -> Any:
    """A function that nobody can import."""

    def train(config: dict[str, Any]) -> None:
        descend(config)

    return train


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "sweeps"


# ---- running ------------------------------------------------------------------------------------


def test_a_function_that_nobody_can_import_is_swept(root: Path) -> None:
    found = sweep.run(local(), root=root, **HERE, **QUICK)
    assert (found.name, found.status, found.path) == ("demo", "finished", root / "demo")
    assert [trial.status for trial in found.trials] == ["COMPLETED"] * 4
    assert found.spec.trainable == "__main__:train"
    expected = [(5.0 - 3.0) ** 2 * (1 - t.settings["lr"]) ** 6 for t in found.trials]
    assert [trial.score for trial in found.trials] == pytest.approx(expected)


def test_suggested_settings_are_tried_when_the_sweep_goes_on(root: Path) -> None:
    found = sweep.run(local(), root=root, **HERE, **{**QUICK, "trials": 2})
    with pytest.raises(UsageError, match="all 2 trials are taken"):
        found.suggest({"lr": 0.25})
    with pytest.raises(UsageError, match="lr: 4 is not allowed"):
        found.suggest({"lr": 4})
    with pytest.raises(BadConfig, match="a mapping"):
        found.suggest(0.25)  # type: ignore[arg-type]
    with contextlib.closing(Requests(Folder(root, "demo").ledger)) as requests:
        requests.ask(Verb.SET, {"trials": 3})
    assert found.suggest({"lr": 0.25}, reason="as before", author="ada") == "", (
        "no driver answers yet"
    )
    again = sweep.resume("demo", root=root, **HERE)
    assert again.trial(2).settings == {"lr": 0.25}


def test_what_a_function_returns_in_its_place_is_refused_with_how_it_is_given(root: Path) -> None:
    with pytest.raises(BadConfig, match="pass the function itself"):
        sweep.run(None, root=root, **HERE, **QUICK)


def test_a_cell_that_is_run_again_after_a_mistake_says_how_failed_trials_are_tried_again(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def mistaken(config: dict[str, Any]) -> None:
        raise RuntimeError(config)

    mistaken.__name__ = mistaken.__qualname__ = "train"
    keys: dict[str, Any] = {**QUICK, "trials": 2, "pool": "inline", "root": root}
    sweep.run(mistaken, **keys)
    again = f"sweep.resume('demo', root='{root}', retry_failed=True)"
    assert f"try again   {again}" in capsys.readouterr().out
    sweep.run(local(), **keys)
    said = capsys.readouterr().out
    assert f"nothing was trained, as all trials had ended before: `{again}` tries" in said
    assert f"to start again, `sweep rm demo --root {root}` or give another name" in said
    mended = sweep.run(local(), **keys, retry_failed=True)
    assert [trial.status for trial in mended.trials] == ["COMPLETED"] * 2
    assert "nothing was trained" not in capsys.readouterr().out
    sweep.run(local(), **keys)
    assert "as all trials had ended before: a larger trials= adds some" in capsys.readouterr().out
    with pytest.raises(NameTaken, match="another name, delete it with `sweep rm demo --root"):
        sweep.run(local(), **{**keys, "mode": "max"})


GIVEN = [
    (Quadratic, "tests.support.quadratic:Quadratic"),
    ("tests.support.quadratic:Quadratic", "tests.support.quadratic:Quadratic"),
]


@pytest.mark.parametrize(("given", "name"), GIVEN)
def test_what_can_be_imported_is_named_and_not_kept(given: Any, name: str, root: Path) -> None:
    found = sweep.run(given, root=root, **HERE, **QUICK)
    assert found.spec.trainable == name
    assert not (found.path / "trainable").exists()
    assert found.status == "finished"


def test_a_class_that_nobody_can_import_is_swept(root: Path) -> None:
    class Own(Quadratic):
        pass

    found = sweep.run(Own, root=root, **HERE, **QUICK)
    assert found.spec.trainable == "__main__:Own"
    assert sweeps.decisions(Folder(root, "demo"))[0][4] == found.trial(0).score


def test_arguments_and_a_file_are_the_same_sweep(root: Path, tmp_path: Path) -> None:
    keys = {**sweeps.QUADRATIC, "trackers": []}
    del keys["trainable"]
    sweep.run(Quadratic, root=root, **HERE, **keys)
    folder = sweeps.make(tmp_path / "other", trackers=[])
    sweeps.run(folder)
    assert sweeps.decisions(Folder(root, "demo")) == sweeps.decisions(folder)


def test_what_is_kept_of_the_arguments_is_a_spec_that_runs(root: Path, tmp_path: Path) -> None:
    given = {**QUICK, "config": {"name": "ünïcode \U0001f600", "on": True, "none": None}}
    sweep.run(Quadratic, root=root, **HERE, **given)
    first = Folder(root, "demo")
    again = sweep.run(space=first.spec, root=tmp_path / "again", **HERE)
    assert again.spec == sweep.load("demo", root=root).spec
    assert sweeps.decisions(Folder(tmp_path / "again", "demo")) == sweeps.decisions(first)


def test_a_file_is_run_with_arguments_over_it(root: Path, tmp_path: Path) -> None:
    path = write_spec(tmp_path)
    found = sweep.run(space=path, root=root, **HERE, trials=2, config={"noise": 0.0})
    assert (len(found.trials), found.spec.config) == (2, {"noise": 0.0})
    assert found.spec.space == sweep.run(space=str(path), root=tmp_path, **HERE).spec.space


def test_without_a_name_it_is_the_functions_and_the_time(root: Path) -> None:
    keys = {key: value for key, value in QUICK.items() if key != "name"}
    found = sweep.run(local(), root=root, **HERE, **keys)
    assert found.name.startswith("train-20")


@pytest.mark.parametrize(
    ("called", "begins"),
    [
        ("Train_Model", "Train_Model-20"),
        ("_train", "train-20"),
        ("__", "sweep-20"),
        ("größe", "gro-e-20"),
        ("x" * 200, "xxx"),
    ],
)
def test_without_a_name_any_function_gives_one_that_is_allowed(
    called: str, begins: str, root: Path
) -> None:
    train = local()
    train.__name__ = called
    keys = {key: value for key, value in QUICK.items() if key != "name"}
    found = sweep.run(train, root=root, **HERE, **{**keys, "trials": 1})
    assert found.name.startswith(begins)
    assert found.status == "finished"


def test_numbers_of_numpy_and_paths_are_plain_data(root: Path) -> None:
    space = {"lr": {"uniform": np.array([0.1, 0.5])[:2].tolist()}, "k": np.int64(3)}
    keys = {**QUICK, "space": space, "trials": np.int64(2), "config": {"place": root}}
    found = sweep.run(local(), root=root, **HERE, **keys)
    assert found.trial(0).config["k"] == 3
    assert found.trial(0).config["place"] == str(root)


def test_the_rungs_of_a_plan_of_seeds_are_numbers_as_its_type_says() -> None:
    keys: Any = {**QUICK, "scheduler": "asha", "stop": {"training_iteration": 9}}
    keys["seeds"] = {3: 2, np.int64(9): 3}
    resolved, _ = prepare_spec(local(), keys)
    assert resolved.spec.seeds == ((3.0, 2), (9.0, 3))


@dataclass
class Layer:
    units: int
    scale: Any


class Window(BaseModel):
    begin: date
    end: datetime


def test_arrays_dates_and_dataclasses_are_what_yaml_can_hold(root: Path) -> None:
    config = {
        "hiddens": np.array([[64, 32]]),
        "weights": torch.tensor([0.5, 0.25]),
        "layer": Layer(3, np.float32(0.5)),
        "window": Window(begin=date(2026, 1, 2), end=datetime(2026, 1, 2, 3, tzinfo=UTC)),
        "since": np.array(["2026-01-02"], dtype="datetime64[ns]"),
    }
    space = {"lr": {"choice": np.array([0.1, 0.5])}}
    keys = {**QUICK, "space": space, "trials": 1, "config": config}
    found = sweep.run(local(), root=root, **HERE, **keys)
    given = {key: value for key, value in found.trial(0).config.items() if key != "lr"}
    assert given == {
        "hiddens": [[64, 32]],
        "weights": [0.5, 0.25],
        "layer": {"units": 3, "scale": 0.5},
        "window": {"begin": "2026-01-02", "end": "2026-01-02T03:00:00+00:00"},
        "since": ["2026-01-02T00:00:00"],
    }
    assert sweep.run(local(), root=root, **HERE, **keys).status == "finished"


@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        (timedelta(hours=1), "write its seconds: x.total_seconds()"),
        (np.timedelta64(5, "ns"), "write its seconds: x.total_seconds()"),
        (Decimal("0.1"), "write float(x), or str(x) for text"),
        (1j, "write its real and its imaginary part, as a list of two numbers"),
        (b"a", "write text: x.decode()"),
        ({1, 2}, "write sorted(x), a list"),
        ({1: 2}, "write its keys as text: {str(key): value for key, value in x.items()}"),
        ((n for n in range(3)), "write list(x)"),
        (Layer, "write its path as text: 'tests.sweep.test_api:Layer'"),
        (lambda: 3, "define it at the top of a module, and write its path as text: 'module:Name'"),
        (object(), "write the numbers and texts that it is made of, as a mapping"),
    ],
)
def test_what_yaml_cannot_hold_is_refused_with_how_to_write_it(
    value: Any, remedy: str, root: Path
) -> None:
    with pytest.raises(BadConfig) as caught:
        sweep.run(local(), root=root, **HERE, **QUICK, config={"x": value})
    said = str(caught.value)
    assert said.startswith("config.x: ")
    assert said.endswith(f"mappings with text as keys; {remedy}")
    assert "\n" not in said
    assert not root.exists() or not list(root.iterdir())


class Kind(str, enum.Enum):  # noqa: UP042 whose str() is not its value
    SMALL = "small"


class Size(enum.IntEnum):
    TWO = 2


def test_members_of_enumerations_are_their_values(root: Path) -> None:
    config = {"one": Kind.SMALL, Kind.SMALL: [Size.TWO]}
    space = {"lr": 0.5, "kind": {"choice": [Kind.SMALL]}}
    keys = {**QUICK, "space": space, "trials": 1, "config": config}
    found = sweep.run(local(), root=root, **HERE, **keys)
    assert found.trial(0).config == {
        "lr": 0.5,
        "kind": "small",
        "one": "small",
        "small": [2],
    }
    assert found.spec.space.raw == {"lr": 0.5, "kind": {"choice": ["small"]}}


def test_progress_is_shown_as_by_the_command_line(
    root: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    keys = {**sweeps.QUADRATIC, "trackers": []}
    del keys["trainable"]
    sweep.run(Quadratic, root=root, pool="inline", **keys)
    shown = capsys.readouterr().out.replace(str(root), "ROOT")
    here = Here(capsys, tmp_path / "other")
    _, out, _ = here("run", write_spec(tmp_path), "--pool", "inline")
    told = out.replace(str(here.root), "ROOT")

    def untimed(text: str) -> list[str]:
        return [line for line in text.splitlines() if " · " not in line and "ROOT" not in line]

    assert untimed(shown) == untimed(told)
    assert len(untimed(shown)) > 20
    sweep.load("demo", root=root).resume(progress=False, pool="inline")
    assert capsys.readouterr().out == ""


# ---- mistakes -----------------------------------------------------------------------------------

MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"metric": None}, "metric: None is not allowed; expected "),
    ({"mode": "least"}, "mode: 'least' is not allowed; expected 'min' or 'max'"),
    ({"num_samples": 4}, "num_samples: 'num_samples' is not a known key; expected one of "),
    ({"space": {"lr": {"loguniform": [1, 0]}}}, "space.lr.loguniform"),
    ({"space": {"lr": {"loguniform": {1, 2}}}}, "space.lr.loguniform: {1, 2} is not allowed"),
    ({"config": {"env": object}}, "config.env: "),
    ({"config": {"x": float("nan")}}, "config.x: nan is not allowed; expected finite numbers"),
    ({"config": {3: "x"}}, "config: {3: 'x'} is not allowed"),
    ({"config": {"x": [np.array([1.0, np.inf])]}}, "config.x[0][1]: inf is not allowed"),
    ({"scheduler": "ashaa"}, "scheduler: unknown scheduler 'ashaa'"),
    ({"stop": {"training_iteration": "x"}}, "stop.training_iteration: 'x' is not allowed"),
    ({"jobs": 0}, "jobs: 0 is not allowed; expected a whole number of at least 1"),
    ({"jobs": True}, "jobs: True is not allowed"),
    ({"timeout": "3"}, "timeout: '3' is not allowed; expected a number of seconds above 0"),
    ({"timeout": True}, "timeout: True is not allowed"),
    ({"timeout": 0}, "timeout: 0 is not allowed; expected a number of seconds above 0"),
    ({"pool": "none"}, "unknown pool 'none'"),
    ({"name": "a/b"}, "name: 'a/b' is not allowed"),
]


@pytest.mark.parametrize(("change", "words"), MISTAKES)
def test_a_mistake_is_one_line_that_names_the_argument(
    change: dict[str, Any], words: str, root: Path
) -> None:
    with pytest.raises(SweepError) as caught:
        sweep.run(local(), root=root, **{**HERE, **QUICK, **change})
    assert str(caught.value).startswith(words)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, UsageError)
    assert not root.exists() or not list(root.glob("*/sweep.db"))


def test_a_mistake_about_a_sweep_that_is_there_names_the_argument(asha: "sweep.Sweep") -> None:
    number: Any = "1"
    with pytest.raises(BadConfig, match=r"^trial: '1' is not allowed; expected the number of a"):
        asha.trial(number)
    assert asha.trial(asha.results()["trial"][0]).number == asha.best().number
    with pytest.raises(BadConfig, match=r"^budget: \[1\] is not allowed; expected a mapping from"):
        asha.resume(budget=[1])


def test_a_missing_argument_is_said_with_its_meaning(root: Path) -> None:
    with pytest.raises(
        BadConfig,
        match=r"^metric: is missing; add this key: name of the result by which trials are compared",
    ):
        sweep.run(local(), root=root, space={"lr": 0.1}, mode="min", trials=2)
    with pytest.raises(BadConfig, match=r"^trainable: None is not allowed; expected a function"):
        sweep.run(root=root, **QUICK)


def test_the_arguments_are_the_keys_of_a_spec() -> None:
    assert SpecKeys.__annotations__.keys() == SweepSpec.model_fields.keys() - {"trainable"}


def test_a_sweep_that_is_not_there_is_said_with_those_that_are(root: Path) -> None:
    sweep.run(local(), root=root, **HERE, **QUICK)
    with pytest.raises(UnknownName, match=r"unknown sweep 'dmo'; expected one of demo"):
        sweep.load("dmo", root=root)


# ---- going on -----------------------------------------------------------------------------------


def test_running_it_again_goes_on_and_does_nothing_twice(root: Path) -> None:
    first = sweep.run(local(), root=root, **HERE, **QUICK)
    before = sweeps.decisions(Folder(root, "demo"))
    assert sweep.run(local(), root=root, **HERE, **QUICK).status == "finished"
    assert sweeps.decisions(Folder(root, "demo")) == before
    more = sweep.run(local(), root=root, **HERE, **{**QUICK, "trials": 6})
    assert len(more.trials) == 6
    assert sweeps.decisions(Folder(root, "demo"))[:4] == before
    assert len(sweep.run(local(), root=root, **HERE, **QUICK).trials) == 6
    assert len(first.trials) == 6, "it is read anew each time"


def test_another_sweep_of_the_same_name_is_refused(root: Path) -> None:
    sweep.run(local(), root=root, **HERE, **QUICK)
    other = {**QUICK, "seed": 8, "space": {"lr": {"uniform": [0.1, 0.2]}}}
    with pytest.raises(NameTaken, match=r"with another space, seed; give another name"):
        sweep.run(local(), root=root, **HERE, **other)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"tracking_uri": "http://me:secret@127.0.0.1:1"}, "tracking_uri: the sweep 'demo' in"),
        ({"storage": "postgresql+psycopg://127.0.0.1:1/x"}, "storage: the sweep 'demo' in"),
    ],
)
def test_a_sweep_that_is_tracked_or_kept_elsewhere_than_is_asked_is_refused(
    asked: dict[str, Any], words: str, root: Path
) -> None:
    sweep.run(local(), root=root, **HERE, **QUICK)
    with pytest.raises(BadConfig) as caught:
        sweep.run(local(), root=root, **HERE, **QUICK, **asked)
    assert str(caught.value).startswith(words)
    (key,) = asked
    assert f"has another {key}; " in str(caught.value)
    assert f"; leave {key} out to resume this sweep" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_sweep_goes_on_where_it_is_tracked(root: Path) -> None:
    folder, uri = Folder(root, "demo"), "http://me:secret@127.0.0.1:1"
    found = sweep.run(local(), root=root, **HERE, **QUICK)
    sync.write_tracking(folder.tracking_uri, uri)
    assert sweep.run(local(), root=root, tracking_uri=uri, **HERE, **QUICK).name == found.name
    with pytest.raises(
        BadConfig, match=r"expected 'http://\*\*\*@127\.0\.0\.1:1'; leave tracking_uri"
    ):
        sweep.run(local(), root=root, tracking_uri="http://127.0.0.1:2", **HERE, **QUICK)


def test_resume_takes_what_the_command_takes(root: Path) -> None:
    found = sweep.run(local(), root=root, **HERE, **QUICK)
    wider = {"lr": {"loguniform": [1e-4, 0.9]}}
    whole: Any = np.int64
    numbers = {"budget": {"patience": whole(50)}, "stop": {"training_iteration": whole(4)}}
    again = found.resume(trials=6, space=wider, **numbers, max_disk=whole(10**9), **HERE)
    assert {trial.iterations for trial in again.trials[:6]} == {4}
    assert len(again.trials) == 6
    assert again.spec.space.raw == wider
    widest = root / "space.yaml"
    widest.write_text("lr: {loguniform: [1e-5, 0.9]}")
    for given in (widest, str(widest)):
        sweep.resume("demo", root=root, space=given, trials=6, **HERE)
        assert found.spec.space.raw == {"lr": {"loguniform": [1e-5, 0.9]}}
    sweep.resume("demo", root=root, metric="loss", trials=7, **HERE)
    assert len(found.trials) == 7
    with pytest.raises(BadConfig, match=r"^budget\.patience: -1"):
        found.resume(budget={"patience": -1}, **HERE)
    with pytest.raises(BadConfig, match=r"^checkpoint\.max_disk: 'big'"):
        found.resume(max_disk="big", **HERE)
    with pytest.raises(BadConfig, match=r"^space\.lr: "):
        found.resume(space={"lr": {1, 2}}, **HERE)
    with pytest.raises(UsageError, match="trials: 3 is less than the 7 trials"):
        found.resume(trials=3, **HERE)


def test_a_trainable_is_given_only_where_one_is_kept(root: Path) -> None:
    sweep.run(Quadratic, root=root, **HERE, **QUICK)
    with pytest.raises(
        BadConfig, match=r"^trainable: the sweep demo trains tests\.support\.quadratic"
    ):
        sweep.resume("demo", root=root, trainable=local(), **HERE)


def test_it_runs_in_a_thread_that_may_have_no_signals(root: Path) -> None:
    caught: list[BaseException] = []

    def work() -> None:
        try:
            sweep.run(local(), root=root, **HERE, **QUICK)
        except BaseException as error:  # noqa: BLE001 the test raises it
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not caught
    assert sweep.load("demo", root=root).status == "finished"


def test_two_threads_that_begin_one_sweep_make_it_once(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, both = Ledger.create, threading.Barrier(2)

    def together(*arguments: Any) -> Ledger:
        both.wait(timeout=60)
        return create(*arguments)

    def work() -> str:
        try:
            return sweep.run(local(), root=root, **HERE, **QUICK).status
        except SweepError as error:
            return type(error).__name__

    monkeypatch.setattr(Ledger, "create", together)
    with ThreadPoolExecutor(2) as threads:
        ended = [threads.submit(work) for _ in range(2)]
    assert sorted(thread.result() for thread in ended) == ["NameTaken", "finished"]
    assert [path.name for path in root.iterdir()] == ["demo"]


# ---- scripts ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """The sweep of a script that nobody killed."""
    at = tmp_path_factory.mktemp("straight")
    done = scripts.run(scripts.write(at))
    assert done.returncode == 0, done.stderr
    assert "best" in done.stdout
    return scripts.folder_of(at)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "again"), [("recorded:5:self", "script"), ("stepping:9:parent", "shell")]
)
def test_a_killed_script_goes_on_to_the_same_results(
    point: str, again: str, tmp_path: Path, straight: Folder
) -> None:
    script = scripts.write(tmp_path)
    assert scripts.run(script, failpoint=point).returncode == -signal.SIGKILL
    folder = scripts.folder_of(tmp_path)
    assert sweeps.decisions(folder) != sweeps.decisions(straight)
    if again == "shell":
        done = scripts.command(tmp_path, "resume", "demo", "--strict")
    else:
        done = scripts.run(script, "strict")
    assert done.returncode == 0, done.stderr
    assert sweeps.decisions(folder) == sweeps.decisions(straight)


INTERRUPTED = """
import os
import signal


def slow(config):
    start = get_checkpoint() or {"i": 0}
    for i in range(start["i"] + 1, 10):
        while not os.path.exists("GO") and i == 3:
            report({"loss": 1.0, "waits": True}, checkpoint={"i": 2})
        report({"loss": 1.0 / i}, checkpoint={"i": i})


def mine(number, frame):
    print("handled", number)
    raise SystemExit(9)


if __name__ == "__main__":
    if "mine" in sys.argv:
        signal.signal(signal.SIGTERM, mine)
    before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    try:
        sweep.run(
            slow, name="demo", space={"lr": {"uniform": [0.1, 0.9]}}, metric="loss",
            mode="min", trials=2, stop={"training_iteration": 10**6}, trackers=[], jobs=1,
        )
    except KeyboardInterrupt:
        print("interrupted", sweep.load("demo").status)
    finally:
        after = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
        print("handlers as before:", before == after)
"""


@contextlib.contextmanager
def running(tmp_path: Path, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """A script whose first trial trains until it is ended."""
    script = scripts.write(tmp_path, "", INTERRUPTED)
    command = [sys.executable, str(script), *arguments]
    options: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=tmp_path, env=environment(), **options) as process:
        try:
            note = tmp_path / "sweeps" / "demo" / "trials" / "0" / "progress.json"
            wait_until(note.exists)
            yield process
        finally:
            process.kill()


@pytest.mark.slow
def test_ctrl_c_saves_and_is_an_interrupt_of_the_script(tmp_path: Path) -> None:
    with running(tmp_path) as process:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
        assert process.returncode == 0, err
    assert "interrupted stopped" in out
    assert "handlers as before: True" in out
    assert "Traceback" not in err
    found = sweep.load("demo", root=tmp_path / "sweeps")
    assert found.trial(0).status == "PAUSED"
    (tmp_path / "GO").touch()
    done = scripts.command(tmp_path, "resume", "demo")
    assert done.returncode == 0, done.stderr
    assert found.status == "finished"
    assert [trial.status for trial in found.trials] == ["COMPLETED"] * 2


@pytest.mark.parametrize("progress", [True, False])
def test_ctrl_c_while_the_last_results_are_sent_is_an_interrupt_of_the_script(
    progress: bool, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweeps.interrupt_sending(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        sweep.run(local(), root=root, **{**HERE, **QUICK, "progress": progress})
    assert sweep.load("demo", root=root).status == "finished"


def test_ctrl_c_while_mlflow_is_given_a_report_is_an_interrupt_of_the_script(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = subprocess.run

    def interrupted(command: list[str], **options: Any) -> Any:
        if "sweep.operations.mlflow.attachments" in command:
            signal.raise_signal(signal.SIGINT)
        return run(command, **options)

    monkeypatch.setenv(attaching.VARIABLE, "wait")
    monkeypatch.setattr(subprocess, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sweep.run(local(), root=root, **{**HERE, **QUICK, "trackers": ["mlflow"]})
    assert sweep.load("demo", root=root).status == "finished"


@pytest.mark.slow
def test_another_signal_is_handed_on_to_the_scripts_own_handler(tmp_path: Path) -> None:
    with running(tmp_path, "mine") as process:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate()
        assert process.returncode == 9, err
    assert f"handled {signal.SIGTERM}" in out
    assert sweep.load("demo", root=tmp_path / "sweeps").status == "stopped"


@pytest.mark.slow
def test_a_signal_without_a_handler_ends_the_script_as_it_would(tmp_path: Path) -> None:
    with running(tmp_path) as process:
        process.send_signal(signal.SIGTERM)
        process.communicate()
        assert process.returncode == -signal.SIGTERM
    assert sweep.load("demo", root=tmp_path / "sweeps").status == "stopped"


def test_importing_sweep_imports_nothing_heavy() -> None:
    code = (
        "import sys, sweep\n"
        "heavy = {'torch', 'numpy', 'pandas', 'optuna', 'pydantic', 'rich', 'click', 'mlflow'}\n"
        "print(sorted(heavy & set(sys.modules)), 'sweep.api' in sys.modules)\n"
        "sweep.run\nprint('pandas' in sys.modules, 'mlflow' in sys.modules)"
    )
    assert run_python(code) == "[] False\nFalse False\n"


# ---- looking ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def asha(tmp_path_factory: pytest.TempPathFactory) -> "sweep.Sweep":
    keys = {**sweeps.QUADRATIC, "trackers": []}
    del keys["trainable"]
    return sweep.run(Quadratic, root=tmp_path_factory.mktemp("asha"), **HERE, **keys)


def test_results_are_a_table_best_first(asha: "sweep.Sweep") -> None:
    table = asha.results()
    columns = ["trial", "status", "score", "expected", "expected_error", "iterations", "steps"]
    columns += ["own_steps", "config.lr", "parent", "reason"]
    assert list(table.columns) == columns
    assert len(table) == 9
    assert list(table["score"]) == sorted(trial.score or 0.0 for trial in asha.trials)
    first = asha.trial(int(table["trial"][0]))
    best = asha.best()
    assert (first.number, first.score) == (best.number, best.score)
    assert table["config.lr"][0] == best.settings["lr"]
    assert table["status"][0] == best.status == "COMPLETED"
    assert table["iterations"][0] == best.iterations == 9
    assert "<table" in asha._repr_html_()


def scored(config: dict[str, Any]) -> None:
    for i in range(1, 4):
        report({"loss": config["lr"] / i, "score": 10.0 + i, "steps": 20.0 + i, "iteration": 77})


def test_what_a_function_reports_takes_no_column_of_the_tables_own(root: Path) -> None:
    objectives: Any = {"score": "max", "steps": "max", "training_iteration": "max"}
    found = sweep.run(scored, root=root, **HERE, **QUICK, objectives=objectives)
    table = found.results()
    assert list(table["score"]) == [found.trial(number).score for number in table["trial"]]
    assert list(table["objectives/score"]) == [13.0] * 4
    assert list(table["objectives/steps"]) == [23.0] * 4
    assert list(table["training_iteration"]) == [3.0] * 4
    assert not set(table["steps"]) & {23.0}
    curve = found.trial(0).results()
    assert (curve.columns[0], list(curve["iteration"])) == ("iteration", [1, 2, 3])


def test_a_sweep_is_where_it_was_when_the_script_has_gone_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    made = sweep.run(local(), **HERE, **QUICK)
    found = sweep.load("demo")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert len(made.results()) == len(found.results()) == 4
    assert found.path == tmp_path / "sweeps" / "demo"
    assert found.resume(trials=5, **HERE).status == "finished"


def test_curves_are_every_iteration_of_every_trial(asha: "sweep.Sweep") -> None:
    table = asha.curves()
    assert list(table.columns) == ["trial", "seed_index", "iteration", "training_iteration", "loss"]
    assert len(table) == sum(trial.iterations for trial in asha.trials)
    best = asha.best()
    its = table[table["trial"] == best.number]
    assert list(its["iteration"]) == list(range(1, 10))
    assert its["loss"].iloc[-1] == best.score
    assert list(best.results()["loss"]) == list(its["loss"])
    assert best.config["noise"] == 0.1


def traded(config: dict[str, Any]) -> None:
    report({"loss": config["x"], "gain": min(config["x"], 2.0)})


def test_of_several_objectives_the_front_is_what_none_is_better_than(root: Path) -> None:
    settings: dict[str, Any] = {**QUICK, "space": {"x": {"grid": [1.0, 2.0, 3.0]}}, "trials": 3}
    several = sweep.run(traded, root=root, **HERE, **settings, objectives={"gain": "max"})
    assert [trial.settings["x"] for trial in several.front()] == [1.0, 2.0]
    assert several.best().settings["x"] == 1.0
    one = sweep.run(traded, root=root, **HERE, **{**settings, "name": "one"})
    assert [trial.settings["x"] for trial in one.front()] == [1.0]


def test_a_sweep_without_trials_has_empty_tables(root: Path) -> None:
    folder = sweeps.make(root, trackers=[])
    found = sweep.load(folder.name, root=root)
    assert len(found.results()) == len(found.curves()) == 0
    assert "trial" in found.results().columns
    assert found.trials == found.front() == []
    assert found.status == "interrupted"
    with pytest.raises(UsageError, match="none of its 0 trials has a score"):
        found.best()
    with pytest.raises(UsageError, match="demo has no trials yet"):
        found.trial(0)


def test_they_say_what_they_are(asha: "sweep.Sweep") -> None:
    assert repr(asha) == "<sweep demo: finished, 9 of 9 trials done>"
    assert repr(asha.best()).startswith(f"<trial {asha.best().number}: COMPLETED, score 0.0")
    saved = asha.best().checkpoint()
    words = f"<checkpoint of iteration {saved.iteration}, value {saved.value:.6g}: {saved.path}>"
    assert repr(saved) == words


def test_a_checkpoint_gives_back_what_was_saved(root: Path) -> None:
    found = sweep.run(local(), root=root, **HERE, **QUICK)
    best = found.best()
    saved = best.checkpoint("last")
    assert (saved.iteration, saved.value) == (3, best.score)
    assert saved.path.is_file()
    data = saved.load()
    assert data["i"] == 3
    assert (data["x"] - 3.0) ** 2 == best.score
    assert best.checkpoint(2).load()["i"] == 2
    with pytest.raises(
        UsageError, match=r"^checkpoint: .*the iteration of a kept checkpoint: 2, 3"
    ):
        best.checkpoint(1)


def test_a_checkpoint_of_files_is_put_into_a_folder(root: Path, tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        folder = tmp_path / "saved"
        folder.mkdir(exist_ok=True)
        (folder / "weights.txt").write_text(f"{config['lr']}")
        report({"loss": config["lr"]}, checkpoint=folder)

    found = sweep.run(train, root=root, **HERE, **{**QUICK, "stop": {"training_iteration": 1}})
    best = found.best()
    with pytest.raises(UsageError, match=r"^folder: this checkpoint contains files; expected a "):
        best.checkpoint().load()
    folder = best.checkpoint().load(tmp_path / "out")
    assert (folder / "weights.txt").read_text() == str(best.settings["lr"])


def test_a_trial_is_loaded_where_it_stood(asha: "sweep.Sweep") -> None:
    best = asha.best()
    trainable = best.load("last")
    assert isinstance(trainable, Trainable)
    assert trainable.iteration == best.iterations
    with pytest.raises(
        UsageError, match=r"Quadratic has no method compute_action\(\); use load\(\)"
    ):
        best.load_policy()


def test_of_a_trial_that_has_gone_on_meanwhile_what_stands_there_now_is_loaded(root: Path) -> None:
    found = sweep.run(Quadratic, root=root, **HERE, **{**QUICK, "trials": 1})
    before = found.trial(0)
    before.checkpoint("last").path.unlink()
    repair(Folder(root, "demo"), lambda _text: None)
    assert before.load("last").iteration == found.trial(0).checkpoint("last").iteration == 2


def test_a_policy_plays_as_its_trainer_did(root: Path) -> None:
    keys = {**QUICK, "space": {"lr": {"choice": [1e-3]}}, "trials": 1, "metric": "timesteps_total"}
    config = {"env": "CartPole-v1", "rollout_fragment_length": 32}
    config |= {"observation_filter": "MeanStdFilter"}
    found = sweep.run("ppo", root=root, **HERE, config=config, **keys)
    best = found.best()
    policy, trainer = best.load_policy("last"), best.load("last")
    try:
        for seed in range(5):
            observation = np.random.default_rng(seed).normal(size=4).astype(np.float32)
            assert policy.compute_action(observation) in (0, 1)
            assert policy.compute_action(observation) == trainer.compute_action(observation)  # type: ignore[attr-defined]
    finally:
        policy.stop()
        trainer.stop()


def test_logs_and_errors_are_told(root: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        print("it begins")  # noqa: T201 into its log
        raise ValueError("no good")

    keys = {**QUICK, "trials": 1}
    found = sweep.run(train, root=root, jobs=1, progress=False, **keys)
    trial = found.trial(0)
    assert trial.status == "FAILED"
    assert trial.score is None
    assert "no good" in trial.error
    assert "it begins" in trial.log()
    assert "ValueError" in trial.reason


class Kernel:
    """Stands for IPython in a notebook's kernel: what a cell shows, and what takes its place."""

    kernel = object()

    def __init__(self) -> None:
        self.shown: list[str] = []

    def get_ipython(self) -> "Kernel":
        return self

    def display(self, data: dict[str, str], *, raw: bool, display_id: bool) -> "Kernel":
        assert (raw, display_id, self.shown) == (True, True, [])
        self.update(data, raw=raw)
        return self

    def update(self, data: dict[str, str], *, raw: bool) -> None:
        self.shown.append(data["text/plain"])


def test_a_notebook_shows_one_picture_that_is_redrawn(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = Kernel()
    monkeypatch.setitem(sys.modules, "IPython", kernel)
    monkeypatch.setitem(sys.modules, "IPython.display", kernel)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("sweep.cli.live.REDRAW_S", 0.0)
    sweep.run(local(), root=root, pool="inline", **QUICK)
    assert len(kernel.shown) > 4
    assert kernel.shown[-1] == "", "the picture goes when the sweep has ended"
    pictures = kernel.shown[1:-1]
    assert all("demo  random · fifo · min loss" in text for text in pictures)
    assert any("best" in text for text in pictures)
    assert "4 of 4 trials" in pictures[-1]
    assert max(len(line) for text in pictures for line in text.splitlines()) <= 100
    out = capsys.readouterr().out
    assert out.count("demo finished: 4 of 4 trials") == 1
    assert "trial 0 starts" not in out


def test_a_sweep_writes_its_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = sweep.run(Quadratic, root=tmp_path / "sweeps", **QUICK, **HERE)
    written = found.report()
    assert written.resolve() == tmp_path / "demo.html"
    assert "<!doctype html>" in written.read_text()[:100].lower()
    assert found.report(tmp_path / "other.html") == tmp_path / "other.html"


def test_several_sweeps_are_loaded_side_by_side(root: Path, tmp_path: Path) -> None:
    sweep.run(Quadratic, root=root, **QUICK, **HERE)
    other = {**QUICK, "name": "other", "config": {"lr": 0.25}, "space": {"x0": {"uniform": (1, 2)}}}
    sweep.run(Quadratic, root=root, **other, **HERE)
    found = sweep.load(["demo", "other"], root=root)
    assert found.names == ["demo", "other"]
    results = found.results()
    for name, row in results.set_index("name").iterrows():
        best = sweep.load(str(name), root=root).best()
        assert (row["trial"], row["score"], row["expected"]) == (
            *(best.number, best.score, best.expected),
        )
    assert list(results["config.lr"])[1] == 0.25
    settings = found.settings().set_index("setting")
    assert list(settings.loc["lr", ["demo.kind", "other.kind"]]) == ["searched", "fixed"]
    assert list(settings.loc["x0", ["demo.kind", "other.kind"]]) == ["absent", "searched"]
    assert found.report(tmp_path / "page.html").stat().st_size > 1e6
    assert repr(found) == "<comparison of demo, other>"


@pytest.mark.parametrize("names", [[], 3, ["demo", "demo"]])
def test_names_that_cannot_be_compared_are_refused(root: Path, names: Any) -> None:
    sweeps.make(root, trackers=())
    with pytest.raises(UsageError, match="name"):
        sweep.load(names, root=root)


def test_what_it_imports_is_not_looked_through_for_garbage_and_what_comes_later_is() -> None:
    """That takes a third of the import's time."""
    asked = (
        "import gc\nimport sweep\nbefore = gc.get_stats()[0]['collections']\nsweep.run\n"
        "print(gc.get_stats()[0]['collections'] - before, gc.isenabled())"
    )
    collections, enabled = run_python(asked).split()
    assert int(collections) < 10
    assert enabled == "True"

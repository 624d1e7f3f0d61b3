"""Functions that were written for other tools are trained as they are."""

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trainables import get_checkpoint, report
from trainables.errors import TrainableError
from trainables.function import forms, wrap
from trainables.trainable import TrialContext


def results(function: Callable[..., Any], config: dict[str, Any]) -> list[dict[str, Any]]:
    """The results of a trial, without those that only say that it is over."""
    trainable = wrap(function)(config, TrialContext(seed=1, metric="loss"))
    found: list[dict[str, Any]] = []
    while not found or not found[-1]["done"]:
        found.append(trainable.train())
        if trainable.has_ended:
            found.pop()
            break
    trainable.stop()
    kept = ("loss", "step", "seen", "training_iteration")
    return [{key: one[key] for key in kept if key in one} for one in found]


def yields(config: dict[str, Any]) -> Iterator[Any]:
    start = get_checkpoint() or {"i": 0}
    for i in range(start["i"] + 1, 4):
        yield {"loss": config["x"] / i}, {"i": i}


def yields_numbers(config: dict[str, Any]) -> Iterator[float]:
    yield config["x"]
    yield config["x"] / 2


class Yields:
    def __call__(self, config: dict[str, Any]) -> Iterator[Any]:
        yield from yields_numbers(config)


@pytest.mark.parametrize("function", [yields_numbers, Yields()])
def test_each_number_that_a_generator_yields_is_the_metric(function: Any) -> None:
    assert results(function, {"x": 6.0}) == [
        {"loss": 6.0, "training_iteration": 1},
        {"loss": 3.0, "training_iteration": 2},
    ]


def test_a_generator_goes_on_from_what_it_yielded_beside_its_metrics(tmp_path: Path) -> None:
    first = wrap(yields)({"x": 6.0}, TrialContext(seed=1, logdir=tmp_path))
    assert [first.train()["loss"] for _ in range(2)] == [6.0, 3.0]
    saved = first.save()
    first.stop()
    again = wrap(yields)({"x": 6.0}, TrialContext(seed=1, logdir=tmp_path))
    again.restore(saved)
    assert again.train()["loss"] == 2.0
    again.stop()


RAY = """\
class Checkpoint:
    def __init__(self, path):
        self.path = path
    @classmethod
    def from_directory(cls, path):
        return cls(path)

def report(metrics, *, checkpoint=None):
    raise RuntimeError("not in a session of Ray")

def get_checkpoint():
    raise RuntimeError("not in a session of Ray")
"""
OF_RAY = """\
import json, tempfile
from pathlib import Path
from ray import tune
from ray.tune import Checkpoint, report

def train(config):
    start = tune.get_checkpoint()
    first = json.loads((Path(start.path) / "i.json").read_text()) + 1 if start else 1
    for i in range(first, 4):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "i.json").write_text(str(i))
            tune.report({"loss": config["x"] / i}, checkpoint=Checkpoint.from_directory(folder))

def by_name(config):
    report({"loss": config["x"]})
    tune.report(loss=1.0)
"""
OF_RAY_LATE = """\
def late(config):
    def inner():
        from ray.tune import report
        report({"loss": config["x"]})
    from ray import tune
    inner()
    tune.report({"loss": 1.0})
"""


@pytest.fixture
def of_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module that was written for Ray Tune, with the least of that package."""
    before = {
        name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == "ray"
    }
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "__init__.py").touch()
    (tmp_path / "ray" / "tune.py").write_text(RAY)
    (tmp_path / "of_ray.py").write_text(OF_RAY)
    (tmp_path / "of_ray_late.py").write_text(OF_RAY_LATE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("of_ray")
    for name in [
        name for name in sys.modules if name.split(".")[0] in ("ray", "of_ray", "of_ray_late")
    ]:
        del sys.modules[name]
    sys.modules.update(before)


def test_a_function_of_ray_tune_reports_here(of_ray: Any, tmp_path: Path) -> None:
    assert [one["loss"] for one in results(of_ray.by_name, {"x": 6.0})] == [6.0, 1.0]
    first = wrap(of_ray.train)({"x": 6.0}, TrialContext(seed=1, logdir=tmp_path))
    assert [first.train()["loss"] for _ in range(2)] == [6.0, 3.0]
    saved = first.save()
    first.stop()
    again = wrap(of_ray.train)({"x": 6.0}, TrialContext(seed=1, logdir=tmp_path))
    again.restore(saved)
    assert again.train()["loss"] == 2.0
    again.stop()
    with pytest.raises(RuntimeError, match="session of Ray"):
        of_ray.report({"loss": 1.0})


def test_a_function_that_imports_ray_tune_when_it_runs_reports_here(of_ray: Any) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "ray"]:
        del sys.modules[name]
    late = importlib.import_module("of_ray_late").late
    assert [one["loss"] for one in results(late, {"x": 6.0})] == [6.0, 1.0]


def named(config: dict[str, Any]) -> None:
    report(loss=config["x"])


def misnamed(config: dict[str, Any]) -> None:
    report({"loss": config["x"]}, chekpoint={})


def test_a_result_may_be_given_by_its_names() -> None:
    assert results(named, {"x": 2.0}) == [{"loss": 2.0, "training_iteration": 1}]
    with pytest.raises(
        TrainableError, match=r"given chekpoint= in addition to.*did you mean 'checkpoint'"
    ):
        results(misnamed, {"x": 2.0})


def without() -> None: ...


def two(config: Any, data: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (without, r"without\(\) takes no argument; expected one"),
        (two, r"two\(\) takes \(config, data\); expected one"),
        (named, ""),
        (Yields(), ""),
        (dict, ""),
        (lambda *given: None, ""),
    ],
)
def test_a_function_that_cannot_be_called_with_the_settings_is_told(
    function: Any, said: str
) -> None:
    found = forms.signature_problem(function)
    assert re.match(said, found) if said else not found


def imports(config: Any) -> None:
    import json

    import nowhere_a  # type: ignore[import-not-found]
    from nowhere_b.c import d  # type: ignore[import-not-found]

    try:
        import nowhere_c  # type: ignore[import-not-found]
    except ImportError:
        nowhere_c = None
    if config:
        import nowhere_d  # type: ignore[import-not-found]
    report({"loss": json.loads("1")}, checkpoint={"i": (nowhere_a, d, nowhere_c, nowhere_d)})


def test_packages_that_a_function_imports_and_nobody_has_are_found_before_it_runs() -> None:
    found = forms.missing_packages(imports)
    assert [one.split(" ")[0] for one in found] == ["'nowhere_a'", "'nowhere_b'"]
    line = imports.__code__.co_firstlineno + 3
    assert found[0] == f"'nowhere_a' (test_forms.py:{line})"
    assert forms.missing_packages(named) == []
    assert forms.missing_packages(SimpleNamespace()) == []

"""A function is known to be without luck only if it can have drawn no random number."""

import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from trainables.function import wrap
from trainables.trainable import Trainable, TrialContext

#: Name → line before a training function, and line between its start and its report.
BODIES = {
    "arithmetic": ("import math", "x = math.sin(5.0)"),
    "arrays": ("import numpy as np", "x = float(np.linspace(0, 1, 5).sum())"),
    "Python's stream": ("import random", "x = random.gauss()"),
    "NumPy's stream": ("import numpy", "x = numpy.random.normal()"),
    "a stream of its own": ("import numpy", "x = numpy.random.default_rng().normal()"),
    "a library": ("import torch", "x = float(torch.rand(()))"),
    "a library within": ("", "import gymnasium; x = len(gymnasium.__name__)"),
    "a module of its own": ("from tests.support import sweeps", "x = len(sweeps.QUADRATIC)"),
    "a trainer": ("from trainables import algorithms", "x = len(algorithms.__name__)"),
    "its seed": ("from trainables import get_context", "x = get_context().seed % 7"),
    "another program": ("import subprocess", "x = len(subprocess.run(['true']).args)"),
}
WITHOUT_LUCK = ("arithmetic", "arrays")


def made(folder: Path, name: str, patch: pytest.MonkeyPatch) -> type[Trainable]:
    """Return the trainable of a function in a module of its own, which reports two results."""
    top, body = BODIES[name]
    file = folder / f"{name.replace(' ', '_').replace(chr(39), '_')}.py"
    text = f"""
from trainables import get_checkpoint, report
{top}

def train(config):
    start = get_checkpoint() or 0
    for i in range(start, 3):
        {body}
        report({{"x": x}}, checkpoint=i + 1)
"""
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    patch.setitem(sys.modules, file.stem, module)
    spec.loader.exec_module(module)
    return wrap(module.train)


def drawn_after(trainable: Trainable, steps: int) -> Any:
    for _ in range(steps):
        trainable.train()
    return trainable.is_random


@pytest.mark.parametrize("name", BODIES)
def test_only_a_function_without_any_draw_is_without_luck(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = made(tmp_path, name, monkeypatch)
    trainable = kind(None, TrialContext(seed=1))
    assert drawn_after(trainable, 2) is (name not in WITHOUT_LUCK)
    state = trainable.get_state()
    trainable.stop()
    again = kind(None, TrialContext(seed=1))
    again.set_state(state)
    assert drawn_after(again, 1) is (name not in WITHOUT_LUCK)
    again.stop()


def test_a_function_whose_text_is_unknown_may_draw() -> None:
    assert wrap(len)(None, TrialContext(seed=1)).is_random is True


@dataclass
class Unhashable:
    """A callable object with settings of its own; such a dataclass has no hash."""

    factor: float = 2.0

    def __call__(self, config: Mapping[str, Any]) -> float:
        return self.factor * float(config["x"])


def test_a_callable_dataclass_is_judged_as_a_function_is() -> None:
    trainable = wrap(Unhashable())({"x": 3.0}, TrialContext(seed=1, metric="loss"))
    assert trainable.train()["loss"] == 6.0
    assert trainable.is_random is True, "this module names random numbers"


def test_other_trainables_say_nothing() -> None:
    assert Trainable(None).is_random is None

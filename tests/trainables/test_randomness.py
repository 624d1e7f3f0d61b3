"""A function is known to be without luck only if it can have drawn no random number."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from trainables.core import rng
from trainables.function import wrap
from trainables.trainable import Trainable, TrialContext

#: Name → lines of a training function between its start and its report, or before the function.
BODIES = {
    "arithmetic": ("", "x = 5.0"),
    "python's stream": ("import importlib", "x = importlib.import_module('ran' + 'dom').gauss()"),
    "numpy's stream": ("import numpy", "x = getattr(numpy, 'ran' + 'dom').normal()"),
    "a stream of its own": ("import numpy", "x = numpy.random.default_rng().normal()"),
    "its seed": ("from trainables import get_context", "x = get_context().seed % 7"),
    "another program": ("import subprocess", "x = len(subprocess.run(['true']).args)"),
}


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
    monkeypatch.setattr(rng, "_LIBRARIES", frozenset())  # the tests themselves import torch
    kind = made(tmp_path, name, monkeypatch)
    trainable = kind(None, TrialContext(seed=1))
    assert drawn_after(trainable, 2) is (name != "arithmetic")
    state = trainable.get_state()
    trainable.stop()
    again = kind(None, TrialContext(seed=1))
    again.set_state(state)
    assert drawn_after(again, 1) is (name != "arithmetic")
    again.stop()


def test_where_a_library_with_streams_of_its_own_is_imported_everything_is_random(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainable = made(tmp_path, "arithmetic", monkeypatch)(None, TrialContext(seed=1))
    assert drawn_after(trainable, 1) is True
    trainable.stop()


def test_other_trainables_say_nothing() -> None:
    assert Trainable(None).is_random is None

"""Checkpoints that are whole, but hold what no trainer of these settings has saved."""

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.trainers import make
from trainables.algorithms.ppo import PPO
from trainables.checkpoint.file import write
from trainables.errors import WrongFormat

POLICY = ("trainable", "data", "policy")
WEIGHT = (*POLICY, "weights", "actor.0.weight")
STREAM = ("trainable", "data", "streams", "minibatch", "state")
GONE = object()

MISFITS: dict[str, tuple[tuple[str, ...], Callable[[Any], Any]]] = {
    "38 wrong shape": (WEIGHT, lambda w: w[:-1]),
    "38 missing parameter": (WEIGHT, lambda _: GONE),
    "38 extra parameter": ((*POLICY, "weights"), lambda w: {**w, "extra": np.zeros(3)}),
    "38 double precision": (WEIGHT, lambda w: w.astype(np.float64)),
    "38 whole numbers": (WEIGHT, lambda w: w.astype(np.int32)),
    "38 a text": (WEIGHT, lambda _: "weights"),
    "38 moments of another shape": (
        (*POLICY, "optimizer", "actor.0.weight", "exp_avg"),
        lambda m: m[:-1],
    ),
    "39 negative position": ((*STREAM, "state"), lambda _: -1),
    "39 another generator": ((*STREAM[:-1], "bit_generator"), lambda _: "MT19937"),
    "39 short key of MT19937": (("streams", "numpy", "state", "key"), lambda key: key[:10]),
    "39 short state of torch": (("streams", "torch", "state"), lambda state: state[:10]),
    "no streams": (("streams",), lambda _: None),
    "no data": (("trainable", "data"), lambda _: {}),
    "counters of texts": (("counters",), lambda _: "many"),
}


@pytest.fixture(scope="module")
def trained() -> dict[str, Any]:
    trainer = make()
    trainer.train()
    return trainer.get_state()


@pytest.fixture(scope="module")
def fresh() -> PPO:
    return make()


@pytest.mark.parametrize("find_mismatch", MISFITS.values(), ids=MISFITS.keys())
def test_a_state_of_another_shape_is_refused_with_its_file_and_reason(
    find_mismatch: tuple[tuple[str, ...], Callable[[Any], Any]],
    trained: Mapping[str, Any],
    fresh: PPO,
    tmp_path: Path,
) -> None:
    path, change = find_mismatch
    state = copy.deepcopy(dict(trained))
    *above, last = path
    inner: Any = state
    for key in above:
        inner = inner[key]
    inner[last] = change(inner[last])
    if inner[last] is GONE:
        del inner[last]
    saved = write(tmp_path, 1, {}, state)
    with pytest.raises(WrongFormat, match="does not fit this PPO") as refusal:
        fresh.restore(saved.path)
    assert str(refusal.value).startswith(str(saved.path))
    assert len(refusal.value.reason) <= 300
    assert "\n" not in str(refusal.value)


def test_the_state_fits_before_it_is_spoilt(
    trained: Mapping[str, Any], fresh: PPO, tmp_path: Path
) -> None:
    fresh.restore(write(tmp_path, 1, {}, trained).path)
    assert fresh.iteration == 1

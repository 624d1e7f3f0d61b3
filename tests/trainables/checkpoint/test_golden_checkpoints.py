"""Checkpoints that earlier versions wrote are read for ever; one file per format, never made anew.

The file of format 1 was written by `write(folder, 3, {"sweep": "golden"}, state(), trust=KEY)` with
segments of 256 bytes for arrays of 1000 bytes and more.
"""

from collections import deque
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest
import torch

from trainables.checkpoint.file import parse_name, read, verify
from trainables.checkpoint.signing import Opaque, Trust
from trainables.checkpoint.tagged import state_type

GOLDEN = sorted((Path(__file__).parents[1] / "golden").glob("*/*.swck"))
KEY = Trust(b"golden " * 4 + b"key.")


@state_type("tests.golden", version=1)
class Golden:
    def __init__(self, value: Any) -> None:
        self.value = value

    def to_state(self) -> Any:
        return self.value

    @classmethod
    def from_state(cls, state: Any, version: int) -> Self:
        return cls(state)


def state() -> dict[Any, Any]:
    return {
        "constants": [None, True, -1, 2**70, 1.5, "ä\0", b"bytes", (1, 2, 3, 4)],
        "sets": [{1, "x"}, frozenset({None})],
        "small": np.arange(3, dtype=np.int16),
        "inside": np.arange(100, dtype=np.float32),
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "large": np.arange(400, dtype=np.float32).reshape(50, 8),
        "scalar": np.float64(0.1),
        "deque": deque([1, 2], maxlen=5),
        "tensor": torch.arange(4, dtype=torch.int64),
        "bfloat16": torch.ones(2, dtype=torch.bfloat16),
        "object": Golden({"n": 7}),
        "file": Opaque(b"\x80\x04N."),
        5: {"nested": {"deeper": [[]]}},
    }


def test_each_format_has_one_golden_checkpoint() -> None:
    assert [path.parent.name for path in GOLDEN] == ["format-1"]


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.parent.name)
def test_golden_checkpoints_are_read_bit_for_bit(path: Path) -> None:
    named = parse_name(path.name)
    assert named is not None
    header = verify(path, named[1])
    assert (header["sweep"], header["step"]) == ("golden", 3)
    found, expected = read(path, trust=KEY).state, state()
    assert list(found) == list(expected)
    for key in expected:
        assert _bits(found[key]) == _bits(expected[key]), key


def _bits(value: Any) -> Any:
    if isinstance(value, Golden):
        return value.value
    if isinstance(value, torch.Tensor):
        return str(value.dtype), value.tolist()
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype, value.shape, value.tobytes("A")
    return repr(value)

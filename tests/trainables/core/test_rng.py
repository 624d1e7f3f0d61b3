"""Named streams are independent and the same everywhere; the global ones are state."""

import json
import random
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainables.core import rng

_path = st.lists(st.text(max_size=4) | st.integers(-5, 5), max_size=4).map(tuple)


@given(st.integers(0, 2**64), _path, _path)
def test_two_paths_give_the_same_stream_only_if_they_are_equal(
    seed: int, one: tuple[Any, ...], other: tuple[Any, ...]
) -> None:
    assert (rng.integer(seed, *one) == rng.integer(seed, *other)) == (one == other)


def test_streams_do_not_change_between_versions() -> None:
    assert rng.integer(1, "env", 0) == 4195302591643286339
    assert rng.generator(1, "env", 0).integers(1000, size=3).tolist() == [472, 16, 978]


def test_a_seed_gives_other_streams_than_its_neighbour() -> None:
    assert rng.integer(1, "env") != rng.integer(2, "env")


def test_a_generator_continues_from_its_state() -> None:
    stream = rng.generator(3, "noise")
    stream.random(5)
    state = rng.get_generator_state(stream)
    expected = stream.random(5)
    again = rng.generator(0)
    rng.set_generator_state(again, state)
    assert np.array_equal(again.random(5), expected)


def _draws() -> list[float]:
    """A number of each kind from each global stream, the cached halves of normal pairs included."""
    return [
        random.random(),  # noqa: S311 the global stream is what is tested
        random.gauss(0, 1),
        float(np.random.random()),  # noqa: NPY002 the global stream is what is tested
        float(np.random.standard_normal()),  # noqa: NPY002
        float(torch.rand(1, dtype=torch.float64)),
        float(torch.randn(1, dtype=torch.float64)),
    ]


def test_seeding_sets_all_three_global_streams() -> None:
    rng.seed_global(5, "global")
    first = _draws()
    rng.seed_global(5, "global")
    assert _draws() == first
    rng.seed_global(6, "global")
    assert all(a != b for a, b in zip(_draws(), first, strict=True))


@pytest.mark.parametrize("drawn_before", [0, 1, 2, 3])
def test_the_global_streams_continue_from_where_they_were_captured(drawn_before: int) -> None:
    rng.seed_global(5)
    for _ in range(drawn_before):
        _draws()
    state = rng.capture_global()
    expected = [_draws() for _ in range(3)]
    rng.seed_global(9)
    rng.restore_global(state)
    assert [_draws() for _ in range(3)] == expected


def test_pythons_stream_goes_on_from_a_checkpoint_that_lists_its_words() -> None:
    rng.seed_global(5)
    _draws()
    version, internal, gauss = random.getstate()
    state = {**rng.capture_global(), "python": [version, list(internal), gauss]}
    expected = _draws()
    rng.restore_global(state)
    assert _draws() == expected


def test_the_global_streams_are_few_values_to_a_checkpoint() -> None:
    version, words, gauss = rng.capture_global()["python"]
    assert (version, type(words), gauss) == (3, bytes, None)
    assert np.frombuffer(words, dtype="<u4").tolist() == list(random.getstate()[1])


def test_capturing_draws_nothing_and_is_no_view() -> None:
    rng.seed_global(5)
    expected = _draws()
    rng.seed_global(5)
    state = rng.capture_global()
    assert _draws() == expected
    rng.restore_global(state)
    assert _draws() == expected


_LAZY = """
import json, sys
from trainables.core import rng
def draw():
    import torch
    return torch.rand(3).tolist()
rng.seed_global(5, "global")
assert "torch" not in sys.modules
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "course",
    [
        "",
        "state = rng.capture_global(); rng.seed_global(6); rng.restore_global(state)",
        "state = rng.capture_global(); rng.seed_global(6); draw(); rng.restore_global(state)",
        "state = rng.capture_global(); draw(); rng.restore_global(state)",
        "rng.seed_global(6); rng.seed_global(5, 'global')",
        "import importlib.util; assert importlib.util.find_spec('torch')",
    ],
    ids=[
        "seeded",
        "restored",
        "restored after import",
        "drawn and restored",
        "seeded again",
        "looked for",
    ],
)
def test_torch_imported_later_starts_where_its_stream_was_put(course: str) -> None:
    rng.seed_global(5, "global")
    expected = torch.rand(3).tolist()
    assert _run(f"{_LAZY}{course}\nprint(json.dumps(draw()))") == expected


@pytest.mark.slow
def test_a_state_captured_with_torch_is_restored_before_its_import() -> None:
    rng.seed_global(5, "global")
    torch.rand(7)
    state = rng.capture_global()["torch"]["state"]
    expected = torch.rand(3).tolist()
    course = (
        "import numpy as np; state = rng.capture_global()\n"
        f"state['torch'] = {{'state': np.array({state.tolist()}, dtype=np.uint8)}}\n"
        "rng.restore_global(state); assert 'torch' not in sys.modules\n"
        "assert 'state' in rng.capture_global()['torch']\n"
    )
    assert _run(f"{_LAZY}{course}print(json.dumps(draw()))") == expected


def _run(code: str) -> Any:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)

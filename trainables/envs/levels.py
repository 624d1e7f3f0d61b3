"""How exactly environments come back from a checkpoint: measured, never believed.

A restored copy runs beside the original and every number is compared. Levels:

    A  exact state: the copy did the same to the bit
    C  episode boundary: the episode in flight is dropped on restore, and the next one starts from
       a seed derived from the trial's
    D  not bit-exact: a clock decides what happens, by the trial's settings (``sample_async``,
       ``min_iter_time_s``), never measured; environments come back as at C
"""

import copy
from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np

from trainables import rng
from trainables.envs.vector import Lanes

Level = Literal["A", "C", "D"]
LEVELS: Mapping[str, str] = {
    "A": "A exact state",
    "C": "C episode boundary",
    "D": "D not bit-exact",
}

HEAD_STEPS = 53  # prime: episodes of one length must not all end just there
TAIL_STEPS = 100
FORCED_RESET = 60


def measure(make: Callable[[], Lanes], seed: int) -> Level:
    """The level of what `make` gives, by running a restored copy beside an original.

    Nothing of a training is touched: both are made for the purpose and the global streams are put
    back.
    """
    streams = rng.capture_global()
    original, restored = make(), make()
    try:
        return _measure(original, restored, seed)
    finally:
        original.close()
        restored.close()
        rng.restore_global(streams)


def _measure(original: Lanes, restored: Lanes, seed: int) -> Level:
    try:
        original.reset(_seeds(original, seed, "original"))
        _run(original, seed, "head", HEAD_STEPS)
        if original.left_out():
            return "C"  # what is left out may matter only after more steps than are measured
        captured = copy.deepcopy(original.get_state())
        position = rng.capture_global()
        expected = _run(original, seed, "tail", TAIL_STEPS)
        restored.reset(_seeds(restored, seed, "copy"))
        restored.set_state(captured)
        rng.restore_global(position)
        seen = _run(restored, seed, "tail", TAIL_STEPS)
    except Exception:  # noqa: BLE001 what breaks in any way is not exact; training will say why
        return "C"
    return "A" if seen == expected else "C"


def _seeds(lanes: Lanes, seed: int, name: str) -> list[int]:
    return [rng.integer(seed, "measure", name, i) % 2**31 for i in range(lanes.unit_count)]


def _run(lanes: Lanes, seed: int, name: str, steps: int) -> list[bytes]:
    """All that `steps` random actions bring about, as bytes; the tail is reset once on the way."""
    choices = [copy.deepcopy(lanes.action_space) for _ in range(lanes.count)]
    for i, space in enumerate(choices):
        space.seed(rng.integer(seed, "measure", name, "actions", i) % 2**31)
    seen: list[bytes] = []
    for t in range(steps):
        if t == FORCED_RESET:
            seen.append(lanes.reset(None).tobytes())
        drawn = [space.sample() for space in choices]
        step = lanes.step(np.asarray(drawn))
        ended = np.flatnonzero(step.terminated | step.truncated)
        finals = [np.asarray(step.finals[lane]) for lane in ended]
        parts = [step.observations, step.rewards, step.terminated, step.truncated, *finals]
        seen += [np.asarray(part).tobytes() for part in parts]
    return seen

"""Measured exactness of environments that are restored from a checkpoint.

Levels:

    A  exact state: a restored copy behaves the same, bit for bit
    B  seed and action replay: every episode begins in a new environment, and a replayed episode
       is the same, bit for bit, whatever was played in between
    C  episode boundary: the unfinished episode is dropped on restore, and the next one starts from
       a seed derived from the trial's
    D  nothing is exact: the same seed and actions had different results, the environments are
       EnvPool's, whose state cannot be read (``env_engine``), or results depend on the clock
       (`trainables.trainer.config.TrainerConfig.clock_settings`); environments are restored from an
       exact state if they have one, otherwise as at C

The level depends on the environment and its settings alone, not on the clock or on a seed. If
something suggests chance (threads, other processes, a clock), a single comparison may succeed by
luck. Then `TIMES` comparisons are made, with pauses in between, and the weakest level counts.
"""

import contextlib
import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self, get_args

from trainables.core import rng
from trainables.envs import make
from trainables.envs.calls.faults import closing, logging_once
from trainables.envs.exactness import traces
from trainables.envs.exactness.comparison import SEED, Episodes, state_failure
from trainables.envs.exactness.watching import announce_call, listening
from trainables.envs.make import EnvironmentConfig

#: Level of exactness; see the module's docstring.
Level = Literal["A", "B", "C", "D"]
#: Level → description.
LEVELS: Mapping[Level, str] = {
    "A": "A exact state",
    "B": "B seed and action replay",
    "C": "C episode boundary",
    "D": "D not bit-exact",
}
#: Levels at which the running episodes are restored.
EXACT: tuple[Level, ...] = ("A", "B")
#: Number of measurements of an environment with signs of chance.
TIMES = 3
#: Duration from which a measurement is not repeated just because of a clock, seconds.
BRIEF_S = 20.0
#: Number of beats between two counts of child processes, which are slow.
SELDOM = 16
#: Longest pause before a call in a repeated measurement, seconds.
PAUSE_S = 0.003


@dataclass(frozen=True)
class Measured:
    """The measured exactness of an environment: a level, and why it is not a better one.

    Levels: A, its state can be saved and restored; B, its episodes can be replayed; C, neither; D,
    not even equal seeds give equal results.
    """

    level: Level
    """Level of exactness, from A, the best, to D."""
    reasons: tuple[str, ...] = ()
    """Reason for each better level that was tried and does not hold: ``not A: …``."""
    unsaved_attributes: tuple[str, ...] = ()
    """Names of attributes of the environment that cannot be saved."""

    def as_data(self) -> dict[str, Any]:
        """Return the measurement as JSON data, for ledgers and checkpoints.

        The keys are ``level``, and the lists ``reasons`` and ``unsaved_attributes``.
        """
        return {key: list(v) if key != "level" else v for key, v in asdict(self).items()}

    @classmethod
    def of_data(cls, data: object) -> Self | None:
        """Return the measurement that `as_data` described; None if the data are something else."""
        if not isinstance(data, Mapping) or data.keys() != {
            "level",
            "reasons",
            "unsaved_attributes",
        }:
            return None
        lists = [data["reasons"], data["unsaved_attributes"]]
        if data["level"] not in get_args(Level) or not all(_is_texts(one) for one in lists):
            return None
        return cls(data["level"], tuple(data["reasons"]), tuple(data["unsaved_attributes"]))


def _is_texts(value: object) -> bool:
    """Return whether `value` is a list or tuple of strings."""
    return isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)


@logging_once()
def examine(config: EnvironmentConfig, restarts: bool = False) -> Measured:
    """Measure in this process how exactly an environment can be restored.

    Makes environments for it and plays them; the global streams are preserved. With signs of
    chance, such as threads or a clock, it is measured twice more, with pauses, and the weakest
    level counts; a clock alone is no reason if the first measurement was slow. With `env_level` A
    or B only that level is tried. `restarts` is True if failed environments are replaced.

    Raises ConfigError if the environment cannot be made.
    """
    began = time.perf_counter()
    with rng.preserve_global():
        with _counting() as others:
            measurements = [_measure(config, restarts)]
        announce_call()
        with closing(make.make_env(config)) as env:
            hints = [*others(), *traces.hints_of_chance(env)]
        brief = time.perf_counter() - began < BRIEF_S
        if others() or (hints and brief):
            for again in range(1, TIMES):
                with listening(_with_pauses(again)):
                    measurements.append(_measure(config, restarts))
    weakest = max(measurements, key=lambda one: one.level)
    if weakest.level == measurements[0].level:
        return measurements[0]
    why = f"measured {len(measurements)} times, as it has {' and '.join(dict.fromkeys(hints))}: "
    reasons = (*weakest.reasons[:-1], why + weakest.reasons[-1])
    return Measured(weakest.level, reasons, weakest.unsaved_attributes)


def _with_pauses(seed: int) -> Callable[[], None]:
    """Return a listener of `announce_call` that sleeps for random times, which depend on `seed`.

    So an environment that depends on the clock behaves differently each time.
    """
    lengths = random.Random(seed)  # noqa: S311 our own, and no secret

    def pause() -> None:
        """Sleep for a random time, at most `PAUSE_S` seconds."""
        time.sleep(lengths.random() * PAUSE_S)

    return pause


@contextlib.contextmanager
def _counting() -> Iterator[Callable[[], list[str]]]:
    """Yield a function that says whether threads or processes began inside the block.

    It returns a list with ``threads``, ``processes``, both or neither.
    """
    before, most = (threading.active_count(), _children()), [0, 0]
    beats = itertools.count()

    def look() -> None:
        """Update the largest numbers of threads and, less often, of child processes."""
        most[0] = max(most[0], threading.active_count())
        if next(beats) % SELDOM == 0:
            most[1] = max(most[1], _children())

    with listening(look):
        yield lambda: [
            name
            for name, count, first in zip(("threads", "processes"), most, before, strict=True)
            if count > first
        ]


def _children() -> int:
    """Return the number of child processes; 0 if the system does not list them."""
    try:
        tasks = list(Path("/proc/self/task").iterdir())
        return sum(len((task / "children").read_text().split()) for task in tasks)
    except OSError:
        return 0


def _measure(config: EnvironmentConfig, restarts: bool) -> Measured:
    """Measure the level once, the best one first; seeds the global random streams.

    A native vector environment is never at B. `restarts` is True if failed environments are
    replaced.
    """
    rng.seed_global(SEED, "measure")
    reasons: list[str] = []
    unsaved_attributes: list[str] = []
    if config.env_level != "B":
        why_not, unsaved_attributes = state_failure(config, restarts)
        if not why_not:
            return Measured("A")
        reasons.append(f"not A: {why_not}")
    if config.env_level == "A" or config.is_native:
        return Measured(
            "C", tuple(reasons or ["not B: it is a native vector"]), tuple(unsaved_attributes)
        )
    level, why_not = _measure_episodes(config)
    if why_not:
        reasons.append(f"not B: {why_not}")
    return Measured(level, tuple(reasons), tuple(unsaved_attributes))


def _measure_episodes(config: EnvironmentConfig) -> tuple[Level, str]:
    """Return level B and "" if episodes can be replayed; else C or D, and the reason.

    D is for an environment that is random in itself. Anything raised means C. If `env_level` asks
    for B, values that an environment carries from episode to episode are not looked for.
    """
    with contextlib.closing(Episodes(config)) as episodes:
        try:
            if why_not := episodes.chance_failure():
                return "D", why_not
            why_not = episodes.replay_failure()
            if not why_not and config.env_level != "B":
                why_not = episodes.memory_failure()
        except Exception as error:  # noqa: BLE001 what breaks in any way is not exact; training will say why
            return "C", f"it raised {type(error).__name__}: {error}"
    return ("C", why_not) if why_not else ("B", "")

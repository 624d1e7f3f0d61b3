"""A trainable tried out for a few iterations: whether it restores exactly, and what it costs.

Everything happens in a temporary folder and in a process of its own, which says what it is at and
is ended when its time is up, also inside one long step. Durations are seconds, sizes bytes.
"""

import contextlib
import os
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from multiprocessing import connection
from pathlib import Path
from typing import Any, Final

from sweep import plugins
from sweep.driver.creation import samples
from sweep.driver.creation.resolving import Resolved
from sweep.errors import UsageError
from sweep.history.curve import is_known
from sweep.history.results import flatten, number
from sweep.spec.stopping import COUNTERS
from trainables.core import rng
from trainables.core.processes.ending import exit_process, kill_family
from trainables.core.processes.program import become_program
from trainables.core.processes.supervised import supervised_context
from trainables.core.processes.worker import VARIABLES
from trainables.core.results import VOLATILE_KEYS
from trainables.errors import shorten
from trainables.trainable import Trainable, TrialContext

#: Result that says how long episodes are, mean steps.
EPISODE_LEN = "episode_len_mean"
#: Iterations that a trainable has to come to a checkpoint.
MOST_ITERATIONS = 20
#: Seconds after which no further iteration is begun only to see whether a result comes later.
LATER_S = 5.0
#: Seconds that it may take in all.
LONGEST_S = 60.0
#: Seconds between two words about what it is at.
EVERY_S = 1.0
#: What is tried, in this order.
STEPS: Final = (
    "training to a checkpoint",
    "saving",
    "an iteration after it",
    "restoring",
    "whether the iteration after it is the same",
    "whether later results have what the first ones lack",
)
_TO_A_CHECKPOINT, _SAVING, _ONE_MORE, _RESTORING, _COMPARING, _LATER = range(len(STEPS))
#: What is tried of a trainable that cannot save.
WITHOUT_SAVING: Final = ("two iterations", STEPS[_LATER])
_CANNOT_SAVE = "it has no save_checkpoint(): its trials run in one piece and cannot be resumed"


@dataclass(frozen=True)
class CutShort:
    """The state of a tryout when its time was up."""

    after_s: float
    doing: str
    """The step in which it was, such as ``iteration 2``."""
    doing_s: float
    """Seconds since the step began."""
    untried: tuple[str, ...]
    """Those of `STEPS`, or of `WITHOUT_SAVING`, that were not finished."""


@dataclass(frozen=True)
class Lack:
    """Results before the first one that has the metric; numbers are of ``time_attr``."""

    until: float
    """That of the last result without it."""
    came_at: float | None = None
    """That of the first result with it; None: there was none."""
    iteration: int | None = None
    """The iteration of that result."""
    episode_len: float | None = None
    """Mean steps of the episodes in that result, where it counts them."""


@dataclass(frozen=True)
class SmokeTest:
    """The results of a tryout."""

    differences: list[str] | None
    """Differences of the iteration after a restore, or the reason why there is none; empty if it is
    the same, to the bit; None if the tryout ended before it."""
    seconds: float | None = None
    """Of one iteration, the slowest that was timed; None: nothing was measured."""
    size: int | None = None
    """Of one checkpoint, with its segments; None: there was none."""
    advance: Mapping[str, float] | None = None
    """By how much one iteration advances each counter, and ``time_attr``."""
    keys: frozenset[str] = frozenset()
    """The names of the results."""
    results: int = 0
    """The number of results examined: more than two where a name of the spec was missing."""
    lack: Lack | None = None
    """None: the first result had the metric."""
    cut_short: CutShort | None = None
    """None: it came to its end."""


def smoke_test(
    resolved: Resolved,
    longest_s: float = LONGEST_S,
    show: Callable[[str], None] = lambda _: None,
    every_s: float = EVERY_S,
    clock: Callable[[], float] = time.monotonic,
    lanes: int | None = None,
) -> SmokeTest:
    """Train, save, train on; restore, train on; compare the two ends.

    What cannot save is trained alone. Times, dates and the like may differ. `show` is called with
    what it is at, in words. With `lanes` so many trials train together as lanes of one program; the
    one that is restored trains alone, since neighbours must not matter.

    Raises:
        UsageError: the trainable raised, or its process died.
    """
    spec, saves = resolved.spec, resolved.trainable.can_save()
    point = samples.draw_samples(spec.space, spec.seed, 1)[0]
    nested = spec.space.nest(point.settings, spec.config)
    config = samples.completed(resolved.trainable, spec, nested)
    with tempfile.TemporaryDirectory(prefix="sweep-validate-", ignore_cleanup_errors=True) as made:
        tryout = _Tryout(
            trainable=spec.trainable,
            paths=resolved.paths,
            config=config if lanes is None else resolved.trainable.as_lane(config, lanes),
            seed=rng.integer(spec.seed, "validate"),
            folder=Path(made),
            counters=tuple(dict.fromkeys((*COUNTERS, resolved.scheduler.time_attr))),
            named=frozenset({spec.metric, *spec.stop}),
            metric=(spec.metric, resolved.scheduler.time_attr),
            saves=saves,
            lanes=lanes or 1,
            seen=SmokeTest(None if saves else [_CANNOT_SAVE]),
        )
        return _Watch(tryout, longest_s, clock).follow(show, every_s)


@dataclass(frozen=True, kw_only=True)
class _Word:
    """A message of the process when it begins a step, and at its end."""

    doing: str = ""
    """Empty: it is over."""
    untried: tuple[str, ...] = ()
    """The steps that were not finished before."""
    seen: SmokeTest = field(default_factory=lambda: SmokeTest(None))
    """The results so far."""
    error: str = ""
    """The error that the trainable raised; empty if none."""


# ---- here: look on, and end it -----------------------------------------------------------------


class _Watch:
    """The process that tries something out, seen from outside."""

    def __init__(self, tryout: "_Tryout", longest_s: float, clock: Callable[[], float]) -> None:
        self.name = tryout.trainable
        self.longest_s = longest_s
        self.clock = clock
        self.began = self.since = clock()
        self.word = tryout.word("starting its process")
        self.pipe, theirs = connection.Pipe(duplex=False)
        self.process = supervised_context().Process(
            target=_serve, args=(theirs, tryout), name="validate", env=VARIABLES
        )
        self.process.start()
        theirs.close()

    def follow(self, show: Callable[[str], None], every_s: float) -> SmokeTest:
        """Return the results, at the end or when the time is up."""
        said_at = self.began
        try:
            while self.word.doing:
                now = self.clock()
                if now - self.began >= self.longest_s:
                    since = now - self.since
                    ended = CutShort(self.longest_s, self.word.doing, since, self.word.untried)
                    return replace(self.word.seen, cut_short=ended)
                if now - said_at >= every_s:
                    said_at = now
                    show(self._in_words(now))
                self._listen(min(every_s, self.longest_s - (now - self.began)))
        finally:
            kill_family(self.process.pid)
            self.process.join()
            self.pipe.close()
        if self.word.error:
            raise UsageError(f"validate: {self.name} raised {self.word.error}")
        return self.word.seen

    def _listen(self, seconds: float) -> None:
        connection.wait([self.pipe, self.process.sentinel], seconds)
        ended = not self.process.is_alive()  # asked first: what it said last is in the pipe then
        if self.pipe.poll():
            with contextlib.suppress(EOFError):
                self.word, self.since = self.pipe.recv(), self.clock()
                return
        # No end of file comes while a process that it has started holds the pipe open.
        if ended:
            raise UsageError(
                f"validate: the process of {self.name} died with exit code "
                f"{self.process.exitcode} in: {self.word.doing}"
            )

    def _in_words(self, now: float) -> str:
        return (
            f"trying {self.name} out: {self.word.doing} for {now - self.since:.0f} s; "
            f"{now - self.began:.0f} of at most {self.longest_s:g} s"
        )


# ---- in the process ----------------------------------------------------------------------------


def _serve(pipe: "connection.Connection[Any, Any]", tryout: "_Tryout") -> None:
    become_program()
    os.dup2(2, 1)  # standard output is for the answer
    try:
        tryout.run(pipe.send)
        last = _Word(seen=tryout.seen)
    except BaseException as error:  # noqa: BLE001 whatever it is, a person must hear of it
        last = _Word(error=_in_short(error))
    pipe.send(last)
    exit_process()


@dataclass(kw_only=True)
class _Tryout:
    """The steps that the process tries, and the results so far."""

    trainable: str
    paths: tuple[str, ...]
    config: Mapping[str, Any]
    seed: int
    folder: Path
    counters: tuple[str, ...]
    named: frozenset[str]
    """Results that the spec names."""
    metric: tuple[str, str]
    """The one that is optimised, and ``time_attr``."""
    saves: bool
    """True if the trainable can save."""
    seen: SmokeTest
    lanes: int = 1
    """Trials that train together."""
    neighbours: list[Trainable] = field(default_factory=list)
    """The further ones of them."""
    step: int = _TO_A_CHECKPOINT
    last: Mapping[str, Any] = field(default_factory=lambda: dict.fromkeys(COUNTERS, 0))
    """The newest result of the first of the two."""

    def run(self, say: Callable[[_Word], None]) -> None:
        """Train, save, train on; restore, train on; compare. What cannot save is trained alone."""
        self.say = say
        self._begin("importing it")
        cls = plugins.find_trainable(self.trainable, self.paths)
        name, metric = "validate", self.metric[0]
        context = TrialContext(self.seed, name, name, self.folder, metric=metric)
        self._begin("setting it up")
        straight = self._made(cls, context)
        try:
            if not self.saves:
                self._train_alone(straight)
                return
            first = self._train_to_checkpoint(straight)
            if not straight.at_checkpoint or first.get("done") is True:
                self.seen = replace(self.seen, differences=[_nothing_to_compare(straight)])
                return
            self._begin("saving", _SAVING)
            path = straight.save()
            files = (path, *path.parent.glob("seg-*"))
            self.seen = replace(self.seen, size=sum(file.stat().st_size for file in files))
            self.step = _ONE_MORE
            expected = self._train(straight)
        finally:
            self._end(straight)
        self._begin("setting it up again", _RESTORING)
        restored = cls(self.config, context)
        try:
            self._begin("restoring")
            restored.restore(path)
            self.step = _COMPARING
            found = self._train(restored)
            differences = _differences(expected, found)
            if differences and restored.exactness.startswith("D"):
                differences = [f"a trial is {restored.exactness}", *differences]
            self.seen, self.step = replace(self.seen, differences=differences), _LATER
            self._look_later(restored, self._missing(first, found), found)
        finally:
            self._end(restored)

    def _made(self, cls: type[Trainable], context: TrialContext) -> Trainable:
        """Return the trainable that trains to a checkpoint, and make its neighbours."""
        made = cls(self.config, context)
        seeds = [rng.integer(self.seed, "neighbour", number) for number in range(1, self.lanes)]
        self.neighbours = [cls(self.config, replace(context, seed=seed)) for seed in seeds]
        return made

    def _end(self, trainable: Trainable) -> None:
        """Stop the trainable and its neighbours, if it has any."""
        self._begin("ending it")
        trainable.stop()
        while self.neighbours:
            self.neighbours.pop().stop()

    def word(self, doing: str) -> _Word:
        """Return the message for the beginning of step `doing`."""
        alone = WITHOUT_SAVING[1:] if self.step == _LATER else WITHOUT_SAVING
        return _Word(
            doing=doing, untried=STEPS[self.step :] if self.saves else alone, seen=self.seen
        )

    def _begin(self, doing: str, step: int | None = None) -> None:
        self.step = self.step if step is None else step
        self.say(self.word(doing))

    def _train_alone(self, trainable: Trainable) -> None:
        """Two iterations, or one where the first is the last."""
        result = self._train(trainable)
        if result.get("done") is not True:
            result = self._train(trainable)
        self.step = _LATER
        self._look_later(trainable, self._missing(result), result)

    def _train_to_checkpoint(self, trainable: Trainable) -> dict[str, Any]:
        """The result at its first checkpoint, or the last one if it came to none."""
        result = self._train(trainable)
        for _ in range(1, MOST_ITERATIONS):
            if trainable.at_checkpoint or result.get("done") is True:
                break
            result = self._train(trainable)
        return result

    def _train(self, trainable: Trainable) -> dict[str, Any]:
        self._begin(f"iteration {trainable.iteration + 1}")
        began = time.perf_counter()
        if self.neighbours:
            type(trainable).train_together([trainable, *self.neighbours])
            for neighbour in self.neighbours:
                neighbour.train()
        result = flatten(trainable.train())
        self._measure(result, time.perf_counter() - began)
        reached = max(self.seen.results, trainable.iteration)
        keys = self.seen.keys | result.keys()
        lack = _lack(self.seen.lack, result, *self.metric)
        self.seen = replace(self.seen, keys=keys, results=reached, lack=lack)
        return result

    def _measure(self, result: dict[str, Any], seconds: float) -> None:
        if self.step <= _ONE_MORE:
            advance = _advance(self.last, result, self.counters)
            self.seen, self.last = replace(self.seen, advance=advance, seconds=seconds), result
        elif self.step == _COMPARING:  # the slower of the two that are the same
            slower = max(seconds, self.seen.seconds or 0.0)
            self.seen = replace(self.seen, seconds=slower)

    def _look_later(
        self, trainable: Trainable, missing: Iterable[str], last: Mapping[str, Any]
    ) -> None:
        """Further results, until they have what is `missing`: an evaluation is not in every one."""
        lacking, done = set(missing), last.get("done") is True
        end_at = time.monotonic() + LATER_S
        while lacking and not done and trainable.iteration < MOST_ITERATIONS:
            if time.monotonic() >= end_at:
                return
            result = self._train(trainable)
            lacking, done = lacking - self._found(result), result.get("done") is True

    def _missing(self, *results: Mapping[str, Any]) -> set[str]:
        """Return the names of results that the spec uses and none of `results` has."""
        return set(self.named).difference(*map(self._found, results))

    def _found(self, result: Mapping[str, Any]) -> set[str]:
        """The names that a result has; the metric only if it is a number."""
        metric, _ = self.metric
        return {name for name in result if name != metric or is_known(number(result[name]))}


def _lack(
    before: Lack | None, result: Mapping[str, Any], metric: str, time_attr: str
) -> Lack | None:
    """Return what is known of the results without the metric, after one more."""
    at = number(result.get(time_attr))
    if at is None or (before and before.came_at is not None):
        return before
    if not is_known(number(result.get(metric))):
        return Lack(at if before is None else max(at, before.until))
    if before is None:
        return None
    iteration, length = result.get("training_iteration"), number(result.get(EPISODE_LEN))
    return replace(before, came_at=at, iteration=iteration, episode_len=length)


def _nothing_to_compare(trainable: Trainable) -> str:
    """Why no iteration after a restore can be looked at."""
    if trainable.at_checkpoint:
        return "it is done at its first checkpoint: nothing follows that could be compared"
    if trainable.iteration < MOST_ITERATIONS:
        return f"it came to no checkpoint: it was done at iteration {trainable.iteration}"
    return f"it came to no checkpoint in {MOST_ITERATIONS} iterations"


def _advance(
    first: Mapping[str, Any], second: Mapping[str, Any], counters: tuple[str, ...]
) -> dict[str, float]:
    found = {}
    for key in counters:
        before, after = number(first.get(key)), number(second.get(key))
        if before is not None and after is not None and after > before:
            found[key] = after - before
    return found


def _in_short(error: BaseException) -> str:
    """An exception and where it happened, on one line."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}{where}"


def _differences(expected: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    missing = "absent"
    return [
        f"{key}: {shorten(expected.get(key, missing))} without, "
        f"{shorten(found.get(key, missing))} after save and restore"
        for key in sorted({*expected, *found})
        if key.split("/")[0] not in VOLATILE_KEYS
        and repr(expected.get(key)) != repr(found.get(key))
    ]

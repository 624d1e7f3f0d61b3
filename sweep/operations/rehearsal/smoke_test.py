"""Train a trainable for a few iterations, to measure its costs and the exactness of a restore.

It runs in a temporary folder and in a child process, which reports each step and is killed when the
time is up, even within a step. Durations are in seconds, sizes in bytes.
"""

import contextlib
import math
import os
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from multiprocessing import connection
from pathlib import Path
from typing import Any, Final

from sweep.core import plugins
from sweep.core.errors import UsageError
from sweep.driver.start.creation import samples
from sweep.driver.start.creation.resolving import Resolved
from sweep.history.curve import is_known
from sweep.history.results import flatten, to_number
from sweep.spec.stopping import COUNTERS
from trainables.core import rng
from trainables.core.processes.ending import exit_process, kill_family
from trainables.core.processes.program import become_program
from trainables.core.processes.supervised import supervised_context
from trainables.core.processes.worker import VARIABLES
from trainables.core.results import VOLATILE_KEYS
from trainables.errors import TrainableError, shorten
from trainables.trainable import Trainable, TrialContext

#: Name of the result with the mean length of episodes, in steps.
EPISODE_LEN = "episode_len_mean"
#: The largest number of iterations.
MOST_ITERATIONS = 20
#: Seconds after which no further iteration is started only to find a missing result.
LATER_S = 5.0
#: Time limit of the whole test, in seconds.
LONGEST_S = 60.0
#: Seconds between two reports of progress.
EVERY_S = 1.0
#: Steps of the test, in order.
STEPS: Final = (
    "training to a checkpoint",
    "saving",
    "an iteration after it",
    "restoring",
    "whether the iteration after it is the same",
    "whether later results have what the first ones lack",
)
_TO_A_CHECKPOINT, _SAVING, _ONE_MORE, _RESTORING, _COMPARING, _LATER = range(len(STEPS))
#: Steps of the test of a trainable that cannot save.
WITHOUT_SAVING: Final = ("two iterations", STEPS[_LATER])
#: Finding about a trainable that cannot save.
_CANNOT_SAVE = "it saves no checkpoints, so its trials cannot be paused or resumed"


@dataclass(frozen=True)
class CutShort:
    """The moment at which the time limit ended a smoke test."""

    after_s: float
    """Time limit of the test, in seconds."""
    step: str
    """Name of the step that was running, such as ``iteration 2``."""
    step_s: float
    """Duration of that step until the limit, in seconds."""
    untried: tuple[str, ...]
    """Texts of `STEPS` or `WITHOUT_SAVING` for the steps that had not finished."""


@dataclass(frozen=True)
class Lack:
    """The first part of a training, in which results do not have the metric."""

    last_without: float
    """Value of ``time_attr`` in the last result before `first_with`; minus infinity if the first
    result has the metric."""
    first_with: float | None = None
    """Value of ``time_attr`` in the first result with the metric; None if there was none."""
    iteration: int | None = None
    """Iteration of the first result with the metric; None if there was none."""
    episode_len: float | None = None
    """Mean episode length in that result, in environment steps; None if it has none, or there was
    no such result."""


@dataclass(frozen=True)
class SmokeTest:
    """The measurements of a trainable that was trained for a few iterations."""

    differences: list[str] | None
    """Lines about values that differ between the iteration after a restore and the original one, or
    one line with the reason why they were not compared. Empty if both are bit-identical; None if
    the test ended before."""
    seconds: float | None = None
    """Duration of one iteration, in seconds: of the newest before the restore, or of the one after
    it if that is slower. Without a restore, it is the newest that did not only search for missing
    names. None if nothing was measured."""
    size: int | None = None
    """Size of one checkpoint with its segments, in bytes; None if none was saved."""
    advance: Mapping[str, float] | None = None
    """Counter in results, or ``time_attr`` → its increase by one iteration, if it increased; None
    if nothing was measured."""
    keys: frozenset[str] = frozenset()
    """Names of all values that some result had."""
    results: int = 0
    """Number of iterations whose results were examined; 0 if there was none. Names of the spec that
    are missing in the first results make it larger."""
    lack: Lack | None = None
    """The training before the first result with the metric; None if no result has ``time_attr``."""
    cut_short: CutShort | None = None
    """The moment at which the time limit ended the test; None if it finished."""


def smoke_test(
    resolved: Resolved,
    longest_s: float = LONGEST_S,
    show: Callable[[str], None] = lambda _: None,
    every_s: float = EVERY_S,
    clock: Callable[[], float] = time.monotonic,
    lanes: int | None = None,
) -> SmokeTest:
    """Train a trainable in a child process, save, restore, and compare the iteration after both.

    The settings are a random point of the space, drawn with the spec's seed. A trainable that
    cannot save is only trained. Results below `VOLATILE_KEYS`, such as times, may differ.

    Args:
        longest_s: seconds after which the child is killed; the result then has `cut_short`.
        show: called with the current step in words.
        every_s: seconds between two calls of `show`, by `clock`.
        lanes: number of trials that train together as lanes of one program, or None. The restored
            trial trains alone, since other lanes must not influence it.

    Raises:
        UsageError: the trainable raised an error, or its process died.
    """
    spec, saves = resolved.spec, resolved.trainable.can_save(resolved.spec.config)
    point = samples.draw_samples(spec.space, spec.seed, 1)[0]
    nested = spec.space.nest(point.settings, spec.config)
    config = samples.complete_config(resolved.trainable, spec, nested)
    with tempfile.TemporaryDirectory(
        prefix="sweep-validate-", ignore_cleanup_errors=True
    ) as folder:
        tryout = _Tryout(
            trainable=spec.trainable,
            paths=resolved.paths,
            config=config if lanes is None else resolved.trainable.as_lane(config, lanes),
            seed=rng.integer(spec.seed, "validate"),
            folder=Path(folder),
            counters=tuple(dict.fromkeys((*COUNTERS, resolved.scheduler.time_attr))),
            result_names=frozenset({spec.metric, *spec.stop}),
            metric=(spec.metric, resolved.scheduler.time_attr),
            objectives=tuple(spec.objectives),
            saves=saves,
            lanes=lanes or 1,
            findings=SmokeTest(None if saves else [_CANNOT_SAVE]),
        )
        return _Supervisor(tryout, longest_s, clock).supervise(show, every_s)


@dataclass(frozen=True, kw_only=True)
class _Message:
    """A message from the child process, at the beginning of each step and at the test's end."""

    step: str = ""
    """Name of the step that begins; empty at the end of the test."""
    untried: tuple[str, ...] = ()
    """Texts of `STEPS` or `WITHOUT_SAVING` for the steps that have not finished."""
    findings: SmokeTest = field(default_factory=lambda: SmokeTest(None))
    """The measurements so far."""
    error: str = ""
    """Type, message and place of the error that the trainable raised; empty if it raised none."""


# ---- in this process ---------------------------------------------------------------------------


class _Supervisor:
    """Starts the child process, receives its messages and kills it at the time limit."""

    def __init__(self, tryout: "_Tryout", longest_s: float, clock: Callable[[], float]) -> None:
        self.name = tryout.trainable
        self.longest_s = longest_s
        self.clock = clock
        self.began = self.since = clock()
        self.message = tryout.message("starting its process")
        self.pipe, theirs = connection.Pipe(duplex=False)
        self.process = supervised_context().Process(
            target=_serve, args=(theirs, tryout), name="validate", env=VARIABLES
        )
        self.process.start()
        theirs.close()

    def supervise(self, show: Callable[[str], None], every_s: float) -> SmokeTest:
        """Wait for the end of the test, or for the time limit.

        Kill the child and return the measurements. `show` is called with the progress every
        `every_s` seconds. Raises UsageError if the trainable raised an error or its process died.
        """
        said_at = self.began
        try:
            while self.message.step:
                now = self.clock()
                if now - self.began >= self.longest_s:
                    since = now - self.since
                    ended = CutShort(self.longest_s, self.message.step, since, self.message.untried)
                    return replace(self.message.findings, cut_short=ended)
                if now - said_at >= every_s:
                    said_at = now
                    show(self._progress_text(now))
                self._listen(min(every_s, self.longest_s - (now - self.began)))
        finally:
            kill_family(self.process.pid)
            self.process.join()
            self.pipe.close()
        if self.message.error:
            raise UsageError(f"validate: {self.name} raised {self.message.error}")
        return self.message.findings

    def _listen(self, seconds: float) -> None:
        """Wait at most this many seconds for the child's next message, and store it in `message`.

        Raises UsageError if the process died without one.
        """
        connection.wait([self.pipe, self.process.sentinel], seconds)
        ended = not self.process.is_alive()  # before poll(), so its last message is in the pipe
        if self.pipe.poll():
            with contextlib.suppress(EOFError):
                self.message, self.since = self.pipe.recv(), self.clock()
                return
        # There is no end of file while a process that it started keeps the pipe open.
        if ended:
            raise UsageError(
                f"validate: the process of {self.name} died with exit code "
                f"{self.process.exitcode} during: {self.message.step}"
            )

    def _progress_text(self, now: float) -> str:
        """Return the current step and the time that it takes so far as one line."""
        seconds = round(now - self.since)
        step = self.message.step + (f" for {seconds} s" if seconds else "")
        total = f"{now - self.began:.0f} s of at most {self.longest_s:g} s"
        return f"trying {self.name} out, {total}: {step}"


# ---- in the child process ----------------------------------------------------------------------


def _serve(pipe: "connection.Connection[Any, Any]", tryout: "_Tryout") -> None:
    """Run the test in the child process, send its messages through `pipe`, and exit the process.

    An error of the trainable is sent as the last message. Standard output becomes standard error.
    """
    become_program()
    os.dup2(2, 1)  # standard output is reserved for the command's answer
    try:
        tryout.run(pipe.send)
        last = _Message(findings=tryout.findings)
    except BaseException as error:  # noqa: BLE001 every error is reported to the user
        last = _Message(error=_describe_error(error))
    pipe.send(last)
    exit_process()


@dataclass(kw_only=True)
class _Tryout:
    """The settings of a smoke test with its state and measurements; sent to the child process."""

    trainable: str
    """Name of the trainable in the spec."""
    paths: tuple[str, ...]
    """Folders in which Python looks for the trainable's module."""
    config: Mapping[str, Any]
    """Settings of the trainable."""
    seed: int
    """Seed that the trainable gets."""
    folder: Path
    """Temporary folder for the trainable's files."""
    counters: tuple[str, ...]
    """Names of counters in results whose increase is measured, including ``time_attr``."""
    result_names: frozenset[str]
    """Names of results that the spec uses: the metric and those with a least value in ``stop``."""
    metric: tuple[str, str]
    """Name of the optimised metric, and ``time_attr``, the result that the scheduler counts."""
    objectives: tuple[str, ...]
    """The names of further objectives."""
    saves: bool
    """True if the trainable can save. If False, saving and restoring are not tried."""
    findings: SmokeTest
    """The measurements so far, replaced after each iteration."""
    lanes: int = 1
    """Number of trials that train together as lanes of one program; 1 for a single trial."""
    neighbours: list[Trainable] = field(default_factory=list)
    """Trainables of the other lanes, with other seeds."""
    step: int = _TO_A_CHECKPOINT
    """Index of the current step in `STEPS`."""
    last_result: Mapping[str, Any] = field(default_factory=lambda: dict.fromkeys(COUNTERS, 0))
    """Newest result of the trainable before the restore, with which the next one is compared."""

    def run(self, say: Callable[[_Message], None]) -> None:
        """Run all steps of the test; `say` is called with a message at the beginning of each.

        The measurements are stored in `findings`. A trainable that cannot save, or has nothing to
        compare after its checkpoint, is not restored.
        """
        self.say = say
        self._announce("importing it")
        cls = plugins.find_trainable(self.trainable, self.paths)
        name, metric = "validate", self.metric[0]
        context = TrialContext(
            self.seed, name, name, self.folder, metric=metric, objectives=self.objectives
        )
        self._announce("setting it up")
        straight = self._make(cls, context)
        try:
            if not self.saves:
                self._train_alone(straight)
                return
            first = self._train_to_checkpoint(straight)
            if not straight.at_checkpoint or first.get("done") is True:
                self.findings = replace(self.findings, differences=[_nothing_to_compare(straight)])
                return
            self._announce("saving", _SAVING)
            path = straight.save()
            files = (path, *path.parent.glob("seg-*"))
            self.findings = replace(self.findings, size=sum(file.stat().st_size for file in files))
            self.step = _ONE_MORE
            expected = self._train(straight)
        finally:
            self._stop(straight)
        self._announce("setting it up again", _RESTORING)
        restored = cls(self.config, context)
        try:
            self._announce("restoring")
            restored.restore(path)
            self.step = _COMPARING
            found = self._train(restored)
            differences = _differences(expected, found)
            if differences and restored.exactness.startswith("D"):
                differences = [f"a trial is {restored.exactness}", *differences]
            self.findings, self.step = replace(self.findings, differences=differences), _LATER
            self._train_until_found(restored, self._missing(first, found), found)
        finally:
            self._stop(restored)

    def _make(self, cls: type[Trainable], context: TrialContext) -> Trainable:
        """Create the tested trainable, and those of the other lanes in `neighbours`.

        Return the tested one.
        """
        made = cls(self.config, context)
        seeds = [rng.integer(self.seed, "neighbour", number) for number in range(1, self.lanes)]
        self.neighbours = [cls(self.config, replace(context, seed=seed)) for seed in seeds]
        return made

    def _stop(self, trainable: Trainable) -> None:
        """Stop the trainable and those of the other lanes, which are removed from `neighbours`."""
        self._announce("ending it")
        trainable.stop()
        while self.neighbours:
            self.neighbours.pop().stop()

    def message(self, name: str) -> _Message:
        """Return the message that says that the step called `name` begins."""
        alone = WITHOUT_SAVING[1:] if self.step == _LATER else WITHOUT_SAVING
        return _Message(
            step=name, untried=STEPS[self.step :] if self.saves else alone, findings=self.findings
        )

    def _announce(self, name: str, step: int | None = None) -> None:
        """Send the message that the step called `name` begins.

        Set `step` to its index if that is given.
        """
        self.step = self.step if step is None else step
        self.say(self.message(name))

    def _train_alone(self, trainable: Trainable) -> None:
        """Train two iterations, or one if it ends the trial, and further ones for missing names."""
        result = self._train(trainable)
        if result.get("done") is not True:
            result = self._train(trainable)
        self.step = _LATER
        self._train_until_found(trainable, self._missing(result), result)

    def _train_to_checkpoint(self, trainable: Trainable) -> dict[str, Any]:
        """Train until the trainable can be saved or ends.

        Return the flat result of the last iteration. Stops after `MOST_ITERATIONS`.
        """
        result = self._train(trainable)
        for _ in range(1, MOST_ITERATIONS):
            if trainable.at_checkpoint or result.get("done") is True:
                break
            result = self._train(trainable)
        return result

    def _train(self, trainable: Trainable) -> dict[str, Any]:
        """Train one iteration in all lanes, and record its measurements in `findings`.

        The duration is that of all lanes together. Returns the flat result of `trainable`.
        """
        self._announce(f"iteration {trainable.iteration + 1}")
        began = time.perf_counter()
        if self.neighbours:
            type(trainable).train_together([trainable, *self.neighbours])
            for neighbour in self.neighbours:
                neighbour.train()
        result = flatten(trainable.train())
        self._measure(result, time.perf_counter() - began)
        reached = max(self.findings.results, trainable.iteration)
        keys = self.findings.keys | result.keys()
        lack = _lack(self.findings.lack, result, *self.metric)
        self.findings = replace(self.findings, keys=keys, results=reached, lack=lack)
        return result

    def _measure(self, result: dict[str, Any], seconds: float) -> None:
        """Record the duration of an iteration, in seconds, and the increase of the counters.

        They replace those of the iteration before. Of the iteration after the restore, only a
        longer duration is recorded; of iterations that search for missing names, nothing.
        """
        if self.step <= _ONE_MORE:
            advance = _advance(self.last_result, result, self.counters)
            self.findings = replace(self.findings, advance=advance, seconds=seconds)
            self.last_result = result
        elif self.step == _COMPARING:  # keep the slower of two equal iterations
            slower = max(seconds, self.findings.seconds or 0.0)
            self.findings = replace(self.findings, seconds=slower)

    def _train_until_found(
        self, trainable: Trainable, missing: Iterable[str], latest: Mapping[str, Any]
    ) -> None:
        """Train until each name in `missing` was in a result; not every result has an evaluation.

        Returns without error if names are still missing when the trial ends, which `latest`, the
        newest result, may say already, after `LATER_S` seconds, or at `MOST_ITERATIONS`. Results
        are recorded in `findings`.
        """
        lacking, done = set(missing), latest.get("done") is True
        end_at = time.monotonic() + LATER_S
        while lacking and not done and trainable.iteration < MOST_ITERATIONS:
            if time.monotonic() >= end_at:
                return
            result = self._train(trainable)
            lacking, done = lacking - self._names_in(result), result.get("done") is True

    def _missing(self, *results: Mapping[str, Any]) -> set[str]:
        """Return those names of `result_names` that none of the given results has."""
        return set(self.result_names).difference(*map(self._names_in, results))

    def _names_in(self, result: Mapping[str, Any]) -> set[str]:
        """Return the names of a result's values.

        The metric's is among them only if it is a number and not NaN.
        """
        metric, _ = self.metric
        return {name for name in result if name != metric or is_known(to_number(result[name]))}


def _lack(
    before: Lack | None, result: Mapping[str, Any], metric: str, time_attr: str
) -> Lack | None:
    """Return the training before the first result with the metric, `before` extended by a result.

    Returns None before the first result with `time_attr`. Results without it, and those after the
    first one with the metric, change nothing. A metric of NaN counts as none.
    """
    reached = to_number(result.get(time_attr))
    if reached is None or (before and before.first_with is not None):
        return before
    if not is_known(to_number(result.get(metric))):
        return Lack(reached if before is None else max(reached, before.last_without))
    return Lack(
        last_without=-math.inf if before is None else before.last_without,
        first_with=reached,
        iteration=result.get("training_iteration"),
        episode_len=to_number(result.get(EPISODE_LEN)),
    )


def _nothing_to_compare(trainable: Trainable) -> str:
    """Return the reason why there is no iteration to compare with one after a restore."""
    if trainable.at_checkpoint:
        return "it ends at its first checkpoint, so there is no later iteration to compare"
    if trainable.iteration < MOST_ITERATIONS:
        return f"it has no checkpoint: it ended at iteration {trainable.iteration}"
    return f"it has no checkpoint in {MOST_ITERATIONS} iterations"


def _advance(
    first: Mapping[str, Any], second: Mapping[str, Any], counters: tuple[str, ...]
) -> dict[str, float]:
    """Return counter → its increase from the first to the second result, if it increased."""
    found = {}
    for key in counters:
        before, after = to_number(first.get(key)), to_number(second.get(key))
        if before is not None and after is not None and after > before:
            found[key] = after - before
    return found


def _describe_error(error: BaseException) -> str:
    """Return an exception and the place where it was raised, on one line.

    The place is left out for an error that sweep raised on purpose, and so is the error output of a
    program below its first line, which has been printed already.
    """
    if type(error) is TrainableError:
        return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}{where}"


def _differences(expected: Mapping[str, Any], result: Mapping[str, Any]) -> list[str]:
    """Return a line for each value that differs between two flat results, sorted by name.

    A value that only one of them has differs. Those below `VOLATILE_KEYS`, such as times and dates,
    are left out.
    """
    missing = "absent"
    return [
        (
            f"{key}: {shorten(expected.get(key, missing))} without an interruption, "
            f"{shorten(result.get(key, missing))} after save and restore"
        )
        for key in sorted({*expected, *result})
        if key.split("/")[0] not in VOLATILE_KEYS
        and repr(expected.get(key)) != repr(result.get(key))
    ]

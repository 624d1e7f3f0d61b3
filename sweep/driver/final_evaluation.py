"""The final evaluation: the best trials are retrained under seeds that no decision has used.

The best of many noisy scores is partly luck, and the winner's own seeds reproduce that luck (Eimer
et al., Hyperparameters in Reinforcement Learning and How to Tune Them, 2023, section 5: keep tuning
seeds and test seeds apart). A test is a replica of its trial with an index in a separate range:
decisions of the search never use it, and its slices are retried and resumed like all others.

The remaining work follows from the history and the wanted number of tests. So a final evaluation
that was killed continues, and a larger one extends a smaller one.
"""

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass

from sweep.driver.driver import Driver
from sweep.history.events import Event, FinalEvaluationBegan, Goal, Opened, Status
from sweep.history.history import History
from sweep.history.seeds import FIRST_TEST
from sweep.history.trial import Trial
from sweep.spec import Stop


@dataclass(frozen=True)
class FinalEvaluation:
    """The size of a final evaluation that a user requested."""

    seeds: int
    """Number of test seeds for each tested trial, including those of earlier evaluations."""
    top: int
    """Number of best trials that are tested."""

    def begin_event(
        self, history: History, jobs: int, pool: str, unrecorded_s: float = 0.0
    ) -> FinalEvaluationBegan:
        """Return the event that begins the final evaluation of the best trials of a history.

        They are up to `top` trials with a score. Host and pid are those of this process. `jobs` is
        the number of slots, `pool` the pool's name. `unrecorded_s` is the time in seconds that the
        previous driver ran after its last event.
        """
        best = tuple(trial.number for trial in history.ranked()[: self.top])
        return FinalEvaluationBegan(
            socket.gethostname(), os.getpid(), best, self.seeds, jobs, pool, unrecorded_s
        )


class FinalEvaluator(Driver):
    """A driver that retrains the best trials under test seeds instead of searching."""

    def _decide(self) -> None:
        """Resume interrupted tests, then start new ones in the free slots; records both."""
        paused = self.history.test_replicas(Status.PAUSED)
        self._resume_interrupted([test for test in paused if test.is_interrupted])
        missing = list(missing_tests(self.history, self.context.spec.stop))
        self._start(missing[: max(0, self._free_slots)])

    def _find_exhausted(self) -> str:
        """Return an empty text: the budget limits only the search."""
        return ""

    def _missing_metric(self, at_end: bool = False) -> None:
        """Return None, since the search has already compared trials by the metric."""

    def _end_events(self, end: str, reason: str) -> list[Event]:
        """Return the events that interrupt tests which still run; nothing else changes.

        `end` and `reason` are not used.
        """
        return [*self._interrupted_events(self.history.test_replicas(Status.RUNNING))]


def missing_tests(history: History, stop: Stop) -> Iterator[Opened]:
    """Yield the events that open tests which have not started: one of each trial, then a second.

    A test trains a trial's settings under a seed that no decision has used. Nothing is yielded if
    the history has no final evaluation.
    """
    final_evaluation = history.final_evaluation
    if final_evaluation is None:
        return
    for index in range(final_evaluation.seeds):
        for number in final_evaluation.trials:
            trial = history.trials[number]
            if index >= len(trial.test_replicas):
                why = f"one of {final_evaluation.seeds} tests under seeds that no decision has seen"
                yield Opened(number, FIRST_TEST + index, 0, _goal(trial, stop), why)


def _goal(trial: Trial, stop: Stop) -> Goal:
    """Return the goal of a trial's tests: the point to which the search trains its best trials.

    If only a budget ends trials, tests go as far as their trial did. All tests of a trial have the
    same goal, even if the trial is trained further after the first.
    """
    if trial.test_replicas:
        return trial.test_replicas[0].goal
    top = trial.goal.top
    if top is None and not stop.ends_every_trial:
        top = trial.time
    return Goal(top, top=top)

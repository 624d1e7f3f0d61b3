"""The final evaluation: the best trials trained anew under seeds that no decision has seen.

The best of many noisy scores is partly luck, and under its own seeds the winner shows that luck
again (Eimer et al., Hyperparameters in Reinforcement Learning and How to Tune Them, 2023, section
5: tuning seeds and test seeds are to be kept apart). A test is a replica of its trial in a range of
its own: the search's decisions never see it, and its slices are retried and resumed as all are.
What is to be done follows from the history and from how many tests are wanted, so a final
evaluation that was killed goes on where it was, and a larger one adds to a smaller one.
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
    """The final evaluation that a person asked for."""

    seeds: int
    """The number of tests that each trial shall have in all."""
    top: int
    """The number of best trials to test."""

    def begin(
        self, history: History, jobs: int, pool: str, unrecorded_s: float = 0.0
    ) -> FinalEvaluationBegan:
        """The event that begins it, with so many slots of that pool."""
        best = tuple(trial.number for trial in history.ranked()[: self.top])
        return FinalEvaluationBegan(
            socket.gethostname(), os.getpid(), best, self.seeds, jobs, pool, unrecorded_s
        )


class FinalEvaluator(Driver):
    """Runs the final evaluation of the newest term to its end, or until it is asked to stop."""

    def _decide(self) -> None:
        """Resume tests that were interrupted, then start new ones."""
        paused = self.history.tests(Status.PAUSED)
        self._resume_interrupted([test for test in paused if test.unfinished])
        missing = list(missing_tests(self.history, self.context.spec.stop))
        self._start(missing[: max(0, self._free)])

    def _used_up(self) -> str:
        """The budget is the search's."""
        return ""

    def _missing_metric(self, at_end: bool = False) -> None:
        """The search has chosen by it."""

    def _ending(self, how: str, why: str) -> list[Event]:
        """Interrupt the replicas that run; the search itself is unchanged."""
        return [*self._stopped(self.history.tests(Status.RUNNING))]


def missing_tests(history: History, stop: Stop) -> Iterator[Opened]:
    """The tests that are still to be begun: first one of each trial, then a second, and so on."""
    final_evaluation = history.final_evaluation
    if final_evaluation is None:
        return
    for index in range(final_evaluation.seeds):
        for number in final_evaluation.trials:
            trial = history.trials[number]
            if index >= len(trial.tests):
                why = f"one of {final_evaluation.seeds} tests under seeds that no decision has seen"
                yield Opened(number, FIRST_TEST + index, 0, _goal(trial, stop), why)


def _goal(trial: Trial, stop: Stop) -> Goal:
    """As far as the search trains its best; where only a budget ends trials, as far as it came.

    All tests of a trial go equally far: after more budget, as far as the first one went.
    """
    if trial.tests:
        return trial.tests[0].goal
    top = trial.goal.top
    if top is None and not stop.ends_every_trial:
        top = trial.time
    return Goal(top, top=top)

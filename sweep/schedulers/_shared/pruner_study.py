"""The history as a study in memory, on which Optuna's pruners judge one trial.

The study is made anew for each plan. A trial's steps are its looks: the multiples of the interval
at which it can have paused. For a pruner that compares with completed trials only, these have a
score at the looks of the judged trials too, and the others have none. Pruners that remember in
the study what they decided before (successive halving, Hyperband) get one in which every trial
still runs, and are shown every earlier rung again, so that they remember the same.
"""

import copy
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import optuna
from optuna.pruners import BasePruner, HyperbandPruner, SuccessiveHalvingPruner
from optuna.trial import FrozenTrial, TrialState

from sweep.errors import BadConfig
from sweep.history.events import Status
from sweep.history.history import History
from sweep.history.optuna_terms import STATES, direction
from sweep.history.trial import Trial
from trainables.errors import nearest

#: The name of every study; Hyperband assigns trials to brackets by a hash of it.
_NAME = "sweep"
_STATES = {**STATES, Status.WAITING: TrialState.RUNNING}


class Study:
    """The sweep as `pruner` is shown it, at one moment; looks are multiples of `interval`."""

    def __init__(self, history: History, interval: int, pruner: BasePruner) -> None:
        self._trials, self._interval, self._pruner = history.trials, interval, pruner
        self._study = optuna.create_study(study_name=_NAME, direction=direction(history.objective))
        self._remembers = isinstance(pruner, SuccessiveHalvingPruner | HyperbandPruner)
        judged = {level for trial in history.of(Status.PAUSED) for level in self._looks(trial)}
        shown = [self._shown(trial, judged) for trial in history.trials]
        self._completed = [n for n, one in enumerate(shown) if one.state is TrialState.COMPLETE]
        for one in shown if self._remembers else ():
            one.state, one.value, one.datetime_complete = TrialState.RUNNING, None, None
        self._study.add_trials(shown)

    def prunes(self, number: int) -> bool:
        """Whether the pruner would end the trial with this number now."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about ignored values, and experimental features
            if self._remembers:
                self._remind(number)
            return bool(self._pruner.prune(self._study, self._frozen(number)))

    def completed_at(self, level: int) -> list[tuple[int, float]]:
        """Number and value of the completed trials that have one at a level."""
        there = (number for number in self._completed if self._trials[number].reached(level))
        found = ((number, self._trials[number].score_at(level)) for number in there)
        return [(number, value) for number, value in found if value is not None]

    def value_at(self, number: int, level: int) -> float | None:
        """The value of one trial at a look, if it has one."""
        return self._frozen(number).intermediate_values.get(level)

    def _frozen(self, number: int) -> FrozenTrial:
        return self._study.get_trials(deepcopy=False)[number]

    def _looks(self, trial: Trial) -> set[int]:
        """The levels at which the trial can have been judged, its newest among them."""
        longest = max((replica.curve for replica in trial.counted), key=len)
        times = [*(point.time for point in longest), trial.time]
        looks = {time // self._interval for time in times}
        return {int(look) * self._interval for look in looks if look >= 1}

    def _shown(self, trial: Trial, judged: set[int]) -> FrozenTrial:
        state, score = _STATES[trial.status], trial.score
        if state is TrialState.COMPLETE and (score is None or not math.isfinite(score)):
            state = TrialState.FAIL
        levels = set[int]()
        if self._remembers or state is TrialState.COMPLETE or trial.status is Status.PAUSED:
            levels |= self._looks(trial)
        if state is TrialState.COMPLETE and not self._remembers:
            levels |= judged
        reached = [level for level in sorted(levels) if trial.reached(level)]
        found = zip(reached, trial.scores_at(reached), strict=True)
        return optuna.trial.create_trial(
            state=state,
            value=score if state is TrialState.COMPLETE else None,
            intermediate_values={level: value for level, value in found if value is not None},
        )

    def _remind(self, judged: int) -> None:
        """Show the pruner every rung that a trial reached before; its answers are known."""
        for number in range(len(self._study.get_trials(deepcopy=False))):
            steps = sorted(self._frozen(number).intermediate_values)
            for step in self._rungs(steps[:-1] if number == judged else steps):
                then = copy.copy(self._frozen(number))
                values = then.intermediate_values
                then.intermediate_values = {s: v for s, v in values.items() if s <= step}
                self._pruner.prune(self._study, then)

    def _rungs(self, steps: Sequence[int]) -> list[int]:
        """The steps at which a trial reached a rung; at the others these pruners do nothing."""
        found, rung = [], self._pruner._min_resource  # type: ignore[attr-defined] # both have it
        for step in steps:
            if step >= rung:
                found.append(step)
                while rung <= step:
                    rung *= self._pruner._reduction_factor  # type: ignore[attr-defined] # likewise
        return found


#: Pruner that would guess its rungs → the argument that it must be given, and which rung it is.
_RESOURCES = {
    "SuccessiveHalvingPruner": ("min_resource", "lowest"),
    "HyperbandPruner": ("max_resource", "top"),
}


def make(name: str, arguments: Mapping[str, Any]) -> BasePruner:
    """A pruner of ``optuna.pruners`` by its class's name."""
    cls: Callable[..., BasePruner] = getattr(optuna.pruners, name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return cls(**arguments)


def make_asked(given: Mapping[str, Any], key: str, top: float | None) -> BasePruner:
    """The pruner that a spec asks for at `key`: ``pruner``, its class's name, and its arguments.

    Trials end at `top`, in units of ``time_attr``, if that is known.

    Raises:
        BadConfig: Optuna has no such pruner, or refuses the arguments.
    """
    name = given["pruner"]
    known = [n for n in optuna.pruners.__all__ if n not in ("BasePruner", "PatientPruner")]
    if name not in known:
        hint = "use scheduler: patient" if name == "PatientPruner" else nearest(name, known)
        raise BadConfig(f"{key}.pruner", name, f"one of {', '.join(sorted(known))}", hint)
    arguments = {word: value for word, value in given.items() if word != "pruner"}
    if name == "HyperbandPruner" and top is not None:
        arguments.setdefault("max_resource", int(top))
    resource, rung = _RESOURCES.get(name, ("", ""))
    if resource and not isinstance(arguments.get(resource), int):
        hint = f"the {rung} rung, in units of time_attr; it is not guessed from the first trials"
        raise BadConfig(f"{key}.{resource}", arguments.get(resource), "a whole number", hint)
    try:
        return make(name, arguments)
    except (TypeError, ValueError) as error:
        raise BadConfig(key, arguments, f"arguments of optuna's {name}", str(error)) from error

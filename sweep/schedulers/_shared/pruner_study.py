"""The history as an in-memory study, on which Optuna's pruners judge one trial.

A trial's entry in the study is remade when the trial has changed. The steps of an entry are the
trial's looks: the multiples of the interval at which the trial may have paused. They correspond to
Optuna's reports.

For a pruner that compares only with completed trials, these have a score at the looks of the judged
trials too, and other trials have none. Pruners that store earlier decisions in the study
(successive halving, Hyperband) get a new study each time, in which every trial still runs, and are
shown all earlier rungs again, so that they store the same. At a look that passes a rung they get
the score at the rung, since they compare trials by their values at looks.
"""

import copy
import itertools
import math
import warnings
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any

import optuna
from optuna.pruners import BasePruner, HyperbandPruner, SuccessiveHalvingPruner
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, TrialState

from sweep.core.errors import BadConfig
from sweep.history.curve import Point, is_known
from sweep.history.events import Status
from sweep.history.history import History
from sweep.history.optuna_terms import STATES, direction
from sweep.history.order import Summary
from sweep.history.trial import Trial
from trainables.errors import nearest, shorten

#: Name of every study; Hyperband assigns trials to brackets by a hash of it.
_NAME = "sweep"
#: Status of a trial → Optuna's state in the study.
_STATES = {**STATES, Status.WAITING: TrialState.RUNNING}


class Study:
    """The sweep as an Optuna study at one moment, to ask `pruner` about trials.

    A trial's intermediate values in it are its scores at multiples of `interval` (of `time_attr`).
    It is valid until the next one of the same history is created.
    """

    def __init__(self, history: History, interval: int, pruner: BasePruner) -> None:
        self._pruner = pruner
        self._remembers = isinstance(pruner, SuccessiveHalvingPruner | HyperbandPruner)
        name = ("shown to a pruner", interval, self._remembers)
        remembers = pruner if self._remembers else None
        shown = history.summary(name, lambda: _StudyTrials(history, interval, remembers))
        self._study_trials, self._study = shown, shown.study
        if self._remembers:
            self._study = _new_study(history)
            self._study.add_trials([_as_running(one) for one in shown.trials])
        judged = history.with_status(Status.PAUSED)
        shown.lend(
            {look for trial in judged for look in shown.judged_levels(trial)}, history.trials
        )

    def prunes(self, number: int) -> bool:
        """Return whether the pruner would end the trial with this number now.

        A pruner that stores decisions in the study is first asked about all earlier rungs again.
        Optuna's warnings are suppressed.
        """
        with warnings.catch_warnings():
            # suppress warnings about ignored values and experimental features
            warnings.simplefilter("ignore")
            if self._remembers:
                self._remind(number)
            return bool(self._pruner.prune(self._study, self._frozen(number)))

    def completed_at(self, level: int, limit: int) -> tuple[int, list[tuple[int, float]]]:
        """Return how many completed trials have a value at `level`, and some of their values.

        The values are pairs (number, value) of at most `limit` trials, those with the highest
        numbers, ascending.
        """
        return self._study_trials.completed_at(level, limit)

    def value_at(self, number: int, level: int) -> float:
        """Return the value of trial `number` at `level`, at which it was judged.

        Raises KeyError if it has no value there.
        """
        return self._study_trials.trials[number].intermediate_values[level]

    def newest_look(self, number: int) -> int | None:
        """Return the newest level at which trial `number` was judged and has a value.

        Returns None without one.
        """
        return max(self._study_trials.trials[number].intermediate_values, default=None)

    def level_of(self, number: int, step: int) -> float:
        """Return the level at which the study's value of trial `number` at `step` was read.

        It is the rung, for a pruner with rungs of its own that the trial passed at the step.
        """
        return self._study_trials.rungs.get(number, {}).get(step, step)

    def _frozen(self, number: int) -> FrozenTrial:
        """Return the study's own record of trial `number`, not a copy: do not change it."""
        if self._remembers:
            return self._study.get_trials(deepcopy=False)[number]
        return self._study_trials.trials[number]

    def _remind(self, judged: int) -> None:
        """Ask the pruner again about all rungs that trials reached before.

        So it stores its decisions there again. Of trial `judged`, the newest value is left out.
        """
        for number in range(len(self._study.get_trials(deepcopy=False))):
            steps = sorted(self._frozen(number).intermediate_values)
            for step in _rungs(self._pruner, steps[:-1] if number == judged else steps):
                then = copy.copy(self._frozen(number))
                values = then.intermediate_values
                then.intermediate_values = {s: v for s, v in values.items() if s <= step}
                self._pruner.prune(self._study, then)


class _StudyTrials(Summary):
    """Optuna's records of all trials, remade when a trial changes.

    It also has an index of the completed ones.
    """

    def __init__(self, history: History, interval: int, remembers: BasePruner | None) -> None:
        super().__init__()
        self._storage = InMemoryStorage()
        self.study = _new_study(history, self._storage)
        self._row = self._storage._studies[self.study._study_id]
        self.trials = self._row.trials
        self._sign, self._interval = history.objective.sign, interval
        self._remembers = remembers
        """Pruner that stores decisions at its own rungs and must see values there; None for other
        pruners."""
        self.rungs: dict[int, Mapping[int, int]] = {}
        """Number of a trial → step at which it passed a rung → that rung, for such a pruner."""
        self._of: dict[int, tuple[frozenset[int], float, tuple[float, int]]] = {}
        """Number of a completed trial → levels at which it was judged, its time, and its entry in
        `_ranks`."""
        self._completed: list[int] = []
        self._times: list[float] = []
        """Values of `time_attr` at which completed trials ended, ascending."""
        self._ranks: list[tuple[float, int]] = []
        """Pairs of a completed trial's cost and number, best first."""
        self._looked, self._valued, self._lent_at = Counter[int](), Counter[int](), Counter[int]()
        """Level → number of completed trials with a look, a value, and a temporary value there."""
        self._replaced_values: dict[int, dict[int, float]] = {}
        """Number of a completed trial → its own values, while its record also has temporary
        ones."""

    def update(self, trials: Sequence[Trial], touched: Sequence[int]) -> None:
        """Remake the records of changed trials, and drop all temporary values.

        `touched` lists the numbers of all trials changed so far, in the order of the changes.
        """
        for number, own in self._replaced_values.items():
            self.trials[number].intermediate_values = own
        self._replaced_values.clear()
        self._lent_at.clear()
        for number in sorted(self.changed(trials, touched)):
            if number in self._of:
                self._discount(number)
            self._show(trials[number])
        self._row.best_trial_id = self._ranks[0][1] if self._ranks else None

    def judged_levels(self, trial: Trial) -> set[int]:
        """Return the levels at which a trial may have been judged.

        They are the last multiples of the interval before its results. Before its first result
        there is nothing to interpolate, so the first level is at that result.
        """
        return {
            look for replica in trial.compared_replicas for look in self._looks_of(replica.curve)
        }

    def _looks_of(self, curve: Sequence[Point]) -> Iterator[int]:
        """Yield the levels at which a trial with this curve is judged, ascending.

        They are the last multiple of the interval at or before each result with a score, if it is a
        new one. The first is the time of the first such result at or past the interval instead.
        """
        last = 0.0
        for point in curve:
            look = point.time // self._interval
            if is_known(point.value) and look > last:
                yield int(look) * self._interval if last else int(point.time)
                last = look

    def lend(self, levels: Set[int], trials: Sequence[Trial]) -> None:
        """Give completed trials temporary values at these levels, until the next update.

        Nearly always these trials have a value of their own at every level that they reached.
        """
        count = len(self._times)
        short = [n for n in sorted(levels) if self._looked[n] < count - bisect_left(self._times, n)]
        for number in self._completed if short else ():
            trial, own = trials[number], self.trials[number].intermediate_values
            more = [n for n in short if n not in self._of[number][0] and trial.reached(n)]
            if found := _values(trial, more):
                self._replaced_values[number] = own
                self.trials[number].intermediate_values = dict(sorted({**own, **found}.items()))
                self._lent_at.update(found.keys())

    def completed_at(self, level: int, limit: int) -> tuple[int, list[tuple[int, float]]]:
        """Return how many completed trials have a value at `level`, and some of their values.

        The values are pairs (number, value) of at most `limit` trials, those with the highest
        numbers, ascending.
        """
        count = self._valued[level] + self._lent_at[level]
        found = (
            (number, self.trials[number].intermediate_values[level])
            for number in reversed(self._completed)
            if level in self.trials[number].intermediate_values
        )
        return count, [*itertools.islice(found, min(count, limit))][::-1]

    def _show(self, trial: Trial) -> None:
        """Make Optuna's record of a trial, with values at the levels at which it was judged.

        Unless the pruner stores decisions, only paused and completed trials get values. A completed
        trial without a finite score is FAIL; other completed ones are added to the index.
        """
        number, state, score = trial.number, _STATES[trial.status], trial.score
        if state is TrialState.COMPLETE and (score is None or not math.isfinite(score)):
            state = TrialState.FAIL
        complete = state is TrialState.COMPLETE
        looked = self._remembers or complete or trial.status is Status.PAUSED
        looks = [n for n in sorted(self.judged_levels(trial)) if trial.reached(n)] if looked else []
        values = _values(trial, looks)
        if self._remembers is not None:
            rungs = self.rungs[number] = _rungs(self._remembers, [*values])
            for look, rung in rungs.items():
                if (value := trial.score_at(rung)) is not None:
                    values[look] = value
        frozen = optuna.trial.create_trial(
            state=state,
            value=score if complete else None,
            intermediate_values=values,
        )
        frozen.number = frozen._trial_id = number
        self._storage._trial_id_to_study_id_and_number[number] = (self.study._study_id, number)
        self.trials[number : number + 1] = [frozen]
        if complete:
            self._count(trial, frozenset(looks))

    def _count(self, trial: Trial, looks: frozenset[int]) -> None:
        """Add a completed trial, judged at the levels `looks`, to the index."""
        one, number = self.trials[trial.number], trial.number
        rank = (-self._sign * (one.value or 0.0), number)
        self._of[number] = (looks, trial.time, rank)
        self._looked.update(looks)
        self._valued.update(one.intermediate_values.keys())
        insort(self._completed, number)
        insort(self._times, trial.time)
        insort(self._ranks, rank)

    def _discount(self, number: int) -> None:
        """Remove the trial with this number from the index of completed trials."""
        looks, time, rank = self._of.pop(number)
        self._looked.subtract(looks)
        self._valued.subtract(self.trials[number].intermediate_values.keys())
        del self._completed[bisect_left(self._completed, number)]
        del self._times[bisect_left(self._times, time)]
        del self._ranks[bisect_left(self._ranks, rank)]


def _new_study(history: History, storage: InMemoryStorage | None = None) -> optuna.Study:
    """Return an empty Optuna study with the direction of the sweep's metric."""
    mode = direction(history.objective)
    return optuna.create_study(storage=storage, study_name=_NAME, direction=mode)


def _as_running(trial: FrozenTrial) -> FrozenTrial:
    """Return a copy of Optuna's record of a trial, with status RUNNING and no final value."""
    running = copy.copy(trial)
    running.state, running.value, running.datetime_complete = TrialState.RUNNING, None, None
    return running


def _rungs(pruner: BasePruner, steps: Sequence[int]) -> dict[int, int]:
    """Return the steps at which a trial passed a rung of a pruner → the highest rung passed there.

    `steps` are ascending. At other steps these pruners do nothing.
    """
    rung_of: dict[int, int] = {}
    rung: int = pruner._min_resource  # type: ignore[attr-defined] # both have it
    for step in steps:
        while rung <= step:
            rung_of[step] = rung
            rung *= pruner._reduction_factor  # type: ignore[attr-defined] # likewise
    return rung_of


def _values(trial: Trial, levels: Sequence[int]) -> dict[int, float]:
    """Return the scores of a trial at ascending levels, from its first number on: level → score.

    Levels without a score are left out.
    """
    levels = [level for level in levels if level >= trial.known_from]
    found = zip(levels, trial.scores_at(levels), strict=True)
    return {level: value for level, value in found if value is not None}


#: Pruner that would guess its rungs → the argument that must be given, and the rung it sets.
_RESOURCES = {
    "SuccessiveHalvingPruner": ("min_resource", "lowest"),
    "HyperbandPruner": ("max_resource", "top"),
}
#: Argument of a pruner with rungs → its least value. Optuna checks some of them only when it judges
#: a trial, and rungs that do not grow never end.
_LEAST = {
    "min_resource": 1,
    "max_resource": 1,
    "reduction_factor": 2,
    "min_early_stopping_rate": 0,
    "bootstrap_count": 0,
}


def make(name: str, arguments: Mapping[str, Any]) -> BasePruner:
    """Return a pruner of ``optuna.pruners`` by the name of its class, with these arguments.

    Raises TypeError or ValueError if the class refuses them. Optuna's warnings about experimental
    classes are suppressed.
    """
    cls: Callable[..., BasePruner] = getattr(optuna.pruners, name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return cls(**arguments)


def make_asked(
    entry: Mapping[str, Any], key: str, top: float | None, takes_rungs: bool = True
) -> BasePruner:
    """Return the pruner that a spec names in the mapping `entry` at `key`.

    The mapping has ``pruner``, the name of the class, and its arguments. `top` is the value of
    `time_attr` at which trials end, or None. Raises BadConfig if Optuna has no such pruner, if it
    refuses the arguments, or if one with rungs lacks ``min_resource`` (SuccessiveHalvingPruner) or
    ``max_resource`` (HyperbandPruner, for which it is `top` by default), or has an argument that is
    no whole number or too small. One with rungs is refused unless `takes_rungs`.
    """
    name = entry["pruner"]
    known = [n for n in optuna.pruners.__all__ if n not in ("BasePruner", "PatientPruner")]
    if name not in known:
        hint = "use scheduler: patient" if name == "PatientPruner" else nearest(name, known)
        allowed = f"one of {', '.join(sorted(known))}"
        problem = f"optuna has no pruner {shorten(name)} that works here"
        raise BadConfig(f"{key}.pruner", name, allowed, hint, problem=problem)
    arguments = {word: value for word, value in entry.items() if word != "pruner"}
    if name == "HyperbandPruner" and top is not None:
        arguments.setdefault("max_resource", int(top))
    resource, rung = _RESOURCES.get(name, ("", ""))
    if resource and not takes_rungs:
        allowed = f"one of {', '.join(sorted({*known} - {*_RESOURCES}))}"
        hint = (
            f"{name} must see all trials at its rungs; use scheduler: {{name: optuna, pruner: "
            f"{name}}}"
        )
        raise BadConfig(f"{key}.pruner", name, allowed, hint)
    if resource and not isinstance(arguments.get(resource), int):
        given = arguments.get(resource)
        problem = "is missing" if given is None else f"{shorten(given)} is not a whole number"
        hint = (
            f"set it to the {rung} rung, in units of time_attr, because sweep does not "
            "derive it from the first trials"
        )
        raise BadConfig(f"{key}.{resource}", given, hint=hint, problem=problem)
    if resource:
        _check_rungs(arguments, key)
    try:
        return make(name, arguments)
    except (TypeError, ValueError) as error:
        problem = f"optuna's {name} cannot be made from {shorten(arguments)}: {error}"
        raise BadConfig(key, arguments, problem=problem) from error


def _check_rungs(arguments: Mapping[str, Any], key: str) -> None:
    """Raise BadConfig if an argument of a pruner with rungs is no whole number or too small.

    Its ``max_resource`` must not be below ``min_resource`` either. `key` names the pruner's mapping
    in the message.
    """
    for word, least in _LEAST.items():
        value = arguments.get(word, least)
        if type(value) is not int or value < least:
            raise BadConfig(f"{key}.{word}", value, f"a whole number of at least {least}")
    lowest, top = arguments.get("min_resource", 1), arguments.get("max_resource", math.inf)
    if top < lowest:
        problem = f"{top} is less than min_resource, which is {lowest}"
        hint = "raise it, or lower min_resource"
        raise BadConfig(f"{key}.max_resource", top, hint=hint, problem=problem)

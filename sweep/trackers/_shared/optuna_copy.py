"""The Optuna study of a sweep, kept equal to its history.

Optuna's finished trials cannot change, and nothing can be removed from a trial. If the study can no
longer be made equal to the history (as when a pruned trial is resumed), another study is written
and takes its name, so that a reader always sees a complete study.
"""

import copy
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from typing import Any

from optuna.trial import FrozenTrial, TrialState, create_trial

from sweep.history import ranking
from sweep.history.events import Recorded
from sweep.history.optuna_terms import STATES, directions, distribution, encode, finite
from sweep.history.replica import joint_curve
from sweep.history.trial import Trial
from sweep.spec.space.domains import extend
from sweep.trackers import TrackerContext
from sweep.trackers._shared.groups import aggregate_seeds
from sweep.trackers._shared.optuna_storage import DRAFT, Storage, exists, place


class Copy:
    """Study of a sweep in Optuna's tables, kept equal to the history.

    It is created or found with the history up to event number `k`. A study with an older name of
    the sweep is renamed; leftovers of a crash are deleted.
    """

    def __init__(self, context: TrackerContext, k: int) -> None:
        self._context = context
        self.history = context.history(k)
        self._storage = Storage(place(context.folder))
        self._storage.rename(context.name, context.sweep_id)
        self._storage.sweep_up(context.name)
        study = self._storage.find(context.name)
        self._study = self._create(context.name) if study is None else study
        if self._storage.metrics(self._study) != metrics(context):
            self._storage.name_metrics(self._study, metrics(context))
        self._trials = self._storage.trials(self._study)
        """Trials of the study as they are in the tables, by number."""
        self._domains = Domains(context)
        self._compared = False
        """True once every trial was compared with the history, not only those of new events."""

    def close(self) -> None:
        """Close the database."""
        self._storage.close()

    def publish(self, records: Sequence[Recorded]) -> None:
        """Write to the study what these events change.

        If Optuna does not allow the change, a new study replaces the present one.
        """
        self.history.extend(records)
        trials = self.history.trials
        self._compared &= not self._domains.update(trials)
        about = {getattr(record.event, "trial", None) for record in records}
        known = sorted(number for number in about if number is not None)
        numbers = known if self._compared else range(len(trials))
        wanted = [frozen(self._domains, trials[number]) for number in numbers]
        if self._can_become(wanted):
            self._grow(wanted)
        else:
            self._rewrite()
        self._compared = True

    def _create(self, name: str) -> int:
        """Create an empty study with the sweep's directions and attributes, and return its ID."""
        spec = self._context.spec
        attributes = {
            "sweep_id": self._context.sweep_id,
            "metric": spec.metric,
            "trainable": spec.trainable,
            "note": "a copy: written by sweep, read by you",
        }
        study = self._storage.create(name, directions(self._context.objective), attributes)
        self._storage.name_metrics(study, metrics(self._context))
        return study

    def _can_become(self, expected: Iterable[FrozenTrial]) -> bool:
        """Return whether the study's trials can become the trials `expected` by additions alone.

        Returns False if the study is of another metric, or has more trials than the history.
        """
        known, of = self._trials, self._context.spec.metric
        if not self._compared and self._storage.attribute(self._study, "metric") != of:
            return False
        return len(known) <= len(self.history.trials) and all(
            _may_become(known[trial.number], trial)
            for trial in expected
            if trial.number < len(known)
        )

    def _grow(self, expected: Sequence[FrozenTrial]) -> None:
        """Add the trials of `expected` that the study lacks, and values that its others lack.

        These are scores, attributes and a new state. The known trials are updated.
        """
        known = self._trials
        older = [trial for trial in expected if trial.number < len(known)]
        for trial in older:
            trial._trial_id = known[trial.number]._trial_id
        rest = [missing(known[trial.number], trial) for trial in older]
        moved = [trial for trial in older if trial.state is not known[trial.number].state]
        new = expected[len(older) :]
        self._storage.write(self._study, new, rest, moved)
        for trial in older:
            known[trial.number] = trial
        known += new

    def _rewrite(self) -> None:
        """Write a new study with all trials of the history, which replaces the present one."""
        draft = self._create(DRAFT.format(self._context.name))
        trials = [frozen(self._domains, trial) for trial in self.history.trials]
        self._storage.write(draft, trials)
        self._storage.replace(self._study, draft, self._context.name)
        self._study, self._trials = draft, trials


def metrics(context: TrackerContext) -> list[str]:
    """Return the names of each trial's values in the study: the metric, further objectives."""
    return [context.spec.metric, *context.spec.objectives]


class Domains:
    """Domains of a study's parameters: those of the space, extended by the values of old trials.

    The space may have been changed, and Optuna requires equal choices in all trials of a study.
    """

    def __init__(self, context: TrackerContext) -> None:
        space = context.spec.space
        self.by_name = {name: space.domain_of(name) for name in space.searched}
        self._read = 0
        """Number of first trials whose values the domains contain."""

    def update(self, trials: Sequence[Trial]) -> bool:
        """Extend the domains by the values of all trials; return whether one has changed."""
        before = dict(self.by_name)
        for trial in trials[self._read :]:
            for name in trial.searched.keys() & self.by_name.keys():
                self.by_name[name] = extend(self.by_name[name], trial.searched[name])
        self._read = len(trials)
        return self.by_name != before


def frozen(known: Domains, trial: Trial) -> FrozenTrial:
    """Return a trial as a trial of the study, with the parameters in these domains.

    A pruned or stopped trial is complete there if it has values; a completed one without values is
    failed.
    """
    domains = known.by_name
    searched = {name: value for name, value in trial.searched.items() if name in domains}
    state = STATES[trial.status]
    curve = _curve(trial)
    values = [score for score in ranking.values(trial) if score is not None]
    if state is TrialState.PRUNED and len(trial.objective.signs) == 1:
        values = _last(curve)
    if len(values) < len(trial.objective.signs):
        values = []
        if state is TrialState.COMPLETE:
            state = TrialState.FAIL  # Optuna's complete trials need values
    elif state is TrialState.PRUNED:
        state = TrialState.COMPLETE
    copied = create_trial(
        state=state,
        values=values if values and state in (TrialState.COMPLETE, TrialState.PRUNED) else None,
        params={name: encode(domains[name], value, "shown") for name, value in searched.items()},
        distributions={name: distribution(domains[name], "shown") for name in searched},
        user_attrs=_attributes(trial),
        system_attrs=_violations(trial) if state.is_finished() else {},
        intermediate_values=curve,
    )
    copied.number = trial.number
    copied.datetime_start = None if state is TrialState.WAITING else _local_time(trial.started_at)
    copied.datetime_complete = _local_time(trial.ended_at) if state.is_finished() else None
    return copied


def _attributes(trial: Trial) -> dict[str, Any]:
    """Return the user attributes of a trial in Optuna.

    They are ``settings`` (real values), ``status``, ``reason``, ``checkpoint`` (file name or None),
    with several seeds ``scores``, and of an offspring ``parent``.
    """
    newest = trial.leader.newest_checkpoint
    several = len(trial.replicas) > 1
    bred = {} if trial.parent is None else {"parent": trial.parent}
    return {
        **({"scores": [replica.score_at() for replica in trial.replicas]} if several else {}),
        **bred,
        "settings": trial.searched,
        "status": trial.status.value,
        "reason": trial.reason,
        "checkpoint": None if newest is None else newest.file,
    }


def _violations(trial: Trial) -> dict[str, float]:
    """Return ``constraints:{path}`` → how far the trial violates the constraint on that result.

    These are the names of Optuna's samplers, so `optuna.load_study(…).best_trial` ignores a trial
    that violates one.
    """
    named = zip(trial.objective.constraints, finite(trial.violations), strict=True)
    return {f"constraints:{one.path}": violation for one, violation in named}


def _curve(trial: Trial) -> dict[int, float]:
    """Return the trial's curve for Optuna.

    It maps ``time_attr``, as an integer, to the metric, aggregated over the seeds. Of two results
    at one time the later one counts.
    """
    seeds = trial.compared_replicas
    if len(seeds) == 1:
        found = [(point.time, point.value) for point in seeds[0].curve]
    else:
        found = [(r.time, aggregate_seeds(trial.objective, r.values)) for r in joint_curve(seeds)]
    return {int(t): value for t, value in found if value is not None and math.isfinite(t)}


def _last(curve: Mapping[int, float]) -> list[float]:
    """Return the value of a pruned trial in Optuna, its last reported one, in a list.

    The list is empty if no value was reported, or the last one is NaN.
    """
    value = curve[max(curve)] if curve else math.nan
    return [] if math.isnan(value) else [value]


def _local_time(seconds: float | None) -> datetime:
    """Return a time in seconds since 1970 as Optuna stores it: local, without time zone.

    None becomes 1970.
    """
    return datetime.fromtimestamp(seconds or 0.0)


def _may_become(old: FrozenTrial, new: FrozenTrial) -> bool:
    """Return whether Optuna allows `old` to become `new`, by additions alone."""
    if old.distributions != new.distributions:  # the space was changed
        return False
    if old.params != new.params or old.intermediate_values.keys() - new.intermediate_values.keys():
        return False
    if not old.state.is_finished():
        return old.state is new.state or new.state is not TrialState.WAITING
    rest = missing(old, new)
    same_end = old.state is new.state and old.values == new.values
    same_attributes = not rest.user_attrs and not rest.system_attrs
    return same_end and not rest.intermediate_values and same_attributes


def missing(old: FrozenTrial, new: FrozenTrial) -> FrozenTrial:
    """Return a copy of the trial `new` with only those values and attributes that `old` lacks.

    Those that `old` has with another value are included.
    """
    lacking = copy.copy(new)
    lacking.intermediate_values = {
        step: value
        for step, value in new.intermediate_values.items()
        if not _is_equal(old.intermediate_values.get(step), value)
    }
    lacking.user_attrs = _missing_entries(old.user_attrs, new.user_attrs)
    lacking.system_attrs = _missing_entries(old.system_attrs, new.system_attrs)
    return lacking


def _missing_entries(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of `new` that `old` lacks or has with another value."""
    return {key: value for key, value in new.items() if key not in old or old[key] != value}


def _is_equal(old: float | None, new: float) -> bool:
    """Return whether two values are equal, or both NaN."""
    return old == new or (old is not None and math.isnan(old) and math.isnan(new))


def differences(context: TrackerContext) -> Iterator[str]:
    """Yield a text for each difference between the study and the whole ledger.

    The study is opened read-only.
    """
    history, found = context.history(math.inf), _read(context)
    if found is None:
        yield f"has no study {context.name}"
        return
    named, metric, trials = found
    if named != (expected := metrics(context)):
        yield f"its metrics are called {named}, should be {expected}"
    if metric != context.spec.metric:
        yield f"is of the metric {metric}, the sweep is compared by {context.spec.metric}"
    if len(trials) != len(history.trials):
        yield f"has {len(trials)} trials, the ledger has {len(history.trials)}"
    domains = Domains(context)
    domains.update(history.trials)
    for old, trial in zip(trials, history.trials, strict=False):
        if problem := _compare(old, frozen(domains, trial)):
            yield f"trial {trial.number}: {problem}"


def _read(context: TrackerContext) -> tuple[list[str] | None, object, list[FrozenTrial]] | None:
    """Return the names of the study's values, its metric and its trials, opened read-only.

    Returns None if there is no study.
    """
    at = place(context.folder)
    if not exists(at):
        return None
    with closing(Storage(at, only_read=True)) as storage:
        study = storage.find(context.name)
        if study is None:
            return None
        metric = storage.attribute(study, "metric")
        return storage.metrics(study), metric, storage.trials(study)


def _compare(old: FrozenTrial, new: FrozenTrial) -> str:
    """Return the first difference between a trial in the study and the one expected, as a phrase.

    The text is empty if there is none.
    """
    if old.state is not new.state or old.values != new.values:
        return f"is {old.state.name} {old.values}, should be {new.state.name} {new.values}"
    if old.distributions != new.distributions or old.params != new.params:
        return f"has other settings: {old.params}"
    values, attributes = missing(old, new), missing(new, old)
    if wrong := values.intermediate_values.keys() | attributes.intermediate_values.keys():
        return f"{len(wrong)} values differ, the first is at {min(wrong)}"
    given = values.user_attrs.keys() | attributes.user_attrs.keys()
    if wrong_attributes := given | values.system_attrs.keys() | attributes.system_attrs.keys():
        return f"the attributes {', '.join(sorted(wrong_attributes))} differ"
    return ""

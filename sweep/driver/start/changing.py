"""Another space, or later stopping criteria, for a sweep that has begun.

With later criteria, an ended trial continues if the criterion or top rung that ended it no longer
does. Such a trial is PAUSED, with its goal and checkpoints, and the scheduler treats it as any
other that waits or was interrupted. So a trial that runs to its end resumes at once, one at a rung
competes for its promotion, and a population continues to breed, as in a sweep that had the later
end from the beginning.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from sweep.core.errors import BadConfig, UnknownName, UsageError
from sweep.driver.context import criteria_of, past_values
from sweep.driver.start.creation import samples
from sweep.driver.start.creation.resolving import Resolved
from sweep.history.events import Moved, Status, StopChanged
from sweep.history.history import History
from sweep.history.replica import Replica
from sweep.ledger.ledger import Ledger
from sweep.schedulers._shared.brackets import Brackets
from sweep.slices.stopping import Criteria, Streaks
from sweep.spec import SweepSpec
from sweep.spec.space import Space
from sweep.spec.space.domains import are_equal
from sweep.spec.space.parameters import Derived, Fixed, Parameter
from sweep.views import formatting, reading
from trainables.errors import nearest, shorten


def check_space(old: Space, new: Space) -> None:
    """Raise BadSpace if the space `new` may not replace the space `old` of a sweep with trials.

    Ranges, steps, scales, choices, grids and weights may change. The trials so far have a value for
    each parameter that was active in them, so names, kinds, conditions, expressions and fixed
    values must stay the same: settings of old and new trials then mean the same.
    """
    for name, parameter in old.parameters.items():
        if name not in new.parameters:
            renamed = [other for other in new.parameters if other not in old.parameters]
            hint = nearest(name, renamed) or (
                "restore it, or start a new sweep with `searcher.prior`"
            )
            problem = f"the parameter {name} is missing, but earlier trials have values for it"
            raise new.source.refuse((), name, hint=hint, problem=problem)
        _check_parameter(parameter, new.parameters[name], new)
    for name, parameter in new.parameters.items():
        if name not in old.parameters:
            hint = "remove it, or start a new sweep with `searcher.prior`"
            problem = f"{name} is a new parameter, for which earlier trials have no value"
            raise new.source.refuse(parameter.path, name, hint=hint, problem=problem)


def _check_parameter(old: Parameter, new: Parameter, space: Space) -> None:
    """Raise BadSpace if the parameter `new` of a changed `space` may not replace `old`.

    Both must have the same conditions, the same kind of domain, and the same fixed value or
    expression; a grid and a choice cannot replace each other.
    """
    reason = "its conditions have changed" if old.when != new.when else ""
    reason = reason or _difference(old.role, new.role)
    if not reason and old.crossed != new.crossed:
        reason = "a grid and a choice are of different kinds"
    if reason:
        hint = "change only the values of the parameter, or start a new sweep with `searcher.prior`"
        problem = (
            f"{new.describe()} is not the same parameter as {old.describe()} of earlier "
            f"trials: {reason}"
        )
        raise space.source.refuse(new.path, new.describe(), hint=hint, problem=problem)


def _difference(old: Any, new: Any) -> str:
    """Return the reason why two roles (domain, fixed value, expression) have different meanings.

    It is empty if the meaning is the same, as that of two domains.
    """
    if type(old) is not type(new):
        return "its kind has changed"
    match old:
        case Fixed(value):
            return "" if are_equal(value, new.value) else "a fixed value has changed"
        case Derived(expression):
            return "" if expression == new.expression else "an expression has changed"
    return ""


def with_later_stop(ledger: Ledger, spec: SweepSpec, changes: Mapping[str, Any]) -> SweepSpec:
    """Return the spec with some stopping criteria moved to a later end.

    The same spec is returned if nothing changes.

    Args:
        changes: result of a criterion, not ``plateau`` → its new value, as in a spec.

    Raises:
        UsageError: a value is not valid, its criterion is not in the spec, or it ends trials
            earlier.
    """
    known = [*spec.stop, *(key for key in spec.stop.at_most if key not in spec.stop)]
    for key in changes:
        if key not in known:
            raise UnknownName("stopping criterion", key, known)
    written = spec.stop.to_spec()
    stop = reading.with_stop(ledger, {**written, **changes}).stop
    for key, value in changes.items():
        same = (key in stop, key in stop.at_most) == (
            key in spec.stop,
            key in spec.stop.at_most,
        )
        earlier = stop.get(key, 0) < spec.stop.get(key, 0)
        earlier = earlier or stop.at_most.get(key, 0) > spec.stop.at_most.get(key, 0)
        earlier = earlier or stop.consecutive.get(key, 1) < spec.stop.consecutive.get(key, 1)
        if earlier or not same:
            problem = (
                f"{shorten(value)} is not later than the present end, {written[key]}, and "
                "trials that are beyond it cannot be shortened"
            )
            hint = "give a later end, or start another sweep"
            raise BadConfig(f"--stop {key}", value, hint=hint, problem=problem)
    return spec if stop == spec.stop else spec.model_copy(update={"stop": stop})


def stop_change(history: History, spec: SweepSpec, resolved: Resolved) -> StopChanged:
    """Return the event that records the changed stopping criteria of `spec`, and the new top rung.

    `resolved` has the scheduler of the changed spec. Raises UsageError with Hyperband's brackets,
    if trials would end at ``scheduler.max_t`` first, and if the sweep has tests.
    """
    name = spec.scheduler.name
    if isinstance(resolved.scheduler, Brackets):
        raise UsageError(
            f"--stop: {name} has assigned its trials to brackets according to the end, which "
            "therefore cannot change; start a new sweep, or continue a policy with `config: "
            "{restore: PATH}`"
        )
    time_attr, top = resolved.scheduler.time_attr, spec.scheduler.options.get("max_t")
    if top is not None and spec.stop.get(time_attr, top) > top:
        raise UsageError(
            f"--stop: trials end at scheduler.max_t, {top:g}, before they reach "
            f"stop.{time_attr}; start a new sweep without max_t"
        )
    if any(trial.test_replicas for trial in history.trials):
        raise UsageError(
            "--stop: the sweep has tests under new seeds, which ended at the present end and "
            "would not be comparable with longer ones; start a new sweep"
        )
    levels = resolved.scheduler.levels
    return StopChanged(spec.stop.to_spec(), levels[-1] if levels else None)


def continuing_moves(
    ledger: Ledger, history: History, old: SweepSpec, new: SweepSpec, change: StopChanged
) -> Iterator[Moved]:
    """Yield the moves to PAUSED of completed replicas that may continue under the changed criteria.

    `ledger` has the results of `history`, and `old` and `new` are the specs before and after the
    change.

    A replica stays ended if it has no checkpoint to continue from, ended for another reason, a user
    holds its trial, or a seed of its trial failed or was pruned.
    """
    for replica in history.replicas(Status.COMPLETED):
        before, after = criteria_of(replica, old.stop), criteria_of(replica, new.stop)
        was, now = (_streaks(ledger, replica, criteria, old.metric) for criteria in (before, after))
        ended = _met_end(replica, was, replica.goal.top)
        if not ended or _met_end(replica, now, change.top) or not replica.checkpoints:
            continue
        trial = history.trials[replica.trial]
        if replica.last_metrics.get("done") is True or trial.hold:
            continue
        if any(seed.ended_early for seed in trial.replicas):
            continue
        why = f"it ended as {ended}, and may continue to {formatting.settings(new.stop.to_spec())}"
        yield Moved(replica.trial, Status.PAUSED, why, replica.index)


def _streaks(ledger: Ledger, replica: Replica, criteria: Criteria, metric: str) -> Streaks:
    """Return the criteria with the state that a replica's results have brought them to.

    `metric` is the sweep's metric.
    """
    streaks = Streaks(criteria)
    streaks.add_past(past_values(criteria, replica, metric, ledger), replica.iteration)
    return streaks


def _met_end(replica: Replica, streaks: Streaks, top: float | None) -> str:
    """Return words for the criterion, or for the end `top`, that a replica's newest result meets.

    It is empty if the result meets none. `top` is in units of `time_attr`.
    """
    met = streaks.met_criterion(replica.last_metrics)
    if not met and top is not None and replica.time >= top:
        return f"{replica.objective.time_attr} is {replica.time:g}, at least {top:g}"
    return met


def schedule_note(
    history: History, resolved: Resolved, old: SweepSpec, new: SweepSpec
) -> Iterator[str]:
    """Yield a message about each schedule's length that new trials get and old trials keep.

    Such a setting follows from the end of training. Only settings of trials with a linear schedule
    are named. `old` and `new` are the specs before and after the change.
    """
    point = samples.draw_samples(new.space, new.seed, 1)[0]
    config = new.space.nest(point.settings, new.config)
    was, now = (resolved.trainable.complete_config(config, spec.stop) for spec in (old, new))
    for key in was:
        its = [t for t in history.trials if t.config.get(key) == was[key] != now.get(key)]
        if any("linear" in trial.config.values() for trial in its):
            yield (
                f"--stop: existing trials keep {key}: {was[key]}, where their linear "
                f"schedules end; new trials have {now.get(key)}"
            )

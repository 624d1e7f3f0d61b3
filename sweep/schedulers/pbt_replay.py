"""Replay the settings of one lineage of a population in one chain of trials.

    scheduler: {name: pbt_replay, time_attr: timesteps_total, schedule: best.yaml}

``sweep export-schedule`` writes the file, whose steps the ledger stores when the sweep is created;
they can be in the spec as well. The first trial has the first step's settings; at the start of the
next step, an offspring with its settings continues. Settings that a step does not name are proposed
for the first trial and then inherited. Clones made by users are not part of the chain; they are
trained to their end.

Jaderberg et al., Population Based Training of Neural Networks, 2017, section 4.4, replay schedules.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from sweep import schedulers
from sweep.core.errors import BadConfig, BadSpace, Source
from sweep.history.events import Goal, Status
from sweep.history.history import History
from sweep.history.trial import Trial
from sweep.schedulers import Exploit, NewTrial, Plan, SchedulerContext, Stop
from sweep.schedulers._shared.mutation import changes, explore
from sweep.schedulers._shared.rungs import TimeOptions, is_waiting
from sweep.spec import text_of, yaml_source
from sweep.spec.space import Domain, Space
from sweep.spec.validation import validate
from trainables.core import rng
from trainables.core.settings import Settings
from trainables.errors import shorten


class Step(Settings):
    """Step of a schedule: settings, and the time from which they hold."""

    model_config = ConfigDict(populate_by_name=True)

    start: float = Field(
        ge=0, alias="from", description="Value of time_attr at which the step begins."
    )
    settings: dict[str, Any] = Field(
        description="Searched settings, by name; the others stay as in the step before."
    )
    trial: int | None = Field(None, description="Trial that had these settings; not used.")


class Options(TimeOptions):
    """Options of a replay: the schedule."""

    schedule: str | list[Any] = Field(
        description="File written by `sweep export-schedule`, or its steps: [{from: 0, settings: "
        "{…}}]."
    )


class Steps(Settings):
    """Steps of a schedule, in order."""

    schedule: Annotated[tuple[Step, ...], Field(strict=False)] = Field(
        description="Steps of the schedule."
    )


class ScheduleFile(Steps):
    """Contents of a file that `sweep export-schedule` wrote."""

    time_attr: str = Field(description="Result key in which steps are counted.")


class Scheduler(schedulers.Scheduler):
    """Replays a schedule of settings in a chain of trials, each a child of the previous trial."""

    Options: ClassVar[type[BaseModel]] = Options
    pauses = True

    def __init__(self, options: BaseModel, context: SchedulerContext) -> None:
        if not isinstance(options, Options):
            raise TypeError(f"expected {Options}, got {type(options)}")
        self.time_attr = options.time_attr
        given = options.schedule
        if isinstance(given, str):
            self.steps = _read(given, self.time_attr)
        else:
            raw = {"schedule": given}
            self.steps = validate(Steps, raw, Source().sub_source("scheduler")).schedule
        _check(self.steps, context)
        self._context = context

    @classmethod
    def settle(cls, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the options with the steps of the schedule in place of its file.

        The sweep then replays these steps even if the file is changed or moved later. Raises
        BadConfig if the file cannot be used.
        """
        file = options.get("schedule")
        if not isinstance(file, str):
            return options
        steps = _read(file, Options.model_validate(options).time_attr)
        return {**options, "schedule": [step.model_dump(by_alias=True) for step in steps]}

    def plan(self, history: History, free: int) -> Plan:
        """Return the next step of the schedule, if the last trial waits for it, and users' clones.

        The first step is a new trial; each later one is an offspring of the trial before, which
        ends. At most `free` trials are started.
        """
        chain = [trial for trial in history.trials if trial.clone_of is None]
        if not chain:
            why = "the first step of the schedule"
            return Plan(fresh=(NewTrial(self._goal(0), why, given=self.steps[0].settings),))
        plan = self._start_next_step(chain)
        clone = NewTrial(Goal(), "it keeps its settings to its end")
        clones = min(free - len(plan.breed), len(history.waiting_clones))
        return replace(plan, fresh=(clone,) * clones)

    def _start_next_step(self, chain: Sequence[Trial]) -> Plan:
        """Return a plan that prunes the last trial and starts the next step as its offspring.

        The plan is empty if the last trial does not wait, or if no step is left. `chain` are the
        trials of the replay so far.
        """
        last, done = chain[-1], len(chain)
        if done >= len(self.steps) or not is_waiting(last):
            return Plan()
        step = self.steps[done]
        stream = rng.generator(self._context.seed, "explore", last.number)
        searched = explore(self._context.space, {**last.searched, **step.settings}, (), stream)
        why = f"step {done + 1} of {len(self.steps)} of the schedule, from {step.start:g}"
        stop = Stop(last.number, Status.PRUNED, f"its child continues with {why}")
        why += f": {changes(last.searched, searched)}"
        return Plan((stop,), breed=(Exploit(last.number, searched, self._goal(done), why),))

    def _goal(self, step: int) -> Goal:
        """Return the goal of the step with index `step`: the start of the next one, or no limit."""
        following = self.steps[step + 1 : step + 2]
        return Goal(following[0].start if following else None)


def _read(file: str, time_attr: str) -> Sequence[Step]:
    """Return the steps in a schedule file.

    Raises BadConfig if the file cannot be read or is no schedule, or counts in something other than
    `time_attr`.
    """
    key = "scheduler.schedule"
    try:
        text = text_of(Path(file))
    except BadConfig as error:
        hint = error.hint or "write one with `sweep export-schedule`"
        problem = f"{file} cannot be read: {error.problem}"
        raise BadConfig(key, file, error.allowed, hint, problem=problem) from error
    written = validate(ScheduleFile, *yaml_source.read(text, file))
    if written.time_attr != time_attr:
        problem = f"{file} counts in {written.time_attr}, not in {time_attr}"
        hint = f"set it to {written.time_attr}"
        raise BadConfig("scheduler.time_attr", time_attr, hint=hint, problem=problem)
    return written.schedule


def _check(steps: Sequence[Step], context: SchedulerContext) -> None:
    """Raise BadConfig unless steps begin at 0 and ascend, and the sweep is to have one trial.

    Their settings are checked by `_check_settings`.
    """
    key = "scheduler.schedule"
    if context.trials != 1:
        hint = "set trials to 1; to train the replay under several seeds, use the key seeds"
        problem = f"{context.trials} trials are too many, because a replay trains a single trial"
        raise BadConfig("trials", context.trials, hint=hint, problem=problem)
    starts = [step.start for step in steps]
    if not steps or steps[0].start != 0:
        hint = "let the first step start at 0"
        problem = f"no step starts at 0: {starts}" if steps else "there are no steps"
        raise BadConfig(key, starts, hint=hint, problem=problem)
    if any(two.start <= one.start for one, two in pairwise(steps)):
        problem = f"the steps are not in the order in which they start: {starts}"
        raise BadConfig(key, starts, hint="put them in order", problem=problem)
    _check_settings(steps, context, key)


def _check_settings(steps: Sequence[Step], context: SchedulerContext, key: str) -> None:
    """Raise BadConfig if a step changes a setting that must be inherited, or is outside the space.

    `key` names the schedule in the message.
    """
    domains = context.space.domains
    for name in sorted(context.fixed):
        values = [step.settings[name] for step in steps if name in step.settings]
        if any(value != values[0] for value in values) or (
            values and name not in steps[0].settings
        ):
            problem = (
                f"{name} cannot change or begin after the first step, because checkpoints "
                f"fix it; the steps have {values}"
            )
            place, hint = f"{key}.settings.{name}", "give all steps the value of the first"
            raise BadConfig(place, values, hint=hint, problem=problem)
    for step in steps:
        for name, value in step.settings.items():
            known = ", ".join(domains)
            if name not in domains:
                problem = f"{shorten(name)} is not a searched parameter"
                raise BadConfig(f"{key}.settings", name, f"one of {known}", problem=problem)
            if not domains[name].contains(value):
                raise BadConfig(f"{key}.settings.{name}", value, domains[name].describe())
    _check_points(steps, context.space, key)


def _check_points(steps: Sequence[Step], space: Space, key: str) -> None:
    """Raise BadConfig if settings of a step are forbidden together, with those of earlier steps.

    Steps that leave settings open are not checked. `key` names the schedule in the message.
    """
    named: dict[str, Any] = {}
    for step in steps:
        named |= step.settings
        try:
            with contextlib.suppress(_Open):
                space.resolve(partial(_given, named))
        except BadSpace as error:
            allowed = "settings that are allowed together"
            raise BadConfig(f"{key}.settings", step.settings, allowed, error.problem) from error


class _Open(Exception):
    """Error that no step has named a setting yet, so that it is proposed or drawn."""


def _given(named: Mapping[str, Any], name: str, _domain: Domain) -> Any:
    """Return the value of setting `name` in `named`; _Open if it has none."""
    if name not in named:
        raise _Open
    return named[name]

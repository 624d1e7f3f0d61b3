"""Create the scheduler that a spec names, with checked options."""

from collections.abc import Collection, Sequence

from pydantic import BaseModel

from sweep import schedulers
from sweep import spec as specs
from sweep.core import plugins
from sweep.core.errors import BadConfig, UsageError
from sweep.spec import Plugin, SweepSpec
from sweep.spec.sections import written_seeds


def build(
    spec: SweepSpec, paths: Sequence[str] = (), fixed: Collection[str] = ()
) -> schedulers.Scheduler:
    """Return the scheduler that `spec` names, with its options.

    Args:
        paths: folders that are searched for modules, too.
        fixed: names of settings that offspring may not change (`Trainable.fixed_keys`).

    Raises:
        UsageError: there is no such scheduler, its options are not valid, it has no rungs for a
            plan of seeds, its class does not define `pauses`, or its `time_attr` has a stopping
            criterion with `consecutive`.
    """
    cls = schedulers.find(spec.scheduler.name, paths)
    if spec.has_seed_plan and not cls.adds_seeds:
        raise _no_rungs_error(spec)
    inherited = spec.space.determining(fixed)
    context = schedulers.SchedulerContext(
        spec.stop, spec.trials, spec.space, spec.seed, inherited, spec.seed_plan
    )
    scheduler = cls(options(spec, paths), context)
    if not hasattr(scheduler, "pauses"):
        raise UsageError(
            f"scheduler: '{spec.scheduler.name}' does not define pauses; set pauses = True "
            "in its class if its trials wait while others run, else pauses = False"
        )
    needed = spec.stop.consecutive.get(scheduler.time_attr)
    if needed is not None:
        problem = (
            f"{scheduler.time_attr} is scheduler.time_attr and never falls, so the first value at "
            "the bound ends the trial"
        )
        key = f"stop.{scheduler.time_attr}.consecutive"
        raise BadConfig(key, needed, hint="remove it", problem=problem)
    return scheduler


def _no_rungs_error(spec: SweepSpec) -> BadConfig:
    """Return the error for a plan of seeds with a scheduler that cannot add seeds."""
    names = plugins.names(schedulers.PACKAGE)
    able = ", ".join(name for name in names if schedulers.find(name).adds_seeds)
    problem = (
        f"the scheduler {spec.scheduler.name} has no rungs at which trials could get further seeds"
    )
    hint = f"set seeds to a number, such as 3, or use a scheduler with rungs: {able}"
    return BadConfig("seeds", written_seeds(spec.seed_plan), hint=hint, problem=problem)


def options(spec: SweepSpec, paths: Sequence[str] = ()) -> BaseModel:
    """Return the validated options of the scheduler that `spec` names.

    `paths` are folders that are searched for modules, too. Raises BadConfig if the options are not
    valid.
    """
    cls = schedulers.find(spec.scheduler.name, paths)
    key, name, given = "finish_best", spec.scheduler.name, spec.scheduler.options
    if key in given and schedulers.KIND.is_shipped(name) and key not in cls.Options.model_fields:
        problem = f"has no effect with {name}, because {schedulers.NOBODY_WAITS}"
        hint = f"remove it, or use {schedulers.WAITING}"
        raise spec.source.refuse(("scheduler", key), given[key], hint=hint, problem=problem)
    return specs.build(cls.Options, spec.scheduler, "scheduler", spec.source)


def remarks(spec: SweepSpec, scheduler: schedulers.Scheduler) -> list[str]:
    """Return sentences about the scheduler for the user, shown before a sweep runs.

    They are its `remark`, and one if it compares trials by the metric alone in spite of objectives.
    """
    texts = [scheduler.remark] if scheduler.remark else []
    compares = scheduler.pauses or scheduler.startup_trials is not None
    if spec.objectives and compares and not scheduler.ranks_by_fronts:
        names = plugins.names(schedulers.PACKAGE)
        able = ", ".join(name for name in names if schedulers.find(name).ranks_by_fronts)
        texts.append(
            f"scheduler: {spec.scheduler.name} compares trials by {spec.metric} alone; the "
            f"objectives {', '.join(spec.objectives)} only appear in the results ({able} "
            "compare all objectives)"
        )
    return texts


def settle_spec(
    spec: SweepSpec, scheduler: schedulers.Scheduler, depends_on_seed: bool
) -> SweepSpec:
    """Return a spec as stored in the ledger of a new sweep, with the defaults of its scheduler.

    If the spec gives no `seeds`, it gets the scheduler's, or 1 if results do not depend on the seed
    or the aggregate cannot compare trials with different numbers of seeds. `depends_on_seed` is
    `Trainable.depends_on_seed`: True if results may differ between seeds.
    """
    plugin, seeds = spec.scheduler, spec.seeds
    if seeds is None:
        several = depends_on_seed and spec.aggregate.is_independent_of_count
        seeds = scheduler.default_seeds if several else 1
    options = dict(scheduler.settle(plugin.options))
    named = Plugin(name=plugin.name, options=options)
    return spec.model_copy(update={"scheduler": named, "seeds": seeds})

"""Find the plugins that a spec names, and every mistake in it, before anything is written."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sweep import searchers, trackers
from sweep import spec as specs
from sweep.core import plugins
from sweep.core.errors import BadConfig, Gathering, NotLoaded, UnknownName, UsageError
from sweep.core.pickled import PickledTrainable
from sweep.driver.start.creation import result_names, samples, suggested
from sweep.history.objective import Objective
from sweep.schedulers import Scheduler
from sweep.schedulers._shared import building
from sweep.searchers import Searcher
from sweep.searchers._shared.prior import mixture
from sweep.spec import SweepSpec
from sweep.trackers._shared import callbacks
from sweep.views import reading
from trainables.core.results import ANY_NAME, has_name
from trainables.core.settings import Settings as TrainerSettings
from trainables.core.settings import parse
from trainables.errors import ConfigError
from trainables.function import FunctionTrainable
from trainables.trainable import Trainable


@dataclass(frozen=True)
class Resolved:
    """A checked spec together with its plugins."""

    spec: SweepSpec
    """The spec; in a new sweep, the scheduler's defaults are filled in."""
    trainable: type[Trainable]
    """Class of the trainable."""
    scheduler: Scheduler
    """Scheduler of the sweep."""
    searcher: Searcher
    """Searcher of the sweep, mixed with results of earlier sweeps if it uses any."""
    paths: tuple[str, ...] = ()
    """Folders in which modules are searched after all installed packages."""

    @property
    def objective(self) -> Objective:
        """Objective by which the sweep's trials are compared."""
        return reading.objective_of(self.spec, self.scheduler.time_attr)


def resolve(
    spec: SweepSpec,
    paths: Sequence[str],
    is_new: bool = False,
    trainable: type[Trainable] | None = None,
    pickled: PickledTrainable | None = None,
    gathering: Gathering | None = None,
) -> Resolved:
    """Find the plugins that `spec` names, and check it with them; nothing is written.

    Plugins are imported, and `paths` appended to `sys.path`.

    Args:
        paths: folders in which modules are searched after all installed packages.
        is_new: True if a sweep is being created: the spec then gets defaults that its ledger must
            store.
        trainable: the trainable that the spec names, if already loaded.
        pickled: file of a script's trainable, if the spec names one.
        gathering: mistakes found while reading `spec`, raised together with those found here.

    Raises:
        UsageError: the spec has mistakes; the message lists all.
    """
    gathering = Gathering(spec.source) if gathering is None else gathering
    if trainable is None:
        trainable = gathering.run(lambda: _find_trainable(spec, paths, pickled), "trainable")
    gathering.run(lambda: _check_scheduler(spec, paths), "scheduler")
    built = gathering.run(lambda: _build_scheduler(spec, paths, trainable, is_new), *_OF_SCHEDULER)
    searcher = gathering.run(lambda: _build_searcher(spec, paths), "searcher")
    _find_trackers_and_callbacks(spec, paths, gathering)
    if searcher is not None:
        gathering.run(lambda: _check_searcher(spec, searcher), "searcher", "space", "objectives")
    if built is not None:
        spec = built[0]
    if trainable is not None:
        if built is not None:
            gathering.run(
                lambda: _check_pauses(spec, built[1], trainable), "scheduler", "trainable"
            )
        gathering.run(lambda: _check_settings(spec, trainable), *_OF_TRAINABLE)
        time_attr = None if built is None else built[1].time_attr
        if gathering.refused.isdisjoint(_OF_TRAINABLE):
            gathering.run(lambda: result_names.check(spec, trainable, time_attr), *_OF_TRAINABLE)
        else:
            _check_remaining(spec, trainable, time_attr, gathering)
    gathering.check()
    if trainable is None or built is None or searcher is None:
        raise AssertionError  # not reached: a mistake was raised above
    return Resolved(spec, trainable, built[1], searcher, tuple(paths))


def unsure_names(resolved: Resolved) -> dict[str, str]:
    """Return name → key of the spec for the results that the trainable may not report.

    Names that the trainable declares are left out. The mapping is empty if it declares all of its
    names: wrong ones were refused before.
    """
    spec, trainable = resolved.spec, resolved.trainable
    point = samples.draw_samples(spec.space, spec.seed, 1)[0]
    config = samples.complete_config(trainable, spec, spec.space.nest(point.settings, spec.config))
    known: set[str] = set()
    with contextlib.suppress(ConfigError):
        known.update(trainable.result_names(config) or {ANY_NAME})
        if ANY_NAME not in known:
            return {}
    known.discard(ANY_NAME)
    named = result_names.names_of(spec, resolved.scheduler.time_attr)
    return {n: spec.source.key(path) for path, n in named.items() if not has_name(known, n)}


#: Keys of a spec from which its scheduler is built, and keys that its trainable sees.
_OF_SCHEDULER = ("scheduler", "stop", "trials", "space", "seed", "seeds")
#: Keys of a spec that its trainable sees.
_OF_TRAINABLE = ("trainable", "config", "space", "stop", "metric", "objectives", "constraints")


def _find_trainable(
    spec: SweepSpec, paths: Sequence[str], pickled: PickledTrainable | None
) -> type[Trainable]:
    """Import or unpickle the trainable that the spec names, and return its class.

    Raises UsageError if it cannot be found; a wrong name is a BadConfig with its line in the spec.
    """
    with _locating_errors(spec, "trainable"):
        return plugins.find_trainable(spec.trainable, paths, pickled)


def _check_scheduler(spec: SweepSpec, paths: Sequence[str]) -> None:
    """Raise BadConfig or UnknownName if the scheduler's name or options are wrong."""
    with _locating_errors(spec, "scheduler"):
        building.options(spec, paths)


def _build_scheduler(
    spec: SweepSpec, paths: Sequence[str], trainable: type[Trainable] | None, is_new: bool
) -> tuple[SweepSpec, Scheduler]:
    """Create the scheduler; return it with the spec.

    With `is_new`, the scheduler's defaults are added to the spec. `trainable` is None if it was not
    found: then the settings that its offspring inherit are unknown. Raises UsageError if the spec
    does not suit the scheduler.
    """
    fixed = () if trainable is None else trainable.fixed_keys
    depends_on_seed = trainable is not None and trainable.depends_on_seed
    with _locating_errors(spec, "scheduler"):
        scheduler = building.build(spec, paths, fixed)
        if is_new:
            spec = building.settle_spec(spec, scheduler, depends_on_seed)
            scheduler = building.build(spec, paths, fixed)
    return spec, scheduler


def _build_searcher(spec: SweepSpec, paths: Sequence[str]) -> Searcher:
    """Create the searcher, mixed with results of earlier sweeps if the spec asks for that.

    Raises BadConfig if it does not exist, or its options are wrong.
    """
    with _locating_errors(spec, "searcher"):
        cls = searchers.find(spec.searcher.name, paths)
    searcher = cls(specs.build(cls.Options, spec.searcher, "searcher", spec.source))
    return mixture.blend(searcher, spec)


def _find_trackers_and_callbacks(
    spec: SweepSpec, paths: Sequence[str], gathering: Gathering
) -> None:
    """Add an error to `gathering` for each tracker and callback of the spec that does not exist.

    `paths` are folders in which modules are searched after all installed packages.
    """
    for key, names, find in (
        ("trackers", spec.trackers, trackers.find),
        ("callbacks", spec.callbacks, callbacks.find),
    ):
        for index, name in enumerate(names):
            with gathering.collect(key), _locating_errors(spec, key, index):
                find(name, paths)


def _check_searcher(spec: SweepSpec, searcher: Searcher) -> None:
    """Raise BadConfig if the searcher does not support the space or several objectives."""
    with _locating_errors(spec, "searcher"):
        searcher.check(spec.space)
    if spec.objectives and not searcher.supports.objectives:
        able = [
            n for n in plugins.names(searchers.PACKAGE) if searchers.find(n).supports.objectives
        ]
        raise spec.source.refuse(
            ("objectives",),
            dict(spec.objectives),
            hint=f"remove it, or use a searcher that supports several: {', '.join(able)}",
            problem=f"the searcher {spec.searcher.name} supports only one objective, the metric",
        )


def _check_pauses(spec: SweepSpec, scheduler: Scheduler, trainable: type[Trainable]) -> None:
    """Raise UsageError if the scheduler pauses trials, but the trainable cannot save them.

    The answer may depend on the fixed settings of the spec.
    """
    if not scheduler.pauses or trainable.can_save(spec.config):
        return
    lacks = "has no save_checkpoint(); add this method"
    if trainable.can_save():
        lacks = (
            "saves no checkpoints with config: pattern, or checkpoints: false; change this setting"
        )
    elif suggested.is_objective(trainable):
        lacks = (
            "is an objective of Optuna, which saves no checkpoints; write it as a function "
            "of config"
        )
    elif issubclass(trainable, FunctionTrainable):
        lacks = "never calls report(..., checkpoint=...); add such a call"
    raise UsageError(
        f"scheduler: '{spec.scheduler.name}' pauses trials, but {trainable.__name__} "
        f"{lacks}, or use a scheduler that pauses no trials: fifo, median, or {{name: asha, "
        "type: stopping}"
    )


def _check_settings(spec: SweepSpec, trainable: type[Trainable]) -> None:
    """Let the trainable check its settings at sampled points; BadConfig if it refuses one."""
    samples.check_samples(
        spec, lambda c: trainable.check_config(samples.complete_config(trainable, spec, c))
    )


def _check_remaining(
    spec: SweepSpec, trainable: type[Trainable], time_attr: str | None, gathering: Gathering
) -> None:
    """Check a shipped trainer's settings and result names although other keys have mistakes.

    Only mistakes that cannot follow from the others are added to `gathering`. Nothing is checked
    for other trainables. `time_attr` is the scheduler's; None if it could not be built.
    """
    kind, before = getattr(trainable, "config_class", None), gathering.refused
    if kind is None or not plugins.trainables().is_shipped(spec.trainable):
        return
    if "config" not in before:
        _check_config(spec, kind, gathering)
    if "callbacks" not in spec.config:
        result_names.check_names_separately(spec, trainable, time_attr, gathering)


def _check_config(spec: SweepSpec, kind: type[TrainerSettings], gathering: Gathering) -> None:
    """Add the mistakes in keys of ``config`` to `gathering`.

    `kind` is the model of the settings.
    """
    try:
        parse(kind, spec.config)
    except ConfigError as error:
        for one in error.mistakes:
            if one.place.partition(".")[0] in spec.config:
                gathering.add(samples.refusal(one, spec.source, spec.space), "config")


@contextlib.contextmanager
def _locating_errors(spec: SweepSpec, *path: str | int) -> Iterator[None]:
    """Give an error of a name, or a BadConfig, inside the block a line of the spec, as a BadConfig.

    It is the line of the key that the BadConfig names, or else that at `path`. A BadConfig that has
    a file, and any other error, pass unchanged.
    """
    try:
        yield
    except UnknownName as error:
        known = ", ".join([f"one of {', '.join(error.known)}", *filter(None, [error.hint])])
        raise spec.source.refuse(
            path, error.name, known, error.suggestion, error.problem
        ) from error
    except NotLoaded as error:
        raise spec.source.refuse(path, None, problem=error.problem) from error
    except BadConfig as error:
        if error.file:
            raise
        at = spec.source.locate(tuple(error.key.split(".")) if error.key else path)
        mistake = (error.key, error.value, error.allowed, error.hint)
        raise BadConfig(*mistake, place=at, problem=error.problem) from error

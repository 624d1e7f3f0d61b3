"""Read and check a spec from a command or a call, and prepare the launch of a driver."""

import contextlib
import functools
import math
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import joblib

from sweep import pools
from sweep import spec as specs
from sweep.core import plugins
from sweep.core.errors import KeyPath, NameTaken, SweepError, SweepLocked, UsageError
from sweep.driver import capacity
from sweep.driver.start import launch
from sweep.driver.start.creation import creating, learning, resolving, samples, suggested
from sweep.driver.start.creation.resolving import Resolved
from sweep.driver.start.launch import Launch
from sweep.driver.tracking import sync
from sweep.history.events import Status
from sweep.history.history import History
from sweep.ledger import folder as folders
from sweep.ledger import hold, lease
from sweep.ledger import storage as ledgers
from sweep.ledger.folder import Folder
from sweep.schedulers._shared import building
from sweep.slices import store
from sweep.spec import Override, SweepSpec
from sweep.spec.sections import name_from
from sweep.spec.space import Fixed
from sweep.views import lookup
from sweep.views.formatting import plural
from trainables.core import importing
from trainables.errors import printable, shorten
from trainables.function import FunctionTrainable, forms
from trainables.trainable import Trainable

#: Function that returns the class of the sweep's trainable.
FindTrainable = Callable[[], type[Trainable]]


def prepare(
    space: str,
    overrides: Sequence[Override],
    parsed: Callable[[SweepSpec], None] | None = None,
    root: Path | None = None,
) -> tuple[Resolved, str]:
    """Read a spec file, check it and find its plugins, which imports them; nothing is written.

    An objective of Optuna is run many times in a child process, to find its space. Returns the
    resolved spec, and the file's text with the overrides as comments on top. A spec without a name
    is named after its file.

    Args:
        space: a path, or the bare name of a shipped search space. Modules are searched beside the
            file, then in the current folder.
        overrides: changes of the spec's keys, as by ``--set``.
        parsed: called with the spec before its plugins are resolved, unless it has mistakes.
        root: folder in which a sweep will be created; a name from the file then gets a number if it
            is taken.

    Raises:
        UsageError: the spec has mistakes; the message lists all.
    """
    path = specs.find(space)
    text = specs.text_of(path)  # read once, so that the stored text is the checked one
    paths = (str(path.resolve().parent), str(Path.cwd()))
    wanted = name_from(path.stem)
    name = wanted if root is None else folders.free_name(root, wanted)
    remark = ""
    if name != wanted and root is not None:
        before = Folder(root, wanted).in_commands
        remark = (
            f"this sweep is named '{name}', because {wanted} exists already; `sweep resume "
            f"{before}` continues that one"
        )
    return prepare_text(text, str(path), paths, overrides, parsed=parsed, name=name, remark=remark)


def prepare_text(
    text: str,
    file: str,
    paths: Sequence[str],
    overrides: Sequence[Override] = (),
    trainable: type[Trainable] | None = None,
    source: str = "on the command line",
    parsed: Callable[[SweepSpec], None] | None = None,
    name: str = "",
    remark: str = "",
) -> tuple[Resolved, str]:
    """Check the text of a spec and find its plugins, which imports them; nothing is written.

    Returns the resolved spec, and the text with all overrides as comments on top. An objective of
    Optuna is run many times in a child process, to find its space and metric. Raises UsageError if
    the spec has mistakes; the message lists all.

    Args:
        text: YAML text.
        file: path of the spec, for messages.
        paths: folders in which modules are searched after all installed packages.
        trainable: the trainable that the spec names, if already loaded.
        source: place in which the overrides were given, for the comments.
        parsed: called with the spec before its plugins are resolved, unless it has mistakes.
        name: name of the sweep if the text has none.
        remark: a remark about that name for the user.
    """
    paths = tuple(dict.fromkeys(paths))
    spec, gathering = specs.survey(text, file, overrides, name, remark)
    begins = parsed or (lambda _: None)
    if not (waits := gathering.refused):
        begins(spec)
    added = _missing_settings(spec, gathering.refused, paths, trainable)
    if added:
        spec, gathering = specs.survey(text, file, [*overrides, *added], name, remark)
    if waits and not gathering.refused:
        begins(spec)
    resolved = resolving.resolve(spec, paths, True, trainable, gathering=gathering)
    changed = "".join(f"# given {source}: {printable(override.typed)}\n" for override in overrides)
    changed += "".join(f"# {printable(f'{o.path}: {o.value}, {o.typed}')}\n" for o in added)
    return resolved, changed + text


def _missing_settings(
    spec: SweepSpec,
    refused: Collection[str],
    paths: Sequence[str],
    trainable: type[Trainable] | None,
) -> list[Override]:
    """Return overrides for what the spec of an Optuna objective lacks: parameters and metric.

    The objective is imported, and run many times in a child process. `refused` are the top-level
    keys with mistakes. The list is empty for other trainables, and if ``trainable``, ``space`` or
    ``config`` has mistakes.
    """
    wrong = {key for key in refused if (key,) in spec.source.marks}
    if not wrong.isdisjoint(("trainable", "space", "config")) or ":" not in spec.trainable:
        return []
    try:
        found = trainable or plugins.find_trainable(spec.trainable, paths)
    except UsageError:  # reported with the spec's other mistakes
        return []
    return suggested.overrides(spec, found, paths) if suggested.is_objective(found) else []


def create(
    resolved: Resolved,
    text: str,
    folder: Folder,
    pool: str,
    tracking_uri: str | None = None,
    storage: str | None = None,
    checkpoints: str | None = None,
) -> list[str]:
    """Make the sweep's folder and ledger if its pool can be used; return remarks for the user.

    Connects to the pool for a moment. `text` is the spec's text, `tracking_uri` MLflow's; None for
    the root's own file. `storage` and `checkpoints` are URLs of the ledger's server and of the
    checkpoints' storage; None for the folder.

    Raises:
        SweepError: the pool cannot be used.
        BadConfig: the pool trains trials as lanes, and the trainable cannot be one.
        SweepLocked: a sweep of this name has a driver, or was just created.
        NameTaken: a sweep of this name exists.
    """
    pools.check(pool, resolved.paths, folder.root)
    if pools.has_lanes(pool, resolved.paths):
        check_lanes(resolved)
    try:
        return creating.create(folder, resolved, text, tracking_uri, storage, checkpoints)
    except NameTaken as taken:
        found = lease.read_file(folder.ledger)
        if found.is_live or (found.is_other and lookup.is_driven(folder)):
            raise SweepLocked(folder.name, found.describe()) from None
        raise NameTaken(f"{taken}{_retry_advice(folder)}") from None


def check_lanes(resolved: Resolved) -> None:
    """Raise BadConfig if the trainable cannot train several trials as lanes of one program.

    Its settings are checked at sampled points of the space.
    """
    trainable, spec = resolved.trainable, resolved.spec
    if not trainable.can_be_lane():
        problem = (
            f"{spec.trainable} cannot train several trials in one compiled program (in lanes), "
            "which this pool needs"
        )
        hint = "use --pool loky, or train ppo or dqn"
        raise spec.source.refuse(("trainable",), spec.trainable, hint=hint, problem=problem)

    def check(config: Mapping[str, Any]) -> None:
        """Raise ConfigError if a trial with this `config` cannot be a lane."""
        trainable.check_config(
            trainable.as_lane(samples.complete_config(trainable, spec, config), 1)
        )

    samples.check_samples(spec, check)


def _retry_advice(folder: Folder) -> str:
    """Return advice to retry the failed trials of an existing sweep.

    It is empty if there are none, or the ledger cannot be read.
    """
    with contextlib.suppress(SweepError):  # the ledger cannot be read
        if failed := len(lookup.read_history(folder).with_status(Status.FAILED)):
            return (
                f"; `sweep resume {folder.in_commands} --retry-failed` tries its "
                f"{plural(failed, 'failed trial')} again"
            )
    return ""


def start(
    resolved: Resolved,
    text: str,
    root: Path,
    jobs: int | None,
    pool: str | None,
    tracking_uri: str | None,
    say: Callable[[str], None],
    storage: str | None = None,
    checkpoints: str | None = None,
) -> Launch:
    """Check what a new sweep needs, create its folder, and return the launch of its first driver.

    `text` is the spec's text. `jobs` and `pool` None mean default. `tracking_uri` is MLflow's, None
    for the root's own file. `storage` and `checkpoints` are URLs, None for the folder. `say` is
    called with messages for the user. Raises this process's limit of open files if needed. Nothing
    is written if the pool, a service or the trainable's packages cannot be used, or the name is
    taken: then a SweepError is raised.
    """
    spec = resolved.spec
    folder = Folder(root, spec.name)
    chosen = pools.choose_pool(pool)
    at_once = slots(jobs, spec, resolved.paths, spec.trials, lambda: resolved.trainable, chosen)
    capacity.allow_files(at_once, chosen)
    if tracking_uri is not None:
        sync.check(tracking_uri, spec)
    if storage is not None:
        ledgers.check(storage)
    if checkpoints is not None:
        checkpoints = store.check(checkpoints)
    if not pools.is_clustered(chosen):
        _check_packages(resolved.trainable)
    places = tracking_uri, storage, checkpoints
    for said in create(resolved, text, folder, chosen, *places):
        say(said)
    return Launch(folder, at_once, chosen, jobs_given=jobs is not None, say=say, resolved=resolved)


def _check_packages(trainable: type[Trainable]) -> None:
    """Raise UsageError if a function imports packages that are not installed on this machine.

    Other trainables are not checked.
    """
    if not issubclass(trainable, FunctionTrainable):
        return
    if missing := forms.missing_packages(trainable.function):
        verb = "are" if len(missing) > 1 else "is"
        names = " and ".join(missing)
        raise UsageError(
            f"trainable: {trainable.__name__}() imports {names}, which {verb} not installed; "
            "install it with pip"
        )


def prepare_existing(
    folder: Folder,
    jobs: int | None,
    pool: str | None,
    trials: int | None,
    say: Callable[[str], None],
    trainable: type[Trainable] | None = None,
    **more: Any,
) -> Launch:
    """Upgrade an existing sweep's ledger if necessary, and return the launch of its next driver.

    `jobs` is the number of trials at once, `trials` their total number; None keeps the latter, and
    the former as `slots_of_resumed` says. `pool` is a pool's name, None for the previous one, and
    `trainable` replaces that of a script. `more` are further fields of `Launch`. `say` is called
    with messages for the user. Imports the trainable if the number of slots depends on it, and
    raises this process's limit of open files if needed. Raises SweepError if the ledger cannot be
    upgraded, or the options do not fit the sweep.
    """
    hold.upgrade(folder, say)
    spec, paths = lookup.read_spec(folder)
    past = lookup.read_history(folder)
    find = functools.partial(_trainable, folder, trainable)
    chosen = pools.choose_pool(pool, past.pool)
    if pools.has_lanes(chosen, paths) and any("lanes" not in one.config for one in past.trials):
        raise UsageError(
            f"--pool {chosen}: the trials of this sweep began without lanes (several trials in "
            "one program) and must continue without them; use --pool "
            f"{pools.DEFAULT}, or start a new sweep"
        )
    at_once, given = slots_of_resumed(jobs, past, spec, paths, trials, find, chosen)
    capacity.allow_files(at_once, chosen)
    return Launch(
        folder, at_once, chosen, trials, jobs_given=given, say=say, trainable=trainable, **more
    )


def _trainable(folder: Folder, trainable: type[Trainable] | None) -> type[Trainable]:
    """Return `trainable`, or the trainable class of the sweep, imported now, if it is None."""
    return trainable or launch.trainable_of(folder)


def prior_remarks(resolved: Resolved, root: Path) -> list[str]:
    """Return remarks about the earlier sweeps whose results a new sweep would use.

    Their ledgers are read; `root` is the folder of sweeps given by name. Raises BadConfig if a
    named sweep cannot be used.
    """
    return list(learning.read(resolved.spec, resolved.searcher.options, root).remarks)


def remarks(resolved: Resolved) -> list[str]:
    """Return messages for the user about a spec that is valid but may not be meant so.

    They are those of its source (overrides, a taken name), and about lists that are fixed values,
    rungs, trials without an end, GPUs, and modules that others hide.
    """
    own = map(printable, resolved.spec.source.remarks)
    rungs = building.remarks(resolved.spec, resolved.scheduler)
    lists = fixed_lists(resolved.spec)
    return [
        *own,
        *lists,
        *rungs,
        *_endless_remarks(resolved),
        *_gpu_remarks(resolved),
        *_shadow_remarks(resolved),
    ]


def _shadow_remarks(resolved: Resolved) -> Iterator[str]:
    """Yield a remark for each module beside the spec that another one of its name hides."""
    folders = [Path(folder).resolve() for folder in resolved.paths]
    for path in dict.fromkeys(path for folder in folders for path in _modules_in(folder)):
        name = path.parent.name if path.stem == "__init__" else path.stem
        origin = importing.module_origin(name)
        if origin is None or _folder_of(Path(origin)) in folders:
            continue
        whose = "belongs to Python" if name in sys.stdlib_module_names else "is installed"
        yield (
            f"{printable(str(path))} is not imported, because {name}, which {whose}, comes "
            "first; rename the file"
        )


def _folder_of(file: Path) -> Path:
    """Return the folder in which the module or package of a file was found.

    For a package, this is the folder that contains the package's. A relative path is returned as it
    is, since a module of Python's own program has no file but a word, such as "built-in".
    """
    if not file.is_absolute():
        return file
    found = file.resolve().parent
    return found.parent if file.name.startswith("__init__.") else found


def _modules_in(folder: Path) -> list[Path]:
    """Return the files of the modules in a folder and ``__init__.py`` of its packages, sorted."""
    modules = [path for path in folder.glob("*.py") if path.stem != "__init__"]
    return sorted([*modules, *folder.glob("*/__init__.py")])


def fixed_lists(spec: SweepSpec) -> list[str]:
    """Return a remark for each list in the space that is one value, but may be meant as choices."""
    return [
        (
            f"space.{name}: {shorten(role.value)} is one fixed value; write {{choice: "
            f"{shorten(role.value)}}} to choose among its items, or move it to config"
        )
        for name, parameter in spec.space.parameters.items()
        if isinstance(role := parameter.role, Fixed) and isinstance(role.value, list | tuple)
        if _is_bare_list(spec.space.raw, parameter.path)
    ]


def _is_bare_list(raw: Any, path: KeyPath) -> bool:
    """Return whether the value at `path` is a list itself, without a keyword such as ``choice``.

    `raw` is the space as it was written, as plain data. Returns False if nothing is at `path`.
    """
    for part in path:
        raw = raw[part] if isinstance(raw, Mapping) and part in raw else None
    return isinstance(raw, list | tuple)


def _gpu_remarks(resolved: Resolved) -> list[str]:
    """Return a remark if a trial's settings use a GPU or its resources give it one, but not both.

    Also if the settings ask for a larger share of a GPU than the resources give.
    """
    given, request = resolved.spec.resources.gpu, _request(resolved.spec, resolved.trainable)
    asked = request.get("gpu", 0.0) + request.get("extra_gpu", 0.0)
    whole = math.ceil(asked) if asked > 1 else asked
    if asked and not given:
        return [
            (
                f"warning: a trial's settings request {asked:g} of a GPU, but resources: "
                "reserves none, so all trials that run at the same time share the first GPU; add "
                f"resources: {{gpu: {whole:g}}}"
            )
        ]
    if given and not asked and "gpu" in request:
        return [
            (
                f"warning: resources: reserves {given:g} of a GPU for each trial, but its "
                "settings use none; to learn on the GPU, set config: {num_gpus: "
                f"{min(given, 1):g}}}"
            )
        ]
    if asked > given:
        return [
            f"warning: a trial's settings request {asked:g} of a GPU, but resources: reserves "
            f"{given:g}, so trials that share a GPU may together need more memory than it has; set "
            "num_gpus and resources: {gpu} to the same share"
        ]
    return []


def _endless_remarks(resolved: Resolved) -> list[str]:
    """Return a remark if nothing in the spec ends a trial; the list is empty otherwise.

    It is also empty if the trainable is a function, which ends by itself.
    """
    spec = resolved.spec
    ends = spec.limits.trial_s is not None or spec.budget.is_set or not spec.stop.ends_nothing
    if ends or resolved.scheduler.levels or issubclass(resolved.trainable, FunctionTrainable):
        return []
    return [
        (
            f"warning: stop: is empty, and scheduler: {spec.scheduler.name} sets no end, so each "
            "trial trains until its trainable reports that it is done; add, for example, stop: "
            "{training_iteration: 100}"
        )
    ]


#: Maximum number of lanes unless --jobs says otherwise.
LANES = 64


def slots(
    jobs: int | None,
    spec: SweepSpec,
    paths: Sequence[str],
    trials: int,
    trainable: FindTrainable | None = None,
    pool: str = pools.DEFAULT,
) -> int:
    """Return the number of trials that train at once: `jobs`, or as many as the cores allow.

    It is at most the number that fit. On a cluster, without `jobs`, the number of its workers
    decides later. Without `jobs`, it is at most `trials`, and for a pool of lanes at most `LANES`
    instead of the cores.

    Args:
        trials: total number of trials; more slots are of no use.
        trainable: function that returns the trainable; None to search it by name.

    Raises:
        BadConfig: not even one trial fits.
    """
    clustered = pools.is_clustered(pool)
    most = capacity.most_at_once(spec, clustered=clustered)
    if jobs is not None or clustered:
        return min(jobs or most, most)
    found = plugins.find_trainable(spec.trainable, paths) if trainable is None else trainable()
    if pools.has_lanes(pool, paths):
        return min(trials, most, LANES)
    per_trial = cores_per_trial(spec, found)
    cores = spec.machine.cpu or joblib.cpu_count()
    return max(1, min(int(cores // per_trial), trials, most))


def slots_of_resumed(
    jobs: int | None,
    history: History,
    spec: SweepSpec,
    paths: Sequence[str],
    trials: int | None,
    trainable: FindTrainable | None = None,
    pool: str = pools.DEFAULT,
) -> tuple[int, bool]:
    """Return the number of trials that train at once in a resumed sweep; and if a user chose it.

    It is the previous number unless `jobs` asks for another one. If no user ever chose it, it is
    computed again by `slots` when the total number `trials` grows, or the present or previous pool
    is a cluster. `paths` are folders in which modules are searched.
    """
    given = jobs is not None or history.jobs_given
    more = not given and trials is not None and trials > history.wanted
    counted = not history.jobs_given and "@" in history.pool + pool  # the cluster's workers
    if jobs is None and not more and not counted:
        jobs = history.jobs
    total = trials or history.wanted or spec.trials
    return slots(jobs, spec, paths, total, trainable, pool), given


def cores_per_trial(spec: SweepSpec, trainable: type[Trainable]) -> float:
    """Return the cores of a trial: the spec's or the trainable's request, whichever is more.

    It is at least 1. The trainable is asked with the settings at one point of the space.
    """
    request = _request(spec, trainable)
    asked = request.get("cpu", 1.0) + request.get("extra_cpu", 0.0)
    return max(1.0, float(spec.resources.cpu), asked)


def gpu_warnings(resolved: Resolved) -> list[str]:
    """Return a warning if training on the GPU is not expected to be faster; else an empty list.

    An environment is created, since this depends on it.
    """
    found = resolved.trainable.gpu_remark(_sampled_config(resolved.spec, resolved.trainable))
    return [found] if found else []


def _request(spec: SweepSpec, trainable: type[Trainable]) -> Mapping[str, float]:
    """Return resource → amount that the trainable requests for one trial, at a random point.

    Amounts are numbers of cores (``cpu``, ``extra_cpu``) and devices (``gpu``, ``extra_gpu``). The
    mapping is empty if the trainable requests nothing. The point follows from the spec's seed.
    """
    return trainable.default_resource_request(_sampled_config(spec, trainable)) or {}


def _sampled_config(spec: SweepSpec, trainable: type[Trainable]) -> dict[str, Any]:
    """Return all settings of a trial at a point of the space, drawn with the sweep's seed."""
    point = samples.draw_samples(spec.space, spec.seed, 1)[0]
    nested = spec.space.nest(point.settings, spec.config)
    return samples.complete_config(trainable, spec, nested)

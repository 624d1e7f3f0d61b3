"""From what a person typed or called to a checked spec, and to what a driver is launched with."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import joblib

from sweep import plugins, pools
from sweep import spec as specs
from sweep.driver import capacity, launch, sync, warm_start
from sweep.driver.launch import Launch, Resolved
from sweep.errors import NameTaken, SweepLocked
from sweep.history.history import History
from sweep.ledger import hold, lease
from sweep.ledger import storage as ledgers
from sweep.ledger.folder import Folder
from sweep.slices import store
from sweep.spec import Override, SweepSpec
from sweep.views import lookup
from trainables.errors import printable
from trainables.function import FunctionTrainable
from trainables.trainable import Trainable

FindTrainable = Callable[[], type[Trainable]]


def prepare(
    space: str, overrides: Sequence[Override], parsed: Callable[[SweepSpec], None] | None = None
) -> tuple[Resolved, str]:
    """Read a spec and find its plugins; every mistake is a UsageError.

    `space` is a path, or the bare name of a shipped search space. Modules are looked for beside
    it, then in the current folder. The text is the file's, headed by what `overrides` changed.
    `parsed` is called with the spec before its plugins are looked for.
    """
    path = specs.find(space)
    text = specs.text_of(path)  # read once: what is kept is what was checked
    paths = (str(path.resolve().parent), str(Path.cwd()))
    return checked(text, str(path), paths, overrides, parsed=parsed)


def checked(
    text: str,
    file: str,
    paths: Sequence[str],
    overrides: Sequence[Override] = (),
    trainable: type[Trainable] | None = None,
    where: str = "on the command line",
    parsed: Callable[[SweepSpec], None] | None = None,
) -> tuple[Resolved, str]:
    """`prepare` for the text of a spec.

    Args:
        text: YAML.
        file: its name in messages.
        paths: folders in which modules are looked for after everything installed.
        overrides: settings that are put over those of the text.
        trainable: the one that the spec names, if it is at hand.
        where: the overrides were given.
        parsed: is called with the spec before its plugins are looked for.
    """
    spec = specs.parse(text, file, overrides)
    if parsed is not None:
        parsed(spec)
    resolved = launch.resolve(spec, tuple(dict.fromkeys(paths)), new=True, trainable=trainable)
    changed = "".join(f"# given {where}: {printable(override.said)}\n" for override in overrides)
    return resolved, changed + text


def create(
    resolved: Resolved,
    text: str,
    folder: Folder,
    pool: str,
    tracking_uri: str | None = None,
    storage: str | None = None,
    checkpoints: str | None = None,
) -> list[str]:
    """Make the sweep's folder and ledger, if its pool can be used; returns what to say.

    Raises:
        SweepLocked: another process has just made one of this name, or drives it.
    """
    pools.check(pool, resolved.paths, folder.root)
    try:
        return launch.create(folder, resolved, text, tracking_uri, storage, checkpoints)
    except NameTaken:
        found = lease.look(folder.ledger)
        if found.lives or (found.is_other and lookup.is_driven(folder)):
            raise SweepLocked(folder.name, found.describe()) from None
        raise


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
    """`create` a sweep; returns what its first driver is launched with."""
    spec = resolved.spec
    folder = Folder(root, spec.name)
    chosen = pools.again(pool)
    at_once = slots(jobs, spec, resolved.paths, spec.trials, lambda: resolved.trainable, chosen)
    if tracking_uri is not None:
        sync.check(tracking_uri, spec)
    if storage is not None:
        ledgers.check(storage)
    if checkpoints is not None:
        checkpoints = store.check(checkpoints)
    places = tracking_uri, storage, checkpoints
    for said in create(resolved, text, folder, chosen, *places):
        say(said)
    return Launch(folder, at_once, chosen, jobs_given=jobs is not None, say=say, resolved=resolved)


def again(
    folder: Folder,
    jobs: int | None,
    pool: str | None,
    trials: int | None,
    say: Callable[[str], None],
    trainable: type[Trainable] | None = None,
    **more: Any,
) -> Launch:
    """What the next driver of a sweep is launched with; `more` are further fields of `Launch`."""
    hold.upgrade(folder, say)
    spec, paths = lookup.read_spec(folder)
    past = lookup.read_history(folder)
    found = functools.partial(_trainable, folder, trainable)
    chosen = pools.again(pool, past.pool)
    at_once, given = slots_again(jobs, past, spec, paths, trials, found, chosen)
    return Launch(
        folder, at_once, chosen, trials, jobs_given=given, say=say, trainable=trainable, **more
    )


def _trainable(folder: Folder, given: type[Trainable] | None) -> type[Trainable]:
    return given or launch.trainable_of(folder)


def taken_over(resolved: Resolved, root: Path) -> list[str]:
    """What the new sweep would take over from another one, in words."""
    return warm_start.describe(warm_start.read(resolved.spec, resolved.objective, root))


def remarks(resolved: Resolved) -> list[str]:
    """What a person should know before it runs; mostly nothing."""
    own = map(printable, resolved.spec.source.remarks)
    return [*own, *_endless(resolved), *_on_one_side(resolved)]


def _on_one_side(resolved: Resolved) -> list[str]:
    """What to say where the settings ask for a GPU and the resources do not, or the other way."""
    given, request = resolved.spec.resources.gpu, _request(resolved.spec, resolved.trainable)
    asked = request.get("gpu", 0.0) + request.get("extra_gpu", 0.0)
    whole = math.ceil(asked) if asked > 1 else asked
    if asked and not given:
        return [
            f"warning: a trial's settings ask for {asked:g} of a GPU, and resources: gives it "
            f"none, so all that run at once share the first one; add resources: {{gpu: {whole:g}}}"
        ]
    if given and not asked and "gpu" in request:
        return [
            f"warning: resources: gives each trial {given:g} of a GPU, and its settings use none; "
            f"a trainer learns on it with config: {{num_gpus: {min(given, 1):g}}}"
        ]
    return []


def _endless(resolved: Resolved) -> list[str]:
    """What to say where nothing in the spec ends a trial."""
    spec = resolved.spec
    ends = spec.limits.trial_s is not None or spec.budget.is_set or not spec.stop.ends_nothing
    if ends or resolved.scheduler.levels or issubclass(resolved.trainable, FunctionTrainable):
        return []
    return [
        f"warning: stop: is empty, and scheduler: {spec.scheduler.name} ends no trial by its "
        f"length, so each trains until its trainable says done; add for example "
        f"stop: {{training_iteration: 100}}"
    ]


def slots(
    asked: int | None,
    spec: SweepSpec,
    paths: Sequence[str],
    trials: int,
    trainable: FindTrainable | None = None,
    pool: str = pools.DEFAULT,
) -> int:
    """How many trials run at once: as many as asked, else as the processor cores can take.

    On a cluster that is the most, and else as many as it has workers. `trainable` finds the
    trainable; None: it is looked for by its name.

    Raises:
        BadConfig: not even one trial fits into what there is.
    """
    clustered = pools.is_clustered(pool)
    most = capacity.most_at_once(spec, clustered=clustered)
    if asked is not None or clustered:
        return min(asked or most, most)
    found = plugins.find_trainable(spec.trainable, paths) if trainable is None else trainable()
    per_trial = cores_per_trial(spec, found)
    cores = spec.machine.cpu or joblib.cpu_count()
    return max(1, min(int(cores // per_trial), trials, most))


def slots_again(
    asked: int | None,
    history: History,
    spec: SweepSpec,
    paths: Sequence[str],
    trials: int | None,
    trainable: FindTrainable | None = None,
    pool: str = pools.DEFAULT,
) -> tuple[int, bool]:
    """How many run at once when a sweep goes on, and whether a person has said so.

    It is what the sweep was run with last, unless something else is asked. Where nobody ever asked,
    a new total of `trials` is given as many as the processor cores can take.
    """
    given = asked is not None or history.jobs_given
    more = not given and trials is not None and trials > history.wanted
    counted = not history.jobs_given and "@" in history.pool + pool  # the cluster's workers
    if asked is None and not more and not counted:
        asked = history.jobs
    total = trials or history.wanted or spec.trials
    return slots(asked, spec, paths, total, trainable, pool), given


def cores_per_trial(spec: SweepSpec, trainable: type[Trainable]) -> float:
    """What the spec or the trainable asks for, whichever is more."""
    request = _request(spec, trainable)
    asked = request.get("cpu", 1.0) + request.get("extra_cpu", 0.0)
    return max(1.0, float(spec.resources.cpu), asked)


def _request(spec: SweepSpec, trainable: type[Trainable]) -> Mapping[str, float]:
    """What the trainable asks for one trial, by settings of the space."""
    point = launch.draw_samples(spec.space, spec.seed, 1)[0]
    nested = spec.space.nest(point.settings, spec.config)
    config = launch.completed(trainable, spec, nested)
    return trainable.default_resource_request(config) or {}

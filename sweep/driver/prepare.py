"""From what a person typed to a checked spec, before anything is written."""

from collections.abc import Sequence
from pathlib import Path

import joblib

from sweep import plugins, pools
from sweep import spec as specs
from sweep.driver import capacity, launch, warm_start
from sweep.driver.launch import Resolved
from sweep.errors import NameTaken, SweepLocked
from sweep.history.history import History
from sweep.ledger import lease
from sweep.ledger.folder import Folder
from sweep.spec import Override, SweepSpec
from trainables.errors import printable
from trainables.function import FunctionTrainable
from trainables.trainable import Trainable


def prepare(space: str, overrides: Sequence[Override]) -> tuple[Resolved, str]:
    """Read a spec and find its plugins; every mistake is a UsageError.

    `space` is a path, or the bare name of a shipped search space. Modules are looked for beside
    it, then in the current folder. The text is the file's, headed by what `overrides` changed.
    """
    path = specs.find(space)
    text = specs.text_of(path)  # read once: what is kept is what was checked
    spec = specs.parse(text, str(path), overrides)
    paths = tuple(dict.fromkeys((str(path.resolve().parent), str(Path.cwd()))))
    resolved = launch.resolve(spec, paths, new=True)
    changed = "".join(
        f"# given on the command line: {printable(override.said)}\n" for override in overrides
    )
    return resolved, changed + text


def create(
    resolved: Resolved, text: str, folder: Folder, pool: str, tracking_uri: str | None
) -> list[str]:
    """Make the sweep's folder and ledger, if there is such a pool; returns what to say.

    Raises:
        SweepLocked: another process has just made one of this name, or drives it.
    """
    pools.find(pool, resolved.paths)
    try:
        return launch.create(folder, resolved, text, tracking_uri)
    except NameTaken:
        found = lease.look(folder.ledger)
        if found.lives:
            raise SweepLocked(folder.name, found.describe()) from None
        raise


def taken_over(resolved: Resolved, root: Path) -> list[str]:
    """What the new sweep would take over from another one, in words."""
    return warm_start.describe(warm_start.read(resolved.spec, resolved.objective, root))


def remarks(resolved: Resolved) -> list[str]:
    """What a person should know before it runs; mostly nothing."""
    return [*map(printable, resolved.spec.source.remarks), *_endless(resolved)]


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


def slots(asked: int | None, spec: SweepSpec, paths: Sequence[str], trials: int) -> int:
    """How many trials run at once: as many as asked, else as the processor cores can take.

    Raises:
        BadConfig: not even one trial fits into what there is.
    """
    most = capacity.most_at_once(spec)
    if asked is not None:
        return min(asked, most)
    per_trial = cores_per_trial(spec, plugins.find_trainable(spec.trainable, paths))
    cores = spec.machine.cpu or joblib.cpu_count()
    return max(1, min(int(cores // per_trial), trials, most))


def slots_again(
    asked: int | None, history: History, spec: SweepSpec, paths: Sequence[str], trials: int | None
) -> tuple[int, bool]:
    """How many run at once when a sweep goes on, and whether a person has said so.

    It is what the sweep was run with last, unless something else is asked. Where nobody ever asked,
    a new total of `trials` is given as many as the processor cores can take.
    """
    given = asked is not None or history.jobs_given
    more = not given and trials is not None and trials > history.wanted
    if asked is None and not more:
        asked = history.jobs
    return slots(asked, spec, paths, trials or history.wanted or spec.trials), given


def cores_per_trial(spec: SweepSpec, trainable: type[Trainable]) -> float:
    """What the spec or the trainable asks for, whichever is more."""
    point = launch.draw_samples(spec.space, spec.seed, 1)[0]
    config = trainable.complete_config(spec.space.nest(point.settings, spec.config), spec.stop)
    request = trainable.default_resource_request(config) or {}
    asked = request.get("cpu", 1.0) + request.get("extra_cpu", 0.0)
    return max(1.0, float(spec.resources.cpu), asked)

"""Arguments of `sweep.run` and `sweep.resume`: types, checks, and the spec that they give."""

import contextlib
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, Literal, TypedDict

from sweep import spec as specs
from sweep.core import pickled
from sweep.core.errors import BadConfig, Gathering, NameTaken, without_password
from sweep.core.pickled import ScriptTrainable
from sweep.driver.start import prepare
from sweep.driver.start.creation.resolving import Resolved
from sweep.driver.tracking import sync
from sweep.ledger import storage as ledgers
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.spec import Mode, Override, SweepSpec
from sweep.spec.from_python import to_plain_data
from sweep.spec.sections import LONGEST_NAME, name_from
from sweep.views import formatting, lookup
from trainables.trainable import Trainable


class SpecKeys(TypedDict, total=False):
    """Keys of a spec as keyword arguments; `sweep.spec.SweepSpec` describes each of them."""

    name: str
    trials: int
    metric: str
    mode: Mode
    score: str | Mapping[str, Any]
    objectives: Mapping[str, Mode]
    constraints: Mapping[str, str]
    config: Mapping[str, Any]
    """Settings of the trainable that are not searched, by name."""
    forbid: Sequence[Any]
    space: Mapping[str, Any] | str | Path
    initial: Sequence[Mapping[str, Any]]
    stop: Mapping[str, Any]
    """Stopping criteria of each trial: name of a result → value."""
    budget: Mapping[str, Any]
    searcher: str | Mapping[str, Any]
    scheduler: str | Mapping[str, Any]
    seeds: int | str | Mapping[float, int]
    aggregate: str | Mapping[str, Any]
    checkpoint: Mapping[str, Any]
    resources: Mapping[str, Any]
    machine: Mapping[str, Any]
    """Cores, GPUs and other resources of the machine that trials share."""
    limits: Mapping[str, Any]
    isolate: Literal["process", "slot"] | None
    deterministic: Mapping[str, Any] | None
    trackers: Sequence[str]
    callbacks: Sequence[str]
    seed: int


def check_numbers(jobs: int | None, timeout: float | None, trials: int | None = None) -> None:
    """Raise BadConfig if one of the numbers is out of range; None stands for no number.

    `jobs` and `trials` must be whole numbers from 1 on, `timeout` a positive number of seconds that
    timers accept.
    """
    for place, number in (("jobs", jobs), ("trials", trials)):
        if number is not None and not (type(number) is int and number >= 1):
            raise BadConfig(place, number, "a whole number of at least 1")
    if timeout is not None and not _is_waitable(timeout):
        longest = f"a number of seconds above 0 and at most {threading.TIMEOUT_MAX:.0f}"
        raise BadConfig("timeout", timeout, longest)


def _is_waitable(seconds: object) -> bool:
    """Return true if `seconds` is a positive number that timers accept."""
    if isinstance(seconds, bool) or not isinstance(seconds, Real):
        return False
    return 0 < float(seconds) <= threading.TIMEOUT_MAX


def read_mapping(value: object, place: str) -> dict[str, Any]:
    """Return an argument as a dict, {} for None; BadConfig, naming `place`, if it is no mapping."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise BadConfig(place, value, "a mapping from keys to values")
    return dict(value)


def prepare_spec(trainable: ScriptTrainable | str | None, spec: SpecKeys) -> tuple[Resolved, str]:
    """Build a spec from the arguments of `sweep.run`, and check it; return it with its YAML text.

    If ``space`` is a file or the name of a shipped spec, the other arguments replace its keys, and
    a spec without a name is called after the file. Otherwise it is called after its trainable and
    the local time. The trainable is imported; nothing is written.

    Raises:
        UsageError: an argument is wrong; the message lists all mistakes.
    """
    keys, found = {}, Gathering()
    for key, value in spec.items():
        with found.collect():
            keys[key] = to_plain_data(_with_named_rungs(value) if key == "seeds" else value, key)
    found.check()
    cls: type[Trainable] | None = None
    if trainable is None and not isinstance(keys.get("space"), str):
        allowed = "a function, a class, or a name such as ppo"
        hint = (
            "pass the function itself, sweep.run(train, ...), not the result of calling it, "
            "train(...)"
        )
        raise BadConfig("trainable", None, allowed, hint)
    if trainable is not None:
        named = trainable if isinstance(trainable, str) else pickled.name_of(trainable)
        keys["trainable"] = named
        if not isinstance(trainable, str):
            cls = pickled.class_of(trainable)
        if "name" not in keys and not isinstance(keys.get("space"), str):
            stamp, own = time.strftime("%Y%m%d-%H%M%S"), named.rpartition(":")[2]
            keys["name"] = f"{name_from(own, LONGEST_NAME - len(stamp) - 1)}-{stamp}"
    paths = [*_import_paths(), str(Path.cwd())]
    space = keys.get("space")
    if not isinstance(space, str):
        text = "\n".join(formatting.yaml_lines(keys))
        return prepare.prepare_text(f"{text}\n", "", paths, (), cls)
    path = specs.find(space)
    del keys["space"]
    over = [Override(key, value, f"{key}={value}") for key, value in keys.items()]
    places = [str(path.resolve().parent), *paths]
    name = name_from(path.stem)
    return prepare.prepare_text(
        specs.text_of(path), str(path), places, over, cls, "from Python", name=name
    )


def _with_named_rungs(seeds: object) -> object:
    """Return seeds by rung with the rungs as texts, as a spec has them; other values unchanged."""
    if not isinstance(seeds, Mapping):
        return seeds
    return {str(rung) if isinstance(rung, Real) else rung: count for rung, count in seeds.items()}


def _import_paths() -> Iterator[str]:
    """Yield the existing folders of `sys.path`, absolute, without those of the installation."""
    installed = [Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix)]
    for place in sys.path:
        path = Path(place).resolve()
        if path.is_dir() and not any(path.is_relative_to(prefix) for prefix in installed):
            yield str(path)


def is_of_script(folder: Folder) -> bool:
    """Return true if the trainable of an existing sweep is defined in a script or notebook."""
    return pickled.is_of_script(lookup.read_spec(folder)[0].trainable)


def refuse_other_settings(folder: Folder, resolved: Resolved) -> None:
    """Raise NameTaken if the existing sweep in `folder` has other settings than `resolved`.

    Each key may have its value at the sweep's creation or its present one. The number of trials may
    differ.
    """
    with contextlib.closing(Ledger(folder.ledger)) as ledger:
        first = specs.from_json(ledger.spec)
    asked, now = resolved.spec, lookup.read_spec(folder)[0]
    keys = [key for key in SweepSpec.model_fields if key != "trials"]
    other = [
        key
        for key in keys
        if _plain_value(asked, key) not in (_plain_value(first, key), _plain_value(now, key))
    ]
    if other:
        raise NameTaken(
            f"name: the sweep '{folder.name}' exists already in {folder.root} with another "
            f"{', '.join(other)}; give another name, delete it with `sweep rm "
            f"{folder.in_commands}`, or look at it with sweep.load({folder.name!r})"
        )


def refuse_other_services(folder: Folder, tracking_uri: str | None, storage: str | None) -> None:
    """Raise BadConfig if the existing sweep has another MLflow server or ledger than given.

    None stands for an argument that is not given.
    """
    tracked = None if tracking_uri is None else sync.read_tracking(folder)
    uri = None if tracked is None else tracked.uri
    url = None if storage is None else ledgers.url_of(folder.ledger)
    for place, asked, kept in (("tracking_uri", tracking_uri, uri), ("storage", storage, url)):
        if asked not in (None, kept):
            raise BadConfig(
                place,
                without_password(str(asked)),
                "" if kept is None else repr(without_password(kept)),
                f"leave {place} out to resume this sweep, or give another name to start a new one",
                problem=f"the sweep '{folder.name}' in {folder.root} has another {place}",
            )


def _plain_value(spec: SweepSpec, key: str) -> Any:
    """Return the value of a spec's key as plain data, as a file would contain it."""
    return spec.model_dump(include={key})[key]

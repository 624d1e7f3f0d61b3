"""Renders docs/spec.md, and the tables of plugins on other pages, from the code itself.

python docs/render_spec.py
"""

import inspect
import json
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from sweep import plugins, schedulers, searchers, trackers
from sweep.spec import SweepSpec
from trainables.algorithms.ppo import Config
from trainables.core.settings import Section
from trainables.trainer.config import TrainerConfig

INTRODUCTION = """\
# The spec

Every key of a sweep's YAML file, with its default. The file is YAML 1.2 (`1e-5` is a number,
`on` is text); a key that is not listed here is refused, with the nearest one that is. Times are
seconds; paths into results use `/`, paths into settings use dots. All mistakes of a file are told
at once, in its order, each in a line of its own, before anything is written: also a result that a
shipped trainer never has, wherever it is named. Of other trainables a result that the first one
lacks is told then.

`package.module:Name`, wherever it may stand, is looked for among what is installed, then in the
folder of the spec file, then in the folder where the sweep was started: in every process of the
sweep, and when it is resumed.

A trainable, scheduler, searcher, pool, tracker, environment or filter is named by a shipped name,
by such a path, or by an entry point of an installed package. The groups of entry points, and what
each must define, stand in [CONTRIBUTING.md](../CONTRIBUTING.md#adding-a-part).

## The sweep
"""

SPACE = """\
## The search space

Each key of `space` is a setting of the trainable; dots reach into nested ones. The whole language
stands on [a page of its own](search-space.md).

| written | means |
| --- | --- |
| `lr: {uniform: [0.1, 0.9]}` | a number between the two |
| `lr: {uniform: [0.1, 0.9], step: 0.1}` | one of 0.1, 0.2, … 0.9 |
| `lr: {loguniform: [1e-5, 1e-2]}` | a number, each power of ten as likely as the next |
| `n: {randint: [1, 20]}` | a whole number, both ends included; `step` as above |
| `n: {lograndint: [16, 1024]}` | a whole number, each doubling as likely as the next |
| `std: {normal: [0, 0.1]}` | around a mean with a deviation; also `lognormal`; `bounds`, `step` |
| `net: {choice: [[64, 64], [128, 128]]}` | one of these; any plain values; `weights` |
| `size: {ordinal: [small, medium, large]}` | one of these, in an order |
| `env: {grid: [CartPole-v1, Acrobot-v1]}` | the trials take these in turn |
| `env: CartPole-v1` | always this |
| `lam: {value: "1 - _gap"}` | follows from others |
| `clip: {uniform: [5, 20], when: {filter: Mean}}` | only where `filter` is this, or in a list |
| `_gap: {loguniform: [0.01, 0.3]}` | a leading underscore: for expressions, not passed on |
"""


HERE = Path(__file__).parent
#: How the tables begin that have a row for each plugin.
SCHEDULERS = "| scheduler | what it does |"
SEARCHERS = "| searcher | proposes |"
TRACKERS = "| tracker | what it does |"


def main() -> None:
    """Write the pages."""
    for path, text in pages().items():
        path.write_text(text)


def pages() -> Mapping[Path, str]:
    """Each page as it should be."""
    tables = {
        HERE / "schedulers.md": (SCHEDULERS, [_of(schedulers, n) for n in _names(schedulers)]),
        HERE / "searchers.md": (SEARCHERS, [_of_searcher(n) for n in _names(searchers)]),
        HERE / "trackers.md": (TRACKERS, [_of(trackers, n) for n in _names(trackers)]),
    }
    filled = {path: _filled(path.read_text(), *table) for path, table in tables.items()}
    return {HERE / "spec.md": render(), **filled}


def _names(package: types.ModuleType) -> list[str]:
    return plugins.names(package.__name__)


def _filled(page: str, header: str, rows: list[str]) -> str:
    """`page` with these rows in the table that begins with `header`."""
    before, _, rest = page.partition(f"\n{header}")
    head, rule, *old = rest.split("\n")
    after = next(index for index, line in enumerate(old) if not line.startswith("|"))
    return "\n".join([before, header + head, rule, *rows, *old[after:]])


def _of(package: types.ModuleType, name: str) -> str:
    told = inspect.getdoc(package.find(name)) or ""
    opening = " ".join(told.split("\n\n")[0].split())
    return f"| `{name}` | {opening} |"


def _of_searcher(name: str) -> str:
    return f"| {' | '.join(_cells(name))} |"


def _cells(name: str) -> Iterator[str]:
    supports = searchers.find(name).supports
    yield f"`{name}`"
    yield from (supports.proposes, supports.conditions, supports.choices, supports.unfinished)
    yield "yes" if supports.objectives else "refused"
    yield "kept to" if supports.constraints else "in the ranking only"


def render() -> str:
    """The page as Markdown."""
    parts = [INTRODUCTION, _table(SweepSpec), SPACE, "## Schedulers\n"]
    parts += _plugins(
        schedulers.PACKAGE,
        lambda name: schedulers.find(name).Options,
        lambda name: schedulers.find(name).settle({}),
    )
    parts.append("## Searchers\n")
    parts += _plugins(searchers.PACKAGE, lambda name: searchers.find(name).Options)
    parts += ["## Settings of PPO\n", "Keys of `config` and `space` with `trainable: ppo`.\n"]
    parts.append(_table(Config))
    parts += _other_algorithms()
    return "\n".join(parts)


def _other_algorithms() -> Iterator[str]:
    """What the other trainers have that is not in the table of PPO, or with other defaults."""
    shared = {row.split("|")[1] for row in _rows(TrainerConfig, "")}
    shown = [row for row in _rows(Config, "") if row.split("|")[1] in shared]
    for name in plugins.names("trainables.algorithms"):
        config = getattr(plugins.find_trainable(name, []), "config_class", Config)
        if config is not Config:
            own = [row for row in _rows(config, "") if row not in shown]
            yield f"## Settings of {name.upper()}\n"
            yield f"With `trainable: {name}`: those above that are not PPO's own, and these.\n"
            yield "\n".join(["| key | default | meaning |", "| --- | --- | --- |", *own]) + "\n"


def _plugins(
    package: str,
    options: typing.Callable[[str], type[BaseModel]],
    settled: typing.Callable[[str], Mapping[str, Any]] = lambda _name: {},
) -> list[str]:
    """The table of each plugin; `settled` are defaults of new sweeps that its model has not."""
    parts = []
    for name in plugins.names(package):
        model = options(name)
        table = _table(model, settled(name)) if model.model_fields else "No settings.\n"
        parts += [f"### {name}\n", table]
    return parts


def _table(model: type[BaseModel], settled: Mapping[str, Any] | None = None) -> str:
    rows = _rows(model, "", settled=settled or {})
    lines = ["| key | default | meaning |", "| --- | --- | --- |", *rows]
    return "\n".join(lines) + "\n"


def _rows(
    model: type[BaseModel],
    prefix: str,
    preset: object = None,
    settled: Mapping[str, Any] = types.MappingProxyType({}),
) -> list[str]:
    """One row per key; `preset`, where it is a model, holds the defaults, `settled` newer ones."""
    rows: list[str] = []
    for name, field in model.model_fields.items():
        inner = _model_in(field.annotation)
        default = settled.get(name, _value(field, name, preset))
        if inner is not None and issubclass(inner, Section):
            rows += _rows(inner, prefix, default)
            continue
        nests = inner is not None and name in _NESTED
        if not nests or default is None:
            meaning = (field.description or "").replace("|", "\\|")
            rows.append(f"| `{prefix}{name}` | {_written(default)} | {meaning} |")
        if nests and inner is not None:
            rows += _rows(inner, f"{prefix}{name}.", default)
    return rows


#: Fields that are mappings in the file; other models are written as one value.
_NESTED = {"budget", "checkpoint", "resources", "machine", "limits"}
_NESTED |= {"deterministic", "model", "optimizer", "exploration_config"}
_NESTED |= {"tf_session_args", "local_tf_session_args"}


def _model_in(annotation: Any) -> type[BaseModel] | None:
    candidates = [annotation]
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        candidates += typing.get_args(annotation)
    found = [c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)]
    return found[0] if found else None


def _value(field: FieldInfo, name: str, preset: object) -> Any:
    if isinstance(preset, BaseModel):
        return getattr(preset, name)
    return field.get_default(call_default_factory=True)


def _written(value: Any) -> str:
    """A default as it would stand in the file."""
    if value is PydanticUndefined:
        return "required"
    if value is None:
        return "none"
    plain = value.written() if hasattr(value, "written") else value
    return f"`{json.dumps(plain)}`" if not isinstance(plain, str) else f"`{plain}`"


if __name__ == "__main__":
    main()

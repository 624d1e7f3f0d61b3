"""Renders docs/spec.md, the tables of plugins on other pages and the schema from the code itself.

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

from sweep import schedulers, searchers, trackers
from sweep.core import plugins
from sweep.operations import schema
from sweep.spec import SweepSpec
from trainables.algorithms.ppo import Config
from trainables.core.settings import Section
from trainables.trainer.config import TrainerConfig

INTRODUCTION = """\
# The spec

The tables of this page list every key of a spec, a sweep's YAML file, with its default. The file is
YAML 1.2 (`1e-5` is a number, `on` is text). Times are in seconds. Paths into results use `/`, and
paths into settings use dots. All mistakes in a file are reported at once, one per line and in the
order of the file; for an unknown key, the error names the closest known key.

A *slice* is an uninterrupted part of a trial's training, after which the trial is saved. A *level*
is an amount of training at which a scheduler compares trials; the levels of successive halving are
called *rungs*.

Trainables, schedulers, searchers, pools, trackers, environments and filters are given as a built-in
name, a path `package.module:Name`, or an entry point of an installed package
([CONTRIBUTING.md](../CONTRIBUTING.md#adding-a-part) lists the groups of entry points). The module
of a path is looked up among the installed packages, then in the folder of the spec file, and then
in the folder where the sweep was started.

Editors with a YAML language server (VS Code's YAML extension, Neovim, Helix, Emacs, JetBrains)
complete and check a spec with its JSON Schema. `sweep init` writes the schema next to the spec, and
begins the spec with `# yaml-language-server: $schema=sweep.schema.json`. For an existing spec, or
after an update, run `sweep schema > sweep.schema.json` in the spec's folder. `sweep validate`
checks more than the schema.

## The sweep
"""

SPACE = """\
## The search space

Each key of `space` is a setting of the trainable; dots reach into nested settings.
[The search space](search-space.md) has all details.

| syntax | meaning |
| --- | --- |
| `lr: {uniform: [0.1, 0.9]}` | a float in the range |
| `lr: {uniform: [0.1, 0.9], step: 0.1}` | one of 0.1, 0.2, …, 0.9 |
| `lr: {loguniform: [1e-5, 1e-2]}` | a float, uniform on a log scale |
| `n: {randint: [1, 20]}` | an integer, both ends included; optional `step` |
| `n: {lograndint: [16, 1024]}` | an integer, uniform on a log scale |
| `std: {normal: [0, 0.1]}` | mean 0, deviation 0.1; optional `bounds`, `step`; also `lognormal` |
| `net: {choice: [[64, 64], [128, 128]]}` | one of these values, of any type; optional `weights` |
| `size: {ordinal: [small, medium, large]}` | one of these values, ordered |
| `env: {grid: [CartPole-v1, Acrobot-v1]}` | trials take these values in turn |
| `env: CartPole-v1` | a constant |
| `lam: {value: "1 - _gap"}` | computed from other parameters |
| `clip: {uniform: [5, 20], when: {filter: Mean}}` | exists only if `filter` is `Mean` |
| `_gap: {loguniform: [0.01, 0.3]}` | leading `_`: used only in expressions, not a setting |
"""

TRAINERS = """\
These keys are allowed in `config` and `space` with every built-in trainer. The defaults are those
of `ppo`; if another trainer's default differs, that trainer's section lists the key again.
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
    shipped = HERE.parent / "search_spaces" / schema.FILE
    return {
        HERE / "spec.md": render(),
        shipped: schema.rendered(schema.schema(installed=False)),
        **filled,
    }


def _names(package: types.ModuleType) -> list[str]:
    return plugins.names(package.__name__)


def _filled(page: str, header: str, rows: list[str]) -> str:
    """`page` with these rows in the table that begins with `header`."""
    before, _, rest = page.partition(f"\n{header}")
    head, rule, *old = rest.split("\n")
    after = next(index for index, line in enumerate(old) if not line.startswith("|"))
    return "\n".join([before, header + head, rule, *rows, *old[after:]])


def _of(package: types.ModuleType, name: str) -> str:
    text = inspect.getdoc(package.find(name)) or ""
    opening = " ".join(text.split("\n\n")[0].split())
    return f"| `{name}` | {opening} |"


def _of_searcher(name: str) -> str:
    return f"| {' | '.join(_cells(name))} |"


def _cells(name: str) -> Iterator[str]:
    supports = searchers.find(name).supports
    yield f"`{name}`"
    yield from (supports.proposes, supports.conditions, supports.choices, supports.unfinished)
    yield "yes" if supports.objectives else "not supported"
    yield "proposals avoid violations" if supports.constraints else "only affect the ranking"


def render() -> str:
    """Return the page as Markdown."""
    parts = [INTRODUCTION, _table(SweepSpec), SPACE, "## Schedulers\n"]
    parts += _plugins(
        schedulers.PACKAGE,
        lambda name: schedulers.find(name).Options,
        lambda name: schedulers.find(name).settle({}),
    )
    parts.append("## Searchers\n")
    parts += _plugins(searchers.PACKAGE, lambda name: searchers.find(name).Options)
    parts += _trainers()
    return "\n".join(parts)


def _trainers() -> Iterator[str]:
    """Yield the settings of all trainers with PPO's defaults, then each trainer's own, PPO first.

    A trainer's own settings are those that not all have, or that it has with another default.
    """
    shared = {row.split("|")[1] for row in _rows(TrainerConfig, "")}
    shown = [row for row in _rows(Config, "") if row.split("|")[1] in shared]
    yield "## Settings of all trainers\n"
    yield TRAINERS
    yield _table_of(shown)
    for name in sorted(plugins.names("trainables.algorithms"), key=lambda name: name != "ppo"):
        trainable = plugins.find_trainable(name, [])
        config = trainable.config_class
        if config is not None and not trainable.takes_other_settings:
            own = [row for row in _rows(config, "") if row not in shown]
            yield f"## Settings of {name.upper()}\n"
            yield f"In addition to the settings of all trainers, `trainable: {name}` has these:\n"
            yield _table_of(own)


def _plugins(
    package: str,
    options: typing.Callable[[str], type[BaseModel]],
    settled: typing.Callable[[str], Mapping[str, Any]] = lambda _name: {},
) -> list[str]:
    """Return the heading and the table of each plugin of a package.

    Args:
        package: dotted name of the plugins' package.
        options: plugin name → model of the plugin's settings.
        settled: plugin name → defaults of new sweeps where they differ from the model.
    """
    parts = []
    for name in plugins.names(package):
        model = options(name)
        table = _table(model, settled(name)) if model.model_fields else "No settings.\n"
        parts += [f"### {name}\n", table]
    return parts


def _table(model: type[BaseModel], settled: Mapping[str, Any] | None = None) -> str:
    return _table_of(_rows(model, "", settled=settled or {}))


def _table_of(rows: list[str]) -> str:
    return "\n".join(["| key | default | meaning |", "| --- | --- | --- |", *rows]) + "\n"


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
            written = _COMPUTED.get((model, name)) or _written(default)
            rows.append(f"| `{prefix}{name}` | {written} | {meaning} |")
        if nests and inner is not None:
            rows += _rows(inner, f"{prefix}{name}.", default)
    return rows


#: Model and field → text in the column of defaults, for defaults that the models do not have.
_COMPUTED = {(SweepSpec, "name"): "the file's name"}
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
    """Return a default as it would stand in a spec."""
    if value is PydanticUndefined:
        return "required"
    if value is None:
        return "`null`"
    plain = value.to_spec() if hasattr(value, "to_spec") else value
    return f"`{json.dumps(plain)}`" if not isinstance(plain, str) else f"`{plain}`"


if __name__ == "__main__":
    main()

"""What `sweep validate`, `run --dry-run`, `check-env`, `verify` and `sync` print."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sweep.cli.tables import table
from sweep.views import formatting
from trainables.errors import printable

# -------------------------------------------------------------------------------------------------
# The data of `sweep.operations.validate` as text: `sweep validate` and `sweep run --dry-run`.

Data = Mapping[str, Any]
_UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


def preview(data: Data) -> RenderableType:
    """`sweep validate` and `sweep run --dry-run`."""
    points = "infinitely many" if data["points"] is None else f"{data['points']:,}"
    rungs = ", ".join(formatting.number(level) for level in data["rungs"])
    facts = [
        f"{printable(data['name'])}: {formatting.plural(data['trials'], 'trial')} of "
        f"{printable(data['trainable'])}, {data['jobs']} at once",
        f"metric     {printable(data['metric'])} ({data['mode']})",
        f"searcher   {data['searcher']}",
        f"scheduler  {data['scheduler']}"
        + (f", rungs at {rungs} {printable(data['time_attr'])}" if rungs else ""),
        f"stop       {formatting.settings(data['stop']) or 'when the trainable says so'}",
        "",
        f"space, {points} points",
        *(f"  {printable(line)}" for line in data["space"]),
        *(f"  first      {formatting.settings(given)}" for given in data["initial"]),
        *(f"  {printable(line)}" for line in data.get("warm_start", ())),
        "",
        "for example",
    ]
    shown: list[RenderableType] = [Text("\n".join(facts)), _samples(data["samples"])]
    return Group(
        *shown,
        *_warnings(data["warnings"]),
        *_costs(data.get("costs")),
        *_restore(data.get("restore")),
        *_cut_short(data.get("cut_short")),
    )


def _warnings(warnings: Sequence[str]) -> list[RenderableType]:
    if not warnings:
        return []
    lines = [f"  {printable(line)}" for line in warnings]
    return [Text(), Text("did you mean this?", style="yellow"), Text("\n".join(lines))]


def _costs(costs: Data | None) -> list[RenderableType]:
    if costs is None:
        return []
    per_trial = costs["iterations_per_trial"]
    steps = costs["steps_per_iteration"]
    measured = f"{costs['iteration_s']:.3g} s"
    measured += "" if steps is None else f" and {formatting.count(steps)} steps"
    size = costs["checkpoint_bytes"]
    measured += "" if size is None else f", a checkpoint {_size(size)}"
    lines = [Text(), Text(f"an iteration takes {measured}")]
    if per_trial is None:
        lines.append(Text("at most    no bound: stop names nothing that is counted"))
    else:
        lines.append(Text(f"at most    {_total(costs, 'most')}, {per_trial} iterations a trial"))
        if costs["about_s"] < costs["most_s"]:
            lines.append(Text(f"about      {_total(costs, 'about')}"))
    if size is not None:
        lines.append(Text(f"disk       at most {_size(costs['most_bytes'])}"))
    return list(lines)


def _total(costs: Data, which: str) -> str:
    steps = costs[f"{which}_steps"]
    text = "" if steps is None else f"{formatting.count(steps)} steps, "
    return text + formatting.duration(costs[f"{which}_s"])


def _size(size: float) -> str:
    for unit, scale in _UNITS:
        if size >= scale:
            return f"{size / scale:.3g} {unit}"
    return f"{size:.0f} bytes"


def _samples(samples: Sequence[Data]) -> Table:
    names = list(dict.fromkeys(name for sample in samples for name in sample))
    return table(
        [
            (f"  {printable(name)}" if i == 0 else printable(name), "wrap")
            for i, name in enumerate(names)
        ],
        [
            [
                ("  " if i == 0 else "")
                + (formatting.setting(sample[name]) if name in sample else "")
                for i, name in enumerate(names)
            ]
            for sample in samples
        ],
    )


def _restore(differences: Sequence[str] | None) -> list[RenderableType]:
    if differences is None:
        return []
    if not differences:
        return [Text(), Text("save and restore: the next iteration is the same, to the bit")]
    lines = [f"  {printable(line)}" for line in differences]
    return [Text(), Text("save and restore:", style="yellow"), Text("\n".join(lines))]


def _cut_short(ended: Data | None) -> list[RenderableType]:
    """The checks that were left out because the time was up."""
    if ended is None:
        return []
    doing, after = printable(ended["doing"]), f"{ended['after_s']:g}"
    lines = [
        f"  ended after {after} s, {ended['doing_s']:.0f} s into: {doing}",
        f"  not tried: {'; '.join(ended['untried'])}",
        f"  `--for SECONDS` allows it longer than {after} s",
    ]
    head = Text("the trainable was not tried to the end", style="yellow")
    return [Text(), head, Text("\n".join(lines))]


# -------------------------------------------------------------------------------------------------
# What `sweep check-env` prints.


def env_report(data: Data) -> RenderableType:
    """Facts, the level with its reasons, costs, faults."""
    rows: list[tuple[str, str]] = [
        ("observations", data["observation_space"]),
        ("actions", data["action_space"]),
        ("time limit", _time_limit(data["time_limit"])),
        ("checkpoints", data["exactness"]),
        *(("", reason) for reason in data["reasons"]),
        ("speed", _speed(data)),
        ("saving", _saving(data)),
        ("policies", f"cannot live in it: {data['unsupported']}" if data["unsupported"] else ""),
        *(("breach", text) for text in data["breaches"]),
    ]
    shown = [(title, printable(text)) for title, text in rows if text]
    return Group(
        Text(printable(data["env"]), style="bold"),
        table([("", "l"), ("", "wrap")], shown, head=False),
    )


def _time_limit(steps: int | None) -> str:
    return "none" if steps is None else formatting.plural(steps, "step")


def _speed(data: Data) -> str:
    from trainables.envs.check import WIDTH

    alone, many = data["steps_per_s"], data[f"steps_per_s_in_{WIDTH}"]
    if alone is None:
        return ""
    return (
        f"{formatting.count(alone)} steps/s alone, {formatting.count(many)} with {WIDTH} "
        "environments in one process"
    )


def _saving(data: Data) -> str:
    if data["saved_bytes"] is None:
        return ""
    return (
        f"{formatting.count(data['saved_bytes'])} bytes, {data['save_ms']:.1f} ms; restoring "
        f"{data['restore_ms']:.1f} ms"
    )


# -------------------------------------------------------------------------------------------------
# What `sweep verify` and `sweep sync` print.


def damage_report(data: Data) -> RenderableType:
    """What was repaired, what is wrong, what was not compared."""
    parts: list[RenderableType] = [Text(printable(f"repaired: {t}")) for t in data["repaired"]]
    rows = [
        (
            damage["part"],
            printable(damage["place"]),
            printable(damage["problem"]),
            "--repair" if damage["remedy"] else "no",
        )
        for damage in data["damages"]
    ]
    if rows:
        parts.append(
            table([("part", "l"), ("where", "wrap"), ("what", "wrap"), ("mend", "l")], rows)
        )
    else:
        checked = formatting.plural(data["checkpoints"], "checkpoint")
        parts.append(Text(printable(f"{data['name']} is whole ({checked})")))
    parts += [Text(printable(note)) for note in data["notes"]]
    return Group(*parts)


def sent(data: Data) -> RenderableType:
    """What each tracker was sent, and what it still misses."""
    rows = [
        (
            its["tracker"],
            formatting.plural(its["sent"], "event"),
            f"misses {formatting.plural(its['missing'], 'event')}" if its["missing"] else "has all",
        )
        for its in data["trackers"]
    ]
    return table([("", "l"), ("sent", "r"), ("", "l")], rows) if rows else Text("no trackers")

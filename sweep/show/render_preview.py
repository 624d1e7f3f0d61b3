"""The data of `sweep.show.preview` as text: `sweep validate` and `sweep run --dry-run`."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sweep.show import wording
from sweep.show.render import table
from trainables.errors import printable

Data = Mapping[str, Any]
_UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


def preview(data: Data) -> RenderableType:
    """`sweep validate` and `sweep run --dry-run`."""
    points = "infinitely many" if data["points"] is None else f"{data['points']:,}"
    rungs = ", ".join(wording.number(level) for level in data["rungs"])
    facts = [
        f"{printable(data['name'])}: {wording.plural(data['trials'], 'trial')} of "
        f"{printable(data['trainable'])}, {data['jobs']} at once",
        f"metric     {printable(data['metric'])} ({data['mode']})",
        f"searcher   {data['searcher']}",
        f"scheduler  {data['scheduler']}"
        + (f", rungs at {rungs} {printable(data['time_attr'])}" if rungs else ""),
        f"stop       {wording.settings(data['stop']) or 'when the trainable says so'}",
        "",
        f"space, {points} points",
        *(f"  {printable(line)}" for line in data["space"]),
        *(f"  first      {wording.settings(given)}" for given in data["initial"]),
        *(f"  {printable(line)}" for line in data.get("warm_start", ())),
        "",
        "for example",
    ]
    shown: list[RenderableType] = [Text("\n".join(facts)), _samples(data["samples"])]
    return Group(
        *shown,
        *_doubts(data["doubts"]),
        *_costs(data.get("costs")),
        *_restore(data.get("restore")),
        *_cut_short(data.get("cut_short")),
    )


def _doubts(doubts: Sequence[str]) -> list[RenderableType]:
    if not doubts:
        return []
    lines = [f"  {printable(line)}" for line in doubts]
    return [Text(), Text("did you mean this?", style="yellow"), Text("\n".join(lines))]


def _costs(costs: Data | None) -> list[RenderableType]:
    if costs is None:
        return []
    per_trial = costs["iterations_per_trial"]
    steps = costs["steps_per_iteration"]
    measured = f"{costs['iteration_s']:.3g} s"
    measured += "" if steps is None else f" and {wording.count(steps)} steps"
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
    text = "" if steps is None else f"{wording.count(steps)} steps, "
    return text + wording.duration(costs[f"{which}_s"])


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
                ("  " if i == 0 else "") + (wording.setting(sample[name]) if name in sample else "")
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
    """What was not tried, since the time was up."""
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

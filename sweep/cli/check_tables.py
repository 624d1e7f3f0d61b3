"""Render the output of `validate`, `run --dry-run`, `check-env`, `doctor`, `verify` and `sync`."""

from collections.abc import Sequence
from functools import partial
from operator import itemgetter

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from sweep.cli.tables import Column, Data, section, table
from sweep.spec.sections import size_text
from sweep.views import formatting
from trainables.errors import printable

#: Level of a finding of `sweep doctor` → its colour.
_LEVELS = {"ok": "green", "warning": "yellow", "problem": "red"}


def preview(data: Data) -> RenderableType:
    """Render `sweep validate` and `sweep run --dry-run`.

    `data` is that of `validate.validation` or `validate.preview`; only the former has costs and the
    results of a smoke test, which are left out otherwise.
    """
    points = "infinitely many" if data["points"] is None else f"{data['points']:,}"
    rungs = ", ".join(formatting.number(level) for level in data["rungs"])
    facts = [
        f"{printable(data['name'])}: {formatting.plural(data['trials'], 'trial')} of "
        f"{printable(data['trainable'])}{_seeds_text(data['seeds'])}, {data['jobs']} at once",
        f"metric     {printable(data['metric'])} ({data['mode']})",
        *(f"objective  {printable(k)} ({mode})" for k, mode in data["objectives"].items()),
        *(f"constraint {printable(k)} {limit}" for k, limit in data["constraints"].items()),
        f"searcher   {data['searcher']}",
        f"scheduler  {data['scheduler']}"
        + (f", rungs at {rungs} {printable(data['time_attr'])}" if rungs else ""),
        f"stop       {formatting.settings(data['stop']) or 'when the trainable says so'}",
        "",
        f"space, {points} points",
        *(f"  {printable(line)}" for line in data["space"]),
        *(f"  first      {formatting.settings(given)}" for given in data["initial"]),
        *(f"  {printable(line)}" for line in data.get("prior", ())),
        "",
        "for example",
    ]
    return Group(
        Text("\n".join(facts)),
        _samples(data["samples"]),
        *section("did you mean this?", data["warnings"], "yellow"),
        *_costs(data.get("costs")),
        *_restore(data.get("restore")),
        *_cut_short(data.get("cut_short")),
    )


def _seeds_text(seeds: int | None) -> str:
    """Return the number of seeds of each trial as the end of a phrase; empty for 1.

    None stands for a plan, by which trials that get far are trained under further seeds.
    """
    if seeds is None:
        return ", the best of them under further seeds"
    return f", each under {seeds} seeds" if seeds > 1 else ""


def _costs(costs: Data | None) -> list[RenderableType]:
    """Render the lines with expected time, steps and disk space; none if `costs` is None.

    It is the entry ``costs`` of the data of `sweep validate`.
    """
    if costs is None:
        return []
    per_trial = costs["iterations_per_trial"]
    steps = costs["steps_per_iteration"]
    measured = f"{costs['iteration_s']:.3g} s"
    measured += "" if steps is None else f" and {formatting.count(steps)} steps"
    size = costs["checkpoint_bytes"]
    measured += "" if size is None else f", a checkpoint {size_text(size)}"
    lines = [Text(), Text(f"an iteration takes {measured}")]
    if per_trial is None:
        lines.append(Text("at most    unknown: stop limits neither iterations nor steps"))
    else:
        lines.append(
            Text(f"at most    {_cost_line(costs, 'most')}, {per_trial} iterations a trial")
        )
        if costs["about_s"] < costs["most_s"]:
            lines.append(Text(f"about      {_cost_line(costs, 'about')}"))
    if size is not None:
        lines.append(Text(f"disk       at most {size_text(costs['most_bytes'])}"))
    return list(lines)


def _cost_line(costs: Data, kind: str) -> str:
    """Return the steps and the duration of the ``most`` or ``about`` costs (`kind`) as a text.

    Steps are left out if results do not count them.
    """
    steps = costs[f"{kind}_steps"]
    text = "" if steps is None else f"{formatting.count(steps)} steps, "
    return text + formatting.duration(costs[f"{kind}_s"])


def _samples(samples: Sequence[Data]) -> RenderableType:
    """Render the settings of sample points (name → value each) as an indented table."""
    names = dict.fromkeys(name for sample in samples for name in sample)
    columns: list[Column] = [
        (printable(name), "wrap", partial(_sample_cell, name)) for name in names
    ]
    return Padding(table(samples, *columns), (0, 0, 0, 2))


def _sample_cell(name: str, sample: Data) -> str:
    """Return the setting `name` of a sample as text; empty if it is inactive there."""
    return formatting.setting(sample[name]) if name in sample else ""


def _restore(differences: Sequence[str] | None) -> list[RenderableType]:
    """Render the differences between an iteration and the same one after a restore.

    The list is empty for None, if they were not compared; without differences, a line says so.
    """
    if differences is None:
        return []
    if not differences:
        return [Text(), Text("save and restore: the next iteration is the same, to the bit")]
    return section("save and restore:", differences, "yellow")


def _cut_short(stop: Data | None) -> list[RenderableType]:
    """Render the steps of a smoke test that were not tried because of its time limit.

    The list is empty for None, if the test finished.
    """
    if stop is None:
        return []
    after = f"{stop['after_s']:g}"
    lines = [
        f"ended after {after} s, {stop['step_s']:.0f} s into: {stop['step']}",
        f"not tried: {'; '.join(stop['untried'])}",
        f"`--for SECONDS` allows it longer than {after} s",
    ]
    return section("the trainable was not tried to the end", lines, "yellow")


def env_report(data: Data) -> RenderableType:
    """Render `sweep check-env`: facts, exactness with its reasons, speed, cost of saving, faults.

    `data` is that of `check.check`; rows without a value are left out.
    """
    limit = data["time_limit"]
    rows: list[tuple[str, str]] = [
        ("observations", " ".join(data["observation_space"].split())),
        ("actions", " ".join(data["action_space"].split())),
        ("time limit", "none" if limit is None else formatting.plural(limit, "step")),
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
        table(shown, ("", "l", itemgetter(0)), ("", "wrap", itemgetter(1)), head=False),
    )


def _speed(data: Data) -> str:
    """Return the speed of one environment, and of several in one process; empty if not measured."""
    from trainables.envs.check import WIDTH

    alone, many = data["steps_per_s"], data[f"steps_per_s_in_{WIDTH}"]
    if alone is None:
        return ""
    return (
        f"{formatting.count(alone)} steps/s alone, {formatting.count(many)} with {WIDTH} "
        "environments in one process"
    )


def _saving(data: Data) -> str:
    """Return the size of a saved state, and the durations of saving and restoring, as a text.

    It is empty if the environment cannot be saved.
    """
    if data["saved_bytes"] is None:
        return ""
    return (
        f"{formatting.count(data['saved_bytes'])} bytes, {data['save_ms']:.1f} ms; restoring "
        f"{data['restore_ms']:.1f} ms"
    )


def findings_table(data: Sequence[Data]) -> RenderableType:
    """Render `sweep doctor`, one row for each finding.

    A finding has ``part``, ``level`` (``ok``, ``warning`` or ``problem``), ``seen`` and ``todo``,
    which is empty if nothing is to be done.
    """
    return table(
        data,
        ("part", "l", itemgetter("part")),
        ("", "l", lambda its: Text(its["level"], style=_LEVELS[its["level"]])),
        (
            "seen → what to do next",
            "wrap",
            lambda its: f"{its['seen']} → {its['todo']}" if its["todo"] else its["seen"],
        ),
    )


def damage_report(data: Data) -> RenderableType:
    """Render `sweep verify`: repairs, damages, and parts that were not compared.

    `data` has ``repaired`` and ``notes``, lists of lines, and ``damages``, of which each has
    ``part``, ``place``, ``problem`` and ``remedy``. Without damages, a line says so.
    """
    parts: list[RenderableType] = [Text(printable(f"repaired: {t}")) for t in data["repaired"]]
    if data["damages"]:
        damages = table(
            data["damages"],
            ("part", "l", lambda damage: damage["part"]),
            ("where", "wrap", lambda damage: printable(damage["place"])),
            ("what", "wrap", lambda damage: printable(damage["problem"])),
            ("mend", "l", lambda damage: "--repair" if damage["remedy"] else "no"),
        )
        parts.append(damages)
    else:
        checked = formatting.plural(data["checkpoints"], "checkpoint")
        parts.append(Text(printable(f"{data['name']} is intact ({checked})")))
    parts += [Text(printable(note)) for note in data["notes"]]
    return Group(*parts)


def sync_table(data: Data) -> RenderableType:
    """Render `sweep sync`: the number of events that each tracker was sent now and still misses.

    It is a line of text if the sweep has no trackers.
    """
    if not data["trackers"]:
        return Text("no trackers")
    return table(
        data["trackers"],
        ("", "l", lambda its: its["tracker"]),
        ("sent", "r", lambda its: formatting.plural(its["sent"], "event")),
        ("", "l", lambda its: _missing(its["missing"])),
    )


def _missing(events: int) -> str:
    """Return words for the number of events that a tracker misses; ``has all`` for 0."""
    return f"misses {formatting.plural(events, 'event')}" if events else "has all"

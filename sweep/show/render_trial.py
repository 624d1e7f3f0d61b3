"""One trial as text: what `sweep best`, `show` and `export-model` print."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sweep.show import render_exam, wording
from sweep.show.render import front_line, table, word
from trainables.errors import printable

Data = Mapping[str, Any]


def best(data: Data) -> RenderableType:
    """`sweep best`: a line of facts, and the settings as YAML that can stand in a spec."""
    facts = (
        f"trial {data['trial']} of {printable(data['name'])}: {printable(data['metric'])} "
        f"{wording.number(data['score'])} after "
        f"{wording.plural(data['iterations'], 'iteration')}, {data['status'].lower()}"
    )
    saved = data["checkpoint"]
    where = "no checkpoint" if saved is None else checkpoint_line(saved)
    others = [f"# {printable(k)} {wording.number(v)}" for k, v in data.get("also", {}).items()]
    others += [f"# breaks {printable(path)}" for path in data.get("breaks", [])]
    others += [f"# {line.plain}" for line in front_line(data["front"])]
    remarks = [f"# {remark}" for remark in render_exam.remarks(data)]
    config = ["config:", *wording.yaml_lines(data["config"], 2)]
    lines = [f"# {facts}", *others, f"# {where}", *remarks, *config]
    return Text("\n".join(lines), no_wrap=True, overflow="ignore")


def checkpoint_line(saved: Data) -> str:
    """A checkpoint on one line."""
    value = "" if saved["value"] is None else f", {wording.number(saved['value'])}"
    return f"iteration {saved['iteration']}{value}: {saved['file']} ({saved['size']:,} bytes)"


def show(data: Data) -> RenderableType:
    """`sweep show`."""
    head = Text.assemble(
        (f"trial {data['trial']}", "bold"),
        " of ",
        printable(data["name"]),
        "  ",
        word(data["status"]),
    )
    score = f"{printable(data['metric'])} {wording.number(data['score'])} ({data['mode']})"
    steps = "" if data["steps"] is None else f", {wording.count(data['steps'])} steps"
    facts = [
        f"{score} after {wording.plural(data['iterations'], 'iteration')}{steps}",
        printable(data["reason"]),
        f"a restored trial is: {printable(data['exactness'])}" if data["exactness"] else "",
    ]
    shown: list[RenderableType] = [head, *(Text(fact) for fact in facts if fact)]
    shown += _section("settings", wording.yaml_lines(data["settings"]))
    if len(data["replicas"]) > 1:
        shown += [Text(), Text("seeds", style="bold"), _replicas(data["replicas"])]
    shown += _curve(data)
    if data["checkpoints"]:
        shown += [Text(), Text("checkpoints", style="bold"), _checkpoints(data["checkpoints"])]
    if data["decisions"]:
        shown += [Text(), Text("what happened", style="bold"), _decisions(data["decisions"])]
    shown += _section("newest error", _lines(data["error"]))
    return Group(*shown)


def _section(title: str, lines: Sequence[str]) -> list[RenderableType]:
    if not lines:
        return []
    return [Text(), Text(title, style="bold"), Text("\n".join(f"  {line}" for line in lines))]


def _lines(text: str) -> list[str]:
    return [printable(line) for line in text.rstrip().splitlines()]


def _curve(data: Data) -> list[RenderableType]:
    values = [point["value"] for point in data["curve"] if point["value"] is not None]
    if not values:
        return []
    ends = f"first {wording.number(values[0])}, last {wording.number(values[-1])}, "
    extremes = f"least {wording.number(min(values))}, greatest {wording.number(max(values))}"
    title = f"{wording.last_part(data['metric'])}, {wording.plural(len(values), 'value')}"
    return _section(title, [wording.sparkline(values), ends + extremes])


def _checkpoints(rows: Sequence[Data]) -> Table:
    return table(
        [("  iter", "r"), ("value", "r"), ("bytes", "r"), ("SHA-256", "cut")],
        [
            (
                str(row["iteration"]),
                wording.number(row["value"]),
                wording.count(row["size"]),
                row["digest"][:16],
            )
            for row in rows
        ],
    )


def _replicas(rows: Sequence[Data]) -> Table:
    return table(
        [("  trial", "r"), ("status", "l"), ("score", "r"), ("iter", "r"), ("seed", "cut")],
        [
            (
                row["name"],
                word(row["status"]),
                wording.number(row["score"]),
                str(row["iterations"]),
                str(row["seed"]),
            )
            for row in rows
        ],
    )


def _decisions(rows: Sequence[Data]) -> Table:
    return table(
        [("", "l"), ("", "wrap"), ("", "wrap")],
        [
            (
                "  " + time.strftime("%m-%d %H:%M:%S", time.localtime(row["at"])),
                Text(row["what"].lower()),
                Text(printable(row["why"])),
            )
            for row in rows
        ],
        head=False,
    )


def log(data: Data) -> RenderableType:
    """`sweep show --log`."""
    return Text("\n".join(_lines(data["log"])) or "it printed nothing")


def card(data: Data) -> RenderableType:
    """`sweep export-model`."""
    score = f"{printable(data['metric'])} {wording.number(data['checkpoint']['value'])}"
    out = printable(data["out"])
    lines = [
        f"trial {data['trial']} of {printable(data['sweep'])}, {score}, iteration "
        f"{data['checkpoint']['iteration']}"
        + (f", seed {data['replica']}, the best of {data['seeds']}" if data["seeds"] > 1 else ""),
        *(f"{name:<5} {out}/{printable(file)}" for name, file in data["files"].items()),
        f"card  {out}/card.md",
    ]
    return Text("\n".join(lines))

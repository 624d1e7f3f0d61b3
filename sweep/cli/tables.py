"""The data of `sweep.views.overview` as tables and text, for 80 columns or a pipe."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sweep.views import formatting
from trainables.errors import printable

Data = Mapping[str, Any]

_STYLES = {
    "RUNNING": "cyan",
    "COMPLETED": "green",
    "FAILED": "red",
    "running": "cyan",
    "finished": "green",
    "interrupted": "yellow",
}


def table(
    columns: Sequence[tuple[str, str]], rows: Iterable[Sequence[str | Text]], head: bool = True
) -> Table:
    """A table without lines.

    Args:
        columns: (title, kind); kind is ``l`` or ``r`` for left or right; where there is no room,
            columns of kind ``cut`` and ``wrap`` give way, and no others.
        rows: cells.
        head: whether the titles are shown.
    """
    made = Table(
        box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_header=head
    )
    for title, kind in columns:
        yields = kind in ("cut", "wrap")
        made.add_column(title, justify="right" if kind == "r" else "left", no_wrap=not yields)
    for row in rows:
        made.add_row(*(_cell(cell, kind) for cell, (_, kind) in zip(row, columns, strict=True)))
    return made


def _cell(cell: str | Text, kind: str) -> Text:
    text = Text(cell) if isinstance(cell, str) else cell
    text.overflow = "fold" if kind == "wrap" else "ellipsis"
    text.no_wrap = kind != "wrap"
    return text


def word(value: str) -> Text:
    """A status or state in its colour."""
    return Text(value.lower(), style=_STYLES.get(value, ""))


def overviews(rows: Sequence[Data], root: str) -> RenderableType:
    """`sweep ls`."""
    if not rows:
        return Text(f"no sweeps in {printable(root)}; start one with `sweep run quickstart`")
    return table(
        [
            ("sweep", "wrap"),
            ("state", "l"),
            ("trials", "r"),
            ("best", "r"),
            ("metric", "cut"),
            ("age", "l"),
        ],
        [
            (
                Text(printable(row["name"])),
                word(row["state"]),
                f"{row['trials']}/{row['wanted']}",
                best_score(row),
                Text(formatting.last_part(row["metric"])),
                formatting.age(row["age_s"]),
            )
            for row in rows
        ],
    )


def best_score(row: Data) -> str:
    """The score of the best trial."""
    return formatting.number(row["best"]["score"] if row["best"] else None)


def status(data: Data) -> RenderableType:
    """`sweep status`."""
    metric = f"{printable(data['metric'])} ({data['mode']})"
    head = Text.assemble(
        (printable(data["name"]), "bold"),
        "  ",
        word(data["state"]),
        f"  {data['searcher']} · {data['scheduler']}  {metric}",
    )
    shown: list[RenderableType] = [head, Text(standing(data)), *exhausted_line(data)]
    if data["why"]:
        shown.append(Text(printable(data["why"])))
    if data["running"]:
        shown += [Text(), running(data["running"], data["metric"], data["time_attr"])]
    if data["best"]:
        shown += [Text(), best_line(data["best"])]
    if data["state"] in ("stopped", "interrupted"):
        shown += [Text(), Text(f"go on with: sweep resume {printable(data['name'])}")]
    return Group(*shown)


def exhausted_line(data: Data) -> list[Text]:
    """Why there are fewer trials than were wanted, if the space has no more points."""
    reason = data["exhausted"]
    return [Text(f"nothing is left to search: {printable(reason)}")] if reason else []


def standing(data: Data) -> str:
    """How far the sweep is, on one line."""
    parts = [
        formatting.started(data["trials"], data["bred"], data["wanted"]),
        in_words(data["counts"]),
        f"{data['fraction']:.0%} of the work" if data["state"] != "finished" else "",
        _run_with(data),
    ]
    if data["left_s"] is not None:
        parts.append(f"about {formatting.duration(data['left_s'])} left")
    return " · ".join(part for part in parts if part)


def _run_with(data: Data) -> str:
    """``2 jobs (loky)``; empty: it was not recorded."""
    if data["jobs"] is None:
        return ""
    return f"{formatting.plural(data['jobs'], 'job')} ({printable(data['pool'] or '?')})"


def in_words(counts: Mapping[str, int]) -> str:
    """``3 running, 12 paused``."""
    return ", ".join(f"{count} {status.lower()}" for status, count in counts.items())


def running(rows: Sequence[Data], metric: str, time_attr: str) -> Table:
    """One line per running trial."""
    columns = [("trial", "r"), ("iter", "r"), (formatting.last_part(metric), "r")]
    counted = time_attr != "training_iteration"
    columns.append((formatting.last_part(time_attr) if counted else "rung", "r"))
    return table(
        [*columns, ("time", "r"), ("settings", "cut")],
        [
            (
                row["name"],
                str(row["iteration"]),
                formatting.number(row["value"]),
                _towards(row, counted),
                formatting.duration(row["seconds"]),
                Text(formatting.settings(row["settings"])),
            )
            for row in rows
        ],
    )


def _towards(row: Data, counted: bool) -> str:
    goal = "end" if row["goal"] is None else formatting.count(row["goal"])
    return f"{formatting.count(row['time'])} / {goal}" if counted else goal


def best_line(best: Data) -> Text:
    """The best trial so far, on one line."""
    return Text.assemble(
        ("best", "bold"),
        f"  trial {best['trial']}: {formatting.number(best['score'])}  ",
        (formatting.settings(best["settings"]), "dim"),
        no_wrap=True,
        overflow="ellipsis",
    )


def results(data: Data) -> RenderableType:
    """`sweep results`."""
    best = "greatest" if data["mode"] == "max" else "least"
    order = f"{best} first" if data["front"] is None else f"front by front, {best} first"
    title = f"{printable(data['name'])}: {printable(data['metric'])}, {order}"
    shown = [Text(title), *front_line(data["front"]), Text()]
    return Group(*shown, ranking(data["trials"], "wrap"))


def front_line(front: Sequence[int] | None) -> list[Text]:
    """The trials of the front, on one line; nothing where there is one objective."""
    if front is None:
        return []
    numbers = ", ".join(str(number) for number in front) or "none yet"
    return [Text(f"front (none is better in every objective): trials {numbers}")]


def ranking(rows: Sequence[Data], settings: str) -> Table:
    """Trials as a table, in the order given; `settings` is the kind of that column."""
    others = list(rows[0].get("objectives", {})) if rows else []
    limited = any(row.get("breaks") for row in rows)
    several = any(len(row["scores"]) > 1 for row in rows)
    return table(
        [
            ("trial", "r"),
            ("status", "l"),
            ("score", "r"),
            *((formatting.last_part(path), "r") for path in others),
            *([("breaks", "l")] if limited else []),
            *([("seeds", "l")] if several else []),
            ("iter", "r"),
            ("steps", "r"),
            ("settings", settings),
        ],
        [
            (
                str(row["trial"]),
                word(row["status"]),
                formatting.number(row["score"]),
                *(formatting.number(row["objectives"][path]) for path in others),
                *([Text(", ".join(row["breaks"]))] if limited else []),
                *([formatting.scores(row["scores"])] if several else []),
                str(row["iterations"]),
                formatting.count(row["steps"]),
                Text(formatting.settings(row["settings"])),
            )
            for row in rows
        ],
    )


def summary(data: Data) -> RenderableType:
    """The end of `sweep run` and `sweep resume`."""
    name = printable(data["name"])
    steps = (
        "" if data["steps"] is None else f" · {formatting.count(data['steps'])} environment steps"
    )
    facts = f"{in_words(data['counts'])} · {formatting.duration(data['seconds'])}{steps}"
    ended = f"{data['how']}: {formatting.started(data['trials'], data['bred'], data['wanted'])}"
    shown: list[RenderableType] = [Text(), Text(f"{name} {ended} · {facts}", style="bold")]
    shown += exhausted_line(data)
    if data["why"]:
        shown.append(Text(printable(data["why"])))
    if data["top"]:
        shown += [Text(), ranking(data["top"], "cut")]
    return Group(*shown, Text(), Text("\n".join(_next_steps(data))))


def _next_steps(data: Data) -> list[str]:
    name = printable(data["name"])
    where = f" --root {shlex.quote(printable(data['root']))}" if data["root"] != "sweeps" else ""
    lines = []
    if data["unsent"]:
        behind = ", ".join(data["unsent"])
        lines.append(f"{behind} still misses some results; `sweep resume {name}{where}` sends them")
    if data["why"]:
        lines.append(f"go on       sweep resume {name}{where} --budget KEY=NUMBER")
    if data["how"] != "finished":
        lines.append(f"go on       sweep resume {name}{where}")
    if data["top"] and "mlflow" in data["trackers"]:
        lines.append(f"compare     sweep ui {name}{where}")
    if data["top"] and data["exports"]:
        lines.append(f"take away   sweep export-model {name}{where} --out exported-{name}")
    return lines

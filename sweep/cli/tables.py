"""Render the data of `sweep.views.overview` as tables and text, for 80 columns or a pipe."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import rich.table
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.segment import Segment
from rich.text import Text

from sweep.cli.terminal import unwrapped
from sweep.history.events import Status
from sweep.ledger.folder import root_option
from sweep.operations.report import braille
from sweep.operations.report.curves import Curves
from sweep.views import comparison as comparisons
from sweep.views import formatting
from trainables.errors import printable

Data = Mapping[str, Any]

#: Word in a table's cell → its colour in a terminal.
_STYLES = {
    "RUNNING": "cyan",
    "COMPLETED": "green",
    "FAILED": "red",
    "running": "cyan",
    "finished": "green",
    "interrupted": "yellow",
}


#: Smallest width of a wrapped column, in characters; if there is less room it gets its own lines.
_LEAST_WRAPPED = 16

#: Title, kind, and function from a row to its cell. The kind is the alignment ``l`` or ``r``, or
#: the reaction to a lack of room, ``cut`` or ``wrap``.
Column = tuple[str, str, Callable[[Any], str | Text]]


@dataclass(frozen=True)
class Table:
    """A table without borders, which rich draws on a terminal and which is plain text in a pipe."""

    rows: Sequence[Sequence[str | Text]]
    """Cells of each row, in the order of the columns."""
    columns: Sequence[Column]
    """Title, kind and cell function of each column, see `Column`."""
    head: bool
    """True to show the titles above the rows."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = None if console.is_terminal else self._lines(options.max_width)
        if lines is not None:
            yield Segment("".join(f"{line}\n" for line in lines))
        elif self._is_too_wide(options.max_width):
            yield from self._draw_wrapped_apart(console, options)
        else:
            yield self._draw()

    def _lines(self, width: int) -> list[str] | None:
        """Return the table as lines of plain text, for output that is not a terminal.

        Returns None if a line would be wider than `width` columns, or a cell is not printable.
        """
        rows = [[str(cell) for cell in row] for row in self.rows]
        if self.head:
            rows.insert(0, [title for title, _, _ in self.columns])
        if not all(map(str.isprintable, chain.from_iterable(rows))):
            return None
        widths = [max(map(cell_len, cells)) for cells in zip(*rows, strict=True)]
        if sum(widths) + 2 * len(widths) > width:
            return None
        right = [kind == "r" for _, kind, _ in self.columns]
        return ["  ".join(map(_justify, row, widths, right)) for row in rows]

    def _is_too_wide(self, limit: int) -> bool:
        """Return true if columns that are wrapped would become too narrow to read.

        `limit` is the width of the screen in characters. Returns false if no column is wrapped, or
        all are.
        """
        needed, wrapped = 0, 0
        for place, (title, kind, _) in enumerate(self.columns):
            cells = [str(row[place]) for row in self.rows] + [title] * self.head
            width = max(map(cell_len, cells), default=0)
            gives_way = kind in ("cut", "wrap")
            needed += 2 + (min(width, _LEAST_WRAPPED) if gives_way else width)
            wrapped += kind == "wrap"
        return 0 < wrapped < len(self.columns) and needed - 2 > limit

    def _draw_wrapped_apart(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield each row on one line, and its wrapped columns on separate lines.

        These are above the row if the first column, usually a name, is wrapped; otherwise below.
        """
        wraps_first = self.columns[0][1] == "wrap"
        wrapped = [place for place, (_, kind, _) in enumerate(self.columns) if kind == "wrap"]
        others = [place for place in range(len(self.columns)) if place not in wrapped]
        rest = [[_one_line(row[place]) for place in others] for row in self.rows]
        drawn = Table(rest, [self.columns[place] for place in others], self.head)._draw()
        lines = [
            Text.assemble(*((part.text, part.style or "") for part in line))
            for line in console.render_lines(
                drawn, options.update_width(max(1, options.max_width - 2 * wraps_first)), pad=False
            )
        ]
        titles: list[Sequence[str | Text]] = [[title for title, _, _ in self.columns]]
        for line, row in zip(lines, [*titles[: self.head], *self.rows], strict=True):
            words = [_cell(row[place], "wrap") for place in wrapped if str(row[place])]
            yield from words if wraps_first else [line]
            yield from (Padding(one, (0, 0, 0, 2)) for one in ([line] if wraps_first else words))

    def _draw(self) -> rich.table.Table:
        """Return the table as one of rich's, in which only ``cut`` and ``wrap`` columns narrow."""
        drawn = rich.table.Table(
            box=None,
            pad_edge=False,
            padding=(0, 2, 0, 0),
            header_style="bold",
            show_header=self.head,
        )
        for title, kind, _ in self.columns:
            yields = kind in ("cut", "wrap")
            drawn.add_column(title, justify="right" if kind == "r" else "left", no_wrap=not yields)
        for row in self.rows:
            cells = zip(row, self.columns, strict=True)
            drawn.add_row(*(_cell(cell, kind) for cell, (_, kind, _) in cells))
        return drawn


def table(rows: Iterable[Any], *columns: Column, head: bool = True) -> Table:
    """Return a table with one row for each of `rows`; `head` says if titles are shown.

    A column is (title, kind, function from an element of `rows` to its cell). The kind is the
    alignment ``l`` or ``r``, or the reaction to a lack of room, ``cut`` or ``wrap``.
    """
    return Table([[cell(row) for _, _, cell in columns] for row in rows], columns, head)


def _justify(text: str, width: int, right: bool) -> str:
    """Return text padded with blanks to a width, on the left if `right`."""
    blanks = " " * (width - cell_len(text))
    return f"{blanks}{text}" if right else f"{text}{blanks}"


def _one_line(cell: str | Text) -> str | Text:
    """Return a text cell with line breaks and control characters escaped; rich text unchanged."""
    return printable(cell) if isinstance(cell, str) else cell


def _cell(cell: str | Text, kind: str) -> Text:
    """Return a cell as rich text that is wrapped or cut, by its column's `kind`.

    A cell that is rich text already is changed itself.
    """
    text = Text(cell) if isinstance(cell, str) else cell
    text.overflow = "fold" if kind == "wrap" else "ellipsis"
    text.no_wrap = kind != "wrap"
    return text


def section(title: str, lines: Sequence[str], style: str = "bold") -> list[RenderableType]:
    """Return an empty line, a title, and indented lines below it; nothing if there are no lines."""
    if not lines:
        return []
    text = "\n".join(f"  {printable(line)}" for line in lines)
    return [Text(), Text(title, style=style), unwrapped(text)]


def status_text(value: str) -> Text:
    """Return the status of a trial, or the state of a sweep, in lower case and in its colour."""
    return Text(value.lower(), style=_STYLES.get(value, ""))


def overviews(rows: Sequence[Data], root: str) -> RenderableType:
    """Render `sweep ls`, one row for each sweep (`overview.overview`).

    Without rows it is a hint how to start a sweep, which names `root`.
    """
    if not rows:
        return f"no sweeps in {printable(root)}; start one with `sweep run quickstart`"
    return table(
        rows,
        ("sweep", "wrap", lambda row: printable(row["name"])),
        ("state", "l", lambda row: status_text(row["state"])),
        ("trials", "r", lambda row: f"{row['trials']}/{row['wanted']}"),
        ("best", "r", lambda row: formatting.number(row["best"] and row["best"]["score"])),
        ("metric", "cut", lambda row: printable(row["metric"])),
        ("age", "l", lambda row: formatting.age(row["age_s"])),
    )


def status(data: Data) -> RenderableType:
    """Render `sweep status`; `data` is that of `overview.status`.

    Below the progress come changes, suggestions that wait, running trials, the best trial and the
    outlook, each only if there is one. A sweep that can be resumed gets the command for that.
    """
    metric = f"{printable(data['metric'])} ({data['mode']})"
    head = Text.assemble(
        (printable(data["name"]), "bold"),
        "  ",
        status_text(data["state"]),
        f"  {data['searcher']} · {data['scheduler']}  {metric}",
    )
    shown: list[RenderableType] = [head, Text(progress_line(data)), *exhausted_line(data)]
    shown += change_lines(data["changes"])
    if data["pool_remark"]:
        shown.append(Text(printable(data["pool_remark"])))
    for one in data["suggested"]:
        said = f"{one['author']}: {one['reason']}" if one["reason"] else one["author"]
        waits = f"suggested, and not begun yet: {formatting.settings(one['settings'])}"
        shown.append(Text(f"{waits} (by {printable(said)})"))
    if data["why"]:
        shown.append(Text(printable(data["why"])))
    if data["running"]:
        shown += [Text(), running(data["running"], data["metric"], data["time_attr"])]
    if data["best"]:
        shown += [Text(), *best_lines(data["best"])]
    if data["outlook"]:
        shown.append(Text(formatting.describe_outlook(data["outlook"], data["metric"])))
    if data["state"] in ("stopped", "interrupted"):
        again = f"sweep resume {printable(data['name'])}{root_option(data['root'])}"
        shown += [Text(), unwrapped(f"continue with: {again}")]
    return Group(*shown)


def exhausted_line(data: Data) -> list[Text]:
    """Return a line with the reason why the space has no more points; nothing if it has some.

    The reason is the entry ``exhausted`` of `data`.
    """
    reason = data["exhausted"]
    return [Text(f"the search ends early: {printable(reason)}")] if reason else []


def change_lines(changes: Sequence[Data]) -> list[Text]:
    """Return a line for each of `changes`, the data of `overview.changes`."""
    return [Text(printable(change["text"])) for change in changes]


def progress_line(data: Data) -> str:
    """Return one line: trials by status, share of the work done, slots, time left.

    `data` is that of `overview.status`. Unknown parts are left out, and so is the share once the
    sweep has finished.
    """
    jobs = ""
    if data["jobs"] is not None:
        jobs = f"{formatting.plural(data['jobs'], 'job')} ({printable(data['pool'] or '?')})"
    parts = [
        formatting.trials_text(data["trials"], data["bred"], data["wanted"]),
        counts_text(data["counts"], data["state"] != "interrupted"),
        f"{data['fraction']:.0%} of the work" if data["state"] != "finished" else "",
        jobs,
    ]
    if data["left_s"] is not None:
        parts.append(f"about {formatting.duration(data['left_s'])} left")
    return " · ".join(part for part in parts if part)


def counts_text(counts: Mapping[str, int], is_driven: bool = True) -> str:
    """Return status → number of trials in words, for example ``3 running, 12 paused``.

    Unless `is_driven`, the driver has died, so trials that ran are called interrupted.
    """
    words = {status: status.lower() for status in counts}
    if not is_driven and Status.RUNNING in words:
        words[Status.RUNNING] = "interrupted"
    return ", ".join(f"{count} {words[status]}" for status, count in counts.items())


def running(rows: Sequence[Data], metric: str, time_attr: str) -> Table:
    """Return the table of running trials, one row each; `rows` are of `overview.running_replica`.

    `metric` and `time_attr` are the sweep's. If the latter is not the iteration, goals are shown
    with the value reached so far. Names of a cluster's workers get a column if there are any.
    """
    counted = time_attr != "training_iteration"
    goal = formatting.last_part(time_attr) if counted else "rung"
    on_cluster = any(row["worker"] for row in rows)
    workers: Column = ("worker", "l", lambda row: printable(row["worker"] or ""))
    return table(
        rows,
        ("trial", "r", lambda row: row["name"]),
        *[workers] * on_cluster,
        ("iter", "r", lambda row: str(row["iteration"])),
        (formatting.last_part(metric), "r", lambda row: formatting.number(row["value"])),
        (goal, "r", lambda row: _goal_cell(row, counted)),
        ("time", "r", lambda row: formatting.duration(row["seconds"])),
        ("settings", "cut", lambda row: formatting.settings(row["settings"])),
    )


def _goal_cell(row: Data, counted: bool) -> str:
    """Return the cell with a trial's goal, or ``end`` without one, as a whole number.

    If `counted`, the time reached so far is before it: ``1,200 / 5,000``.
    """
    goal = "end" if row["goal"] is None else formatting.count(row["goal"])
    return f"{formatting.count(row['time'])} / {goal}" if counted else goal


def best_lines(best: Data) -> list[Text]:
    """Return a line about the best trial so far, with several objectives another on its front.

    `best` is the data of `overview.best_so_far`; the Pareto front is its entry ``front``.
    """
    others = "".join(
        f", {printable(path)} {formatting.number(value)}"
        for path, value in best.get("objectives", {}).items()
    )
    score = f"{formatting.number(best['score'])}{_expected(best)}{others}"
    lines = [
        _line("best", f"trial {best['trial']}: {score}  ", formatting.settings(best["settings"]))
    ]
    if "front" in best:
        numbers = ", ".join(map(str, best["front"]))
        lines.append(_line("front", f"{formatting.plural(len(best['front']), 'trial')}: {numbers}"))
    return lines


def _line(title: str, text: str, note: str = "") -> Text:
    """Return a line with a bold title and a dim note, cut at the width of the screen."""
    return Text.assemble(
        (title, "bold"), f"  {text}", (note, "dim"), no_wrap=True, overflow="ellipsis"
    )


def _expected(best: Data) -> str:
    """Return ``, on a new seed 455 ± 21`` for the best trial; empty if the error is unknown."""
    if best["expected_error"] is None:
        return ""
    expected = formatting.with_standard_error(best["expected"], best["expected_error"])
    return f", on a new seed {expected}"


def results(data: Data) -> RenderableType:
    """Render `sweep results`: a title and the ranking of all trials.

    `data` is that of `overview.results`. The front and changes of the sweep come before the
    ranking, if there are any.
    """
    is_expected = any(row["expected_error"] is not None for row in data["trials"])
    by_score = "best on a new seed first" if is_expected else "best first"
    order = by_score if data["front"] is None else "front by front"
    title = f"{printable(data['name'])}: {printable(data['metric'])}, {order}"
    shown = [Text(title), *front_line(data["front"]), *change_lines(data["changes"]), Text()]
    return Group(*shown, ranking(data["trials"], "wrap"))


def front_line(front: Sequence[int] | None) -> list[Text]:
    """Return a line with the trials of the Pareto front; nothing for None, with one objective."""
    if front is None:
        return []
    numbers = ", ".join(str(number) for number in front) or "none yet"
    return [Text(f"front (none is better in every objective): trials {numbers}")]


def ranking(rows: Sequence[Data], settings: str) -> Table:
    """Return a table of trials in the given order; `rows` are those of `overview.row`.

    Columns such as objectives, seeds or unsaved results appear only if a row has any. `settings`
    says how the column of settings reacts to a lack of room: ``cut`` or ``wrap``.
    """
    columns: list[Column] = [
        ("trial", "r", lambda row: str(row["trial"])),
        ("status", "l", lambda row: status_text(row["status"])),
        ("score", "r", lambda row: formatting.number(row["score"])),
    ]
    if any(row["expected_error"] is not None for row in rows):
        columns.append(("on a new seed", "r", _expected_cell))
    for path in rows[0].get("objectives", {}) if rows else ():
        columns.append((formatting.last_part(path), "r", partial(_other_score, path)))
    if any(row.get("violates") for row in rows):
        columns.append(("violates", "l", lambda row: ", ".join(map(printable, row["violates"]))))
    if any(row.get("suggested") for row in rows):
        columns.append(("suggested by", "l", lambda row: printable(row.get("suggested") or "")))
    if any(len(row["scores"]) > 1 for row in rows):
        columns.append(("seeds", "l", lambda row: formatting.scores(row["scores"])))
    inherits = any(row["own_steps"] != row["steps"] for row in rows)
    own_steps: Column = ("own steps", "r", lambda row: formatting.count(row["own_steps"]))
    lost: Column = ("unsaved", "r", lambda row: str(row.get("unsaved") or ""))
    steps: Column = ("steps", "r", lambda row: formatting.count(row["steps"]))
    return table(
        rows,
        *columns,
        ("iter", "r", lambda row: str(row["iterations"])),
        *[lost] * any(row.get("unsaved") for row in rows),
        *[steps] * any(row["steps"] is not None for row in rows),
        *[own_steps] * inherits,
        ("settings", settings, lambda row: formatting.settings(row["settings"])),
    )


def _expected_cell(row: Data) -> str:
    """Return the cell with a trial's expected score on a new seed, and its standard error."""
    return formatting.with_standard_error(row["expected"], row["expected_error"])


def _other_score(path: str, row: Data) -> str:
    """Return the cell with a trial's score in the objective `path`."""
    return formatting.number(row["objectives"][path])


def summary(data: Data, python: bool = False) -> RenderableType:
    """Render the end of `sweep run` and `sweep resume`: result, best trials, next commands.

    `data` is that of `train.summary`. If `python`, advice on retrying failed trials or adding some
    is given as calls in Python.
    """
    name = printable(data["name"])
    ended = (
        f"{data['outcome']}: {formatting.trials_text(data['trials'], data['bred'], data['wanted'])}"
    )
    facts = [ended, counts_text(data["counts"]), formatting.duration(data["seconds"])]
    if data["steps"] is not None:
        facts.append(f"{formatting.count(data['steps'])} environment steps")
    text = " · ".join(filter(None, facts))
    shown: list[RenderableType] = [Text(), Text(f"{name} {text}", style="bold")]
    shown += exhausted_line(data)
    if data["why"]:
        shown.append(Text(printable(data["why"])))
    if data["outcome"] == "finished" and not (data["trained"] or data["why"]):
        shown.append(unwrapped(_nothing_trained(data, python)))
    if first := data["first_error"]:
        failed = f"trial {first['trial']} failed: {printable(first['reason'])}"
        shown += [Text(), Text(failed, style="red")]
    if data["top"]:
        shown += [Text(), ranking(data["top"], "cut"), *_not_shown(data)]
        shown += front_line(data["front"])
    elif has_no_score(data):
        why = ": it was NaN or infinite wherever trials are compared" if data["reported"] else ""
        shown.append(Text(f"no trial has a score in {printable(data['metric'])}{why}"))
    return Group(*shown, Text(), unwrapped("\n".join(_next_steps(data, python))))


def has_no_score(data: Data) -> bool:
    """Return true if a sweep with at least one trial has finished, and none has a score.

    `data` is that of `train.summary`.
    """
    return bool(data["outcome"] == "finished" and data["counts"] and not data["top"])


def _not_shown(data: Data) -> list[Text]:
    """Return a line with the number of trials that the ranking omits, and a command for all.

    The list is empty if none is omitted.
    """
    left_out = sum(data["counts"].values()) - len(data["top"])
    if not left_out:
        return []
    command = f"sweep results {printable(data['name'])}{root_option(data['root'])}"
    return [unwrapped(f"and {formatting.plural(left_out, 'trial')} more: {command}", "dim")]


def _nothing_trained(data: Data, python: bool) -> str:
    """Return advice for a sweep that had nothing left to train: retry, add trials or start again.

    If `python`, it names arguments of calls in Python where there are any.
    """
    named = f"{printable(data['name'])}{root_option(data['root'])}"
    if data["counts"].get(Status.FAILED):
        advice = f"`{_retry_command(data, python)}` tries the failed ones again"
    elif python:
        advice = "a larger trials= adds some"
    else:
        advice = f"`sweep resume {named} --trials TOTAL` adds some"
    name = "name" if python else "--name"
    return (
        f"nothing was trained, as all trials had ended before: {advice}; to start again, "
        f"`sweep rm {named}` or give another {name}"
    )


def _retry_command(data: Data, python: bool) -> str:
    """Return the command, or with `python` the call, that retries failed trials of a sweep.

    `data` has its ``name`` and ``root``.
    """
    name = printable(data["name"])
    if not python:
        return f"sweep resume {name}{root_option(data['root'])} --retry-failed"
    root = f", root={printable(data['root'])!r}" if root_option(data["root"]) else ""
    return f"sweep.resume({name!r}{root}, retry_failed=True)"


def _next_steps(data: Data, python: bool) -> list[str]:
    """Return lines with commands to continue, compare, report and export a sweep that has ended.

    Only those that apply are named: nothing is compared, reported or exported without a score.
    """
    name = printable(data["name"])
    root = root_option(data["root"])
    lines = _continue_lines(data, python)
    if data["top"] and "mlflow" in data["trackers"]:
        lines.append(f"compare     sweep ui {name}{root}")
    if data["top"]:
        lines.append(f"report      sweep report {name}{root}")
    if data["top"] and data["exports"]:
        out = f"--out exported-{name}"
        lines.append(f"export      sweep export-model {name}{root}{_trial_option(data)} {out}")
    return lines


def _continue_lines(data: Data, python: bool) -> list[str]:
    """Return lines with commands to send results, continue, look into missing scores, and retry.

    Each is named only if there is something to send, continue, look into or retry.
    """
    name = printable(data["name"])
    root = root_option(data["root"])
    lines = []
    if data["unsent"]:
        behind = ", ".join(data["unsent"])
        lines.append(f"{behind} still misses some results; `sweep resume {name}{root}` sends them")
    if data["why"].startswith("budget."):
        key = data["why"].partition(":")[0].removeprefix("budget.")
        lines.append(f"continue    sweep resume {name}{root} --budget {key}=NUMBER")
    if data["outcome"] != "finished":
        lines.append(f"continue    sweep resume {name}{root}")
    if has_no_score(data):
        lines.append(f"look into   sweep show {name} 0{root}")
    if data["counts"].get(Status.FAILED):
        lines.append(f"try again   {_retry_command(data, python)}")
    return lines


def _trial_option(data: Data) -> str:
    """Return ``--trial N`` for the first trial of the Pareto front; empty with one objective.

    If the front is empty, it is the first of the ranking.
    """
    if data["front"] is None:
        return ""
    front: Sequence[int] = data["front"] or [data["top"][0]["trial"]]
    return f" --trial {front[0]}"


#: Colours of the best trials, best first; the others are dim.
_CURVE_COLOURS = ("bold bright_blue", "yellow", "green", "magenta", "red", "cyan")


def curves(data: Data, drawing: Curves, size: tuple[int, int]) -> RenderableType:
    """Render `sweep curves` on a screen of `size` (columns, lines).

    `drawing` has the curves; of `data` only ``name``, ``metric`` and ``time_attr`` are used.
    Without curves it is a sentence.
    """
    title = Text(f"{printable(data['name'])}: {printable(data['metric'])}", style="bold")
    if not drawing.drawn:
        return Group(title, Text("no trial has reported it yet"))
    columns, lines = size
    picture = braille.draw(drawing.drawn, max(20, columns - 12), max(6, lines - 6))
    (first, last), (low, high) = picture.times, picture.values
    labels = {0: high, len(picture.rows) - 1: low}
    shown = [title]
    for place, row in enumerate(picture.rows):
        label = formatting.number(labels[place]) if place in labels else ""
        line = Text.assemble((f"{label:>10} ", "dim"))
        for character, owner in row:
            line.append(character, style="dim" if owner is None else _curve_colour(drawing, owner))
        shown.append(line)
    ends = formatting.count(first), formatting.count(last)
    room = max(0, len(picture.rows[0]) - len(ends[0]) - len(ends[1]))
    under = f"{'':11}{ends[0]}{formatting.last_part(data['time_attr']):^{room}}"
    shown.append(Text(f"{under}{ends[1]}", style="dim"))
    best = sorted(
        (c.place, place, c) for place, c in enumerate(drawing.drawn) if c.place is not None
    )
    names = [
        (
            f"━ {curve.trial}: {formatting.number(curve.points[-1][1])}  ",
            _curve_colour(drawing, place),
        )
        for _, place, curve in best
    ]
    return Group(*shown, Text.assemble(f"{'trial':>10} ", *names))


def _curve_colour(drawing: Curves, place: int) -> str:
    """Return the colour of the curve with index `place` in the drawing, by its trial's rank."""
    rank = drawing.drawn[place].place
    return "dim" if rank is None else _CURVE_COLOURS[rank % len(_CURVE_COLOURS)]


def comparison(data: Data) -> RenderableType:
    """Render `sweep results` for several sweeps: their best trials and these trials' settings.

    `data` is that of `comparison.compare`. A warning is added if scores are computed differently.
    """
    shown: list[RenderableType] = [
        Text(f"{printable(data['metric'])} ({data['mode']}), the best trial of each sweep"),
        Text(),
        _best_of_sweeps(data["sweeps"]),
    ]
    if different := comparisons.different_scores(data):
        shown += [Text(), Text(different)]
    if data["settings"]:
        shown += [Text(), Text("settings of these trials", style="bold"), _settings_of_sweeps(data)]
    return Group(*shown)


def _best_of_sweeps(rows: Sequence[Data]) -> Table:
    """Return the table with the best trial of each sweep, a row of `comparison.compare` each."""
    return table(
        rows,
        ("sweep", "wrap", lambda row: printable(row["name"])),
        ("state", "l", lambda row: status_text(row["state"])),
        ("best", "r", lambda row: formatting.number(row["trial"])),
        ("on a new seed", "r", _expected_cell),
        ("score", "r", lambda row: formatting.number(row["score"])),
        ("seeds", "r", lambda row: str(row["seeds"] or formatting.ABSENT)),
        ("trials", "r", lambda row: str(row["trials"])),
        ("steps", "r", lambda row: formatting.count(row["steps"])),
    )


def _settings_of_sweeps(data: Data) -> Table:
    """Return the table of settings: one row for each setting, one column for each sweep."""
    columns: list[Column] = [("setting", "wrap", printable)]
    for row in data["sweeps"]:
        columns.append((printable(row["name"]), "wrap", partial(comparisons.setting, row)))
    return table(data["settings"], *columns)

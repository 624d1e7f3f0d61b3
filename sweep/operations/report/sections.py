"""Texts and tables of a report: the head, the best trials, failures, decisions."""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sweep.core import stats
from sweep.core.stats import LEVEL, Interval
from sweep.history.events import Closed, End, OfTrials, Recorded, Status
from sweep.history.seeds import replica_name
from sweep.history.trial import Trial
from sweep.operations.report import timeline
from sweep.operations.report.markup import Markup, escape, preformatted, table, tag
from sweep.spec.objective import Aggregate
from sweep.views import explanation, final_evaluation, formatting, overview
from sweep.views.lookup import Sweep
from trainables.errors import cut

#: Number of trials in the table of the best; number with all decisions shown, in large sweeps.
TOP, SHOWN = 10, 12
#: Maximum number of failures shown with tracebacks.
FAILED = 20
#: Mark of trials from before a change of the space.
_EARLIER = "*"
#: Maximum number of settings with columns of their own in that table, and of characters there.
_COLUMNS, _LONGEST = 8, 32


@dataclass(frozen=True)
class Section:
    """One part of the page, with a title and an entry in the list of contents."""

    id: str
    """Anchor of the section in the page's address."""
    title: str
    """Title of the section."""
    note: str
    """Explanation below the title; empty for none."""
    body: Sequence[Markup]
    """HTML elements of the section below the note."""
    short: str = ""
    """Entry in the list of contents; empty to use the title."""


def head(sweep: Sweep, clock: timeline.Clock, now: float) -> Markup:
    """Return the head of the report: the trained task, the best score and the cost.

    `now` is the present time in seconds since 1970.
    """
    data = overview.overview(sweep, now)
    spec, counts = sweep.spec, overview.status_counts(sweep.history)
    seeds = f" under {spec.first_seeds} seeds each" if spec.first_seeds > 1 else ""
    if spec.has_seed_plan:
        seeds = ", with further seeds for trials that came far"
    environment = spec.config.get("env")
    on = [" on ", tag("b", escape(environment))] if isinstance(environment, str) else []
    lead = tag(
        "p",
        *(tag("b", spec.trainable), *on, ": "),
        f"which settings make {spec.metric} {'greatest' if spec.mode == 'max' else 'least'}? ",
        f"{spec.searcher.name} proposed settings, {spec.scheduler.name} scheduled them{seeds}.",
        class_="lead",
    )
    best, steps = data["best"], overview.steps(sweep.history)
    of_status = ", ".join(f"{count:,} {status.lower()}" for status, count in counts.items())
    tiles = [
        _best_tile(best) if best else None,
        _tile(formatting.count(len(sweep.history.trials)), f"trials: {of_status}"),
        _tile(formatting.duration(clock.total), "wall time"),
        _tile(_large(steps), "environment steps") if steps else None,
    ]
    return tag(
        "header",
        tag(
            "div",
            tag("h1", sweep.folder.name),
            tag("span", sweep.state.value, class_=f"badge {sweep.state.value}"),
            class_="title",
        ),
        lead,
        tag("p", data["why"], class_="lead") if data["why"] else None,
        tag("p", class_="warning", id="trouble"),
        tag("div", tiles, class_="tiles"),
    )


def _best_tile(best: Mapping[str, Any]) -> Markup:
    """Return the tile of the best trial: its expected score in large, and its own score in small.

    It has its own score alone, in large, if the expected one has no error. `best` is the data of
    `overview.best_so_far`.
    """
    score, number = formatting.number(best["score"]), best["trial"]
    if best["expected_error"] is None:
        return _tile(score, f"best, trial {number}")
    expected = formatting.with_standard_error(best["expected"], best["expected_error"])
    return _tile(expected, f"expected on a new seed of trial {number}, score {score}")


def _tile(value: str, description: str) -> Markup:
    """Return a box with a large value and a small description."""
    return tag("div", tag("b", value), tag("span", description), class_="tile")


def _large(value: float) -> str:
    """Return a number as a text, from a million on with three digits and ``M`` or ``G``."""
    for size, unit in ((1e9, " G"), (1e6, " M")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return formatting.count(value)


def sentence(text: str) -> str:
    """Return a text, which is not empty, with a capital at its start and a full stop appended."""
    return f"{text[0].upper()}{text[1:]}."


def best(sweep: Sweep) -> Section | None:
    """Return the section with a table of the `TOP` best trials; None if no trial has a score."""
    ranked = sweep.history.ranked()[:TOP]
    if not ranked:
        return None
    names = list(sweep.spec.space.searched)
    columns = names if len(names) <= _COLUMNS else []
    several = any(len(trial.compared_replicas) > 1 for trial in ranked)
    others = [path for path, _ in sweep.history.objective.objectives]
    is_random = sweep.history.expectations.is_random
    titles = ["trial", "status", "score", *["on a new seed"] * is_random]
    titles += [f"{LEVEL:.0%} interval", "seeds"] if several else []
    titles += [formatting.last_part(path) for path in others]
    violates = not all(trial.feasible for trial in ranked)
    titles += ["violates"] * violates
    titles += [*columns] if columns else ["settings"]
    rows = [_best_row(trial, sweep, several, violates, columns) for trial in ranked]
    kinds = "nwn" + "n" * is_random + "wn" * several
    kinds += "n" * len(others) + "w" * violates + ("n" * len(columns) or "t") + "nn"
    made = table([*titles, "iterations", "steps"], rows, kinds)
    return Section("best", "Best trials", _note_of_best(sweep, several), [made])


def _note_of_best(sweep: Sweep, several: bool) -> str:
    """Return the explanation of the table of the best trials.

    `several` is true if one of them has several seeds.
    """
    shown, scored = min(TOP, len(sweep.history.ranked())), len(sweep.history.ranked())
    parts = [f"The best {shown} of {scored:,} trials with a score in {sweep.spec.metric}."]
    aggregate = sweep.history.objective.aggregate
    if several and _is_of_the_mean(aggregate):
        parts.append(f"Over seeds, intervals contain the true mean with probability {LEVEL:.0%}.")
    elif several:
        parts.append(
            f"Intervals are {LEVEL:.0%} bootstrap intervals of the {aggregate.kind} over seeds. "
            "With few seeds they are too narrow: with three, they contain the true value only "
            "three times in four."
        )
    elif not sweep.history.expectations.is_random:
        parts.append("No trial drew a random number or read its seed: scores contain no luck.")
    elif scored > 1:
        parts.append(
            "They are ordered by the score that is expected of their settings on new seeds, as "
            "the best score of many is partly luck. "
            f"`sweep best {sweep.folder.in_commands} --test-seeds 10` retrains the best."
        )
    if (found := overview.outlook(sweep.history)) is not None:
        said = formatting.describe_outlook(found, sweep.spec.metric)
        parts.append(sentence(said))
    if sweep.history.objective.objectives:
        parts.append(
            "They are ranked front by front: no trial of the first is beaten in every objective."
        )
    parts += _remarks(sweep.history.ranked()[:TOP], sweep.first_of_space)
    return " ".join(parts)


def _remarks(trials: Sequence[Trial], first_of_space: int) -> Iterator[str]:
    """Yield up to three sentences about the table of best trials, whose rows are `trials`.

    They are about results that no checkpoint has saved, steps of parents, and trials from before
    the space changed. `first_of_space` is the number of the first trial of the present space.
    """
    lost = [str(trial.number) for trial in trials if trial.lost_results]
    if lost:
        its = f"trial{'s' * (len(lost) > 1)} {', '.join(lost)}"
        yield f"The last results of {its} are unsaved: no checkpoint was taken after them."
    if any(trial.parent is not None for trial in trials):
        yield "The iterations and steps of a child include those of its parent before the copy."
    if any(trial.number < first_of_space for trial in trials):
        yield f"{_EARLIER} marks trials from before the space changed."


def _best_row(
    trial: Trial, sweep: Sweep, several: bool, violates: bool, columns: Sequence[str]
) -> list[Markup | str]:
    """Return the cells of one trial in the table of the best.

    `several` adds the interval and number of seeds, `violates` the violated constraints; `columns`
    are the settings with a column of their own, empty if one column has all.
    """
    data = overview.row(trial, sweep.history)
    earlier = _EARLIER if trial.number < sweep.first_of_space else ""
    row: list[Markup | str] = [f"{trial.number}{earlier}", _status(trial.status)]
    row.append(formatting.number(data["score"]))
    if sweep.history.expectations.is_random:
        row.append(formatting.with_standard_error(data["expected"], data["expected_error"]))
    if several:
        found = interval(trial, sweep.spec.seed)
        ends = formatting.ABSENT if found is None else f"[{found.low:.4g}, {found.high:.4g}]"
        row += [tag("span", ends, class_="interval"), str(len(trial.compared_replicas))]
    row += [formatting.number(value) for value in data.get("objectives", {}).values()]
    row += [", ".join(data.get("violates", []))] * violates
    if columns:
        row += [
            cut(formatting.setting(trial.searched[name]), _LONGEST)
            if name in trial.searched
            else formatting.ABSENT
            for name in columns
        ]
    else:
        row.append(formatting.settings(trial.searched))
    return [*row, str(trial.iteration), formatting.count(data["steps"])]


def _status(status: Status) -> Markup:
    """Return a status in lower case and in its colour."""
    word = status.value.lower()
    return tag("span", word, class_=word)


def interval(trial: Trial, seed: int) -> Interval | None:
    """Return the 95 % interval of a trial's score over seeds.

    Returns None if fewer than two have scores, or if all scores are equal, as at the highest
    possible one: these do not show how much seeds differ, and an interval without a width would
    be a false promise. Seeds added later that are still catching up do not count. `seed` is for the
    bootstrap, which is used with the aggregates iqm and median; all others get Student's interval
    of the mean.
    """
    scores = [
        score for replica in trial.compared_replicas if (score := replica.score_at()) is not None
    ]
    aggregate = trial.objective.aggregate
    if len(set(scores)) < 2:
        return None
    if _is_of_the_mean(aggregate):
        return stats.mean_interval(scores)
    return stats.bootstrap_interval(sorted(scores), aggregate.centre, seed)


def _is_of_the_mean(aggregate: Aggregate) -> bool:
    """Return true for mean, worst and lower_bound, whose interval is Student's for the mean."""
    return aggregate.kind == "mean" or not aggregate.is_independent_of_count


def test_seeds(sweep: Sweep) -> Section | None:
    """Return the section with the best trials under test seeds; None without a final evaluation."""
    data = final_evaluation.report(sweep)
    if data is None:
        return None
    rows = []
    for row in data["trials"]:
        found = row["estimate"]
        has_ends = found is not None and found["low"] is not None
        ends = f"[{found['low']:.4g}, {found['high']:.4g}]" if has_ends else formatting.ABSENT
        value = formatting.number(found["value"]) if found else formatting.ABSENT
        numbers = [value, ends, str(len(row["scores"])), formatting.number(row["score"])]
        rows.append([str(row["trial"]), *numbers])
    heads = ["trial", data["estimates"], f"{LEVEL:.0%} interval", "seeds", "in the search"]
    body = [table(heads, rows, "nnwnn")]
    won = data["comparison"]
    if won is not None:
        text = (
            f"A run of trial {won['first']} beats one of trial {won['second']} with probability "
            f"{won['value']:.2f} [{won['low']:.2f}, {won['high']:.2f}]."
        )
        body.append(tag("p", text, class_="note"))
    note = "The best trials, trained again under seeds that no decision has seen."
    return Section("tested", "Under test seeds", note, body)


def search_space(sweep: Sweep, provenance: Mapping[str, Any]) -> Section:
    """Return the section with the space, the fixed settings and the versions.

    `provenance` is what the ledger recorded at the sweep's creation.
    """
    space = sweep.spec.space
    width = {name: parameter.describe() for name, parameter in space.parameters.items()}
    rows = [[name, text] for name, text in width.items()]
    body = [
        tag("p", f"{_date(one.time)}: {sentence(one.text)}", class_="note") for one in sweep.changes
    ]
    body.append(table(["setting", "what it may be"], rows, "wt"))
    if sweep.spec.config:
        fixed = "\n".join(formatting.yaml_lines(sweep.spec.config))
        body.append(_folded("Fixed settings", preformatted(fixed)))
    facts = {
        "created": _date(sweep.created_at),
        "stop": formatting.settings(sweep.spec.stop),
        "seed": str(sweep.spec.seed),
        "processor": provenance["processor"],
        **provenance["versions"],
    }
    its = [[name, str(value)] for name, value in facts.items() if value]
    body.append(_folded("Versions and provenance", table(["", ""], its, "wt")))
    return Section("space", "What was searched", "", body, "Space")


def _folded(title: str | Markup, *inner: Markup) -> Markup:
    """Return a ``details`` element: its title is visible, the rest opens with a click."""
    return tag("details", tag("summary", title), tag("div", *inner))


def _date(seconds: float) -> str:
    """Return a time in seconds since 1970 as local date and time."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


#: End of a slice → reason for which its time was lost.
_ENDS = {
    End.CRASHED: "the trainable raised",
    End.LOST: "the process died",
    End.DIVERGED: "the metric was not finite",
    End.LIMIT: "a limit was passed",
    End.UNSAVED: "no checkpoint was taken",
}


def time_use(data: Mapping[str, Any] | None) -> Section | None:
    """Return the section with bars for the use of the slots' time; None if no time was used.

    `data` is the result of `timeline.time_use`.
    """
    if data is None or not data["parts"]:
        return None
    bars = (("By what was done", data["parts"]), ("Training, by what became of it", data["fates"]))
    body = [part for title, its in bars if its for part in (tag("h3", title), *_bar(its))]
    whole = formatting.duration(sum(data["parts"].values()))
    note = f"The time of all slots together, {whole}; below it, that of training alone."
    return Section("time", "Where the time went", note, body, "Time")


#: Colours of parts with a meaning; others get theirs in turn.
_PAINTS = {
    "free slots": "faded",
    "COMPLETED": "good",
    "PRUNED": "faded",
    "FAILED": "bad",
    "STOPPED": "warn",
}


def _bar(parts: Mapping[str, float]) -> tuple[Markup, Markup]:
    """Return a bar whose parts have lengths in proportion to their seconds, and its legend."""
    whole = sum(parts.values())
    pieces, words = [], []
    for place, (name, seconds) in enumerate(parts.items()):
        paint = f"var(--{_PAINTS.get(name, f'c{place % 6}')})"
        pieces.append(tag("i", style=f"flex: {seconds / whole:.4f}; background: {paint}"))
        dot = tag("i", style=f"background: {paint}")
        share, lasting = f" {seconds / whole:.0%}", f" {formatting.duration(seconds)}"
        words.append(tag("span", dot, name.lower(), tag("b", share), lasting))
    return tag("div", pieces, class_="bar"), tag("div", words, class_="key")


def failures(sweep: Sweep) -> Section | None:
    """Return the section about failed trials and slices that ended badly.

    At most `FAILED` trials are shown with tracebacks, and 100 reasons why slices ended. Returns
    None if nothing failed.
    """
    failed = sweep.history.with_status(Status.FAILED)
    ends: dict[tuple[End, str], list[str]] = defaultdict(list)
    for record in sweep.records:
        event = record.event
        if isinstance(event, Closed) and event.end in _ENDS:
            ends[event.end, event.reason].append(replica_name(event.trial, event.replica))
    if not failed and not ends:
        return None
    rows: list[list[Markup | str]] = [
        [_ENDS[end], reason, str(len(its)), _list_some(its)] for (end, reason), its in ends.items()
    ]
    body = [table(["what", "reason", "slices", "trials"], rows[:100], "wtnt")] if rows else []
    for trial in failed[:FAILED]:
        title = f"trial {trial.number}, iteration {trial.iteration}: {trial.reason}"
        body.append(_folded(title, preformatted(trial.deciding_replica.error)))
    count = formatting.plural(len(failed), "trial")
    shown = f", {FAILED} are shown" if len(failed) > FAILED else ""
    note = (
        f"{count} failed{shown}; other slices that ended badly were tried again, or ended a trial."
    )
    return Section("failures", "Failures", note, body)


def _list_some(names: Sequence[str]) -> str:
    """Return the first 12 different names as a text, and the number of the others."""
    found = list(dict.fromkeys(names))
    return ", ".join(found[:12]) + (f" and {len(found) - 12} more" if len(found) > 12 else "")


def decisions(sweep: Sweep) -> Section | None:
    """Return the section that explains the state of the best and the failed trials.

    These are at most `SHOWN` of either; in a sweep of up to three times as many trials it has all.
    Returns None before the first trial.
    """
    history = sweep.history
    if not history.trials:
        return None
    shown = [*history.ranked()[:SHOWN], *history.with_status(Status.FAILED)[:SHOWN]]
    if len(history.trials) <= 3 * SHOWN:
        shown = [*history.ranked(), *(t for t in history.trials if t.score is None)]
    by_trial: dict[int, list[Recorded]] = defaultdict(list)
    wanted = {trial.number for trial in shown}
    for record in sweep.records:
        if isinstance(record.event, OfTrials) and record.event.trial in wanted:
            by_trial[record.event.trial].append(record)
    body = []
    for trial in {trial.number: trial for trial in shown}.values():
        own = replace(sweep, records=tuple(by_trial[trial.number]))
        body.append(_trial_decisions(trial, explanation.steps(own, trial)))
    rest = len(history.trials) - len(body)
    note = "Each decision with the numbers that were compared. " + (
        f"Of the {rest} other trials `sweep explain {sweep.folder.in_commands} TRIAL` says more."
        if rest
        else ""
    )
    return Section("why", "Why each trial is where it is", note, body, "Why")


def _trial_decisions(trial: Trial, steps: Iterable[Mapping[str, Any]]) -> Markup:
    """Return the decisions about one trial, as an element that opens with a click.

    `steps` are the results of `explanation.steps`.
    """
    title = tag(
        "span",
        f"trial {trial.number} ",
        _status(trial.status),
        tag("small", f"  {formatting.number(trial.score)} · {trial.reason}"),
    )
    settings = tag("p", formatting.settings(trial.searched), class_="note")
    return _folded(title, settings, tag("ol", map(_step, steps), class_="steps"))


def _step(step: Mapping[str, Any]) -> Markup:
    """Return one decision of `explanation.steps`, with its reason and tables, as a list item."""
    when = time.strftime("%H:%M:%S", time.localtime(step["at"]))
    numbers = [
        table(
            one["columns"],
            [[_cell(cell) for cell in row] for row in one["rows"]],
            "n" * len(one["columns"]),
        )
        for one in step["tables"]
    ]
    return tag("li", tag("b", step["what"]), f" · {when}", tag("p", step["why"]), numbers)


def _cell(value: Any) -> str:
    """Return a value as the text of a table's cell; floats and None as `formatting.number` does."""
    if value is None or isinstance(value, float):
        return formatting.number(value)
    return str(value)


def navigation(sections: Iterable[Section]) -> Markup:
    """Return the list of contents, a link to each section."""
    links = [tag("a", one.short or one.title, href=f"#{one.id}") for one in sections]
    return tag("nav", tag("div", links))


def render(section: Section) -> Markup:
    """Return a section as HTML; text between backquotes in its note is set as code."""
    pieces = section.note.split("`")
    words = (
        tag("code", piece) if place % 2 else escape(piece) for place, piece in enumerate(pieces)
    )
    note = tag("p", words, class_="note") if section.note else None
    return tag("section", tag("h2", section.title), note, section.body, id=section.id)

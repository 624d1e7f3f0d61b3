"""Render one trial as text, for `sweep best`, `show`, `explain`, `play` and `export-model`."""

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from sweep.cli.tables import (
    Column,
    Data,
    Table,
    change_lines,
    front_line,
    section,
    status_text,
    table,
)
from sweep.core.stats import LEVEL
from sweep.history.events import AT_GOAL
from sweep.history.fronts import front_text
from sweep.history.seeds import is_test, replica_name
from sweep.ledger.folder import root_option
from sweep.views import formatting
from trainables.errors import printable


def final_evaluation_remarks(data: Data) -> Iterator[str]:
    """Yield lines on the expected score, the seeds and the final evaluation of the best trial.

    `data` is that of `overview.best`. Without a final evaluation, the last line may say that there
    is no luck in scores, or name the command that tests a trial with one seed.
    """
    several = [formatting.number(score) for score in data["scores"]]
    yield from _pick_lines(data)
    if len(several) > 1:
        how = data["aggregate"] if isinstance(data["aggregate"], str) else "lower bound"
        yield f"{how} of {len(several)} seeds: {', '.join(several)}"
    if data["final_evaluation"] is not None:
        yield from _final_evaluation(data, data["final_evaluation"])
    elif not data["is_random"]:
        yield "no trial drew a random number or read its seed, so scores contain no luck"
    elif len(several) == 1 and data["scored"] > 1:
        again = f"{_command(data)} --test-seeds 10"
        yield f"the best trial has one seed; {again} retrains it with new seeds"


def _pick_lines(data: Data) -> Iterator[str]:
    """Yield a line on the expected score and the part of luck, and one on the runner-up.

    `data` is that of `overview.best`. Nothing is yielded if `data` does not say how certain the
    best trial is.
    """
    pick = data["pick"]
    if pick is None:
        return
    score, luck = formatting.number(data["score"]), pick["luck"]
    expected = formatting.with_standard_error(data["expected"], data["expected_error"])
    how = "better by luck" if luck > 0 else "worse by bad luck"
    said = f"its score of {score} is {abs(luck):.3g} {how}"
    yield f"expected on a new seed: {expected}; {said if luck else f'as its score, {score}'}"
    second = pick["runner_up"]
    if second is None:
        return
    answers = {None: "20 more seeds of both would not tell them apart", 0: "they are told apart"}
    more_seeds = second["more_seeds"]
    seeds = f"{formatting.plural(more_seeds or 0, 'more seed')} of both would tell them apart"
    estimate = formatting.with_standard_error(second["expected"], second["expected_error"])
    equals = second["equals"]
    which = f"first of {equals} that are expected to score as much, " if equals > 1 else "expected "
    yield (
        f"runner-up: trial {second['trial']}, {which}{estimate}; best of all with "
        f"probability {chance_text(pick['chance'])} against {chance_text(second['chance'])}; "
        f"{answers.get(more_seeds, seeds)}"
    )


def chance_text(probability: float) -> str:
    """Return a probability, 0 to 1, with two digits; one below 0.005 as "less than 0.01"."""
    return f"{probability:.2f}" if probability >= 0.005 else "less than 0.01"


def _final_evaluation(data: Data, final_evaluation: Data) -> Iterator[str]:
    """Yield lines about the scores with test seeds, and the comparison of the two best trials.

    If tests are missing, the last line has the command that continues.
    """
    yield f"under test seeds ({final_evaluation['estimates']}, {LEVEL:.0%} interval):"
    for tested in final_evaluation["trials"]:
        yield "  " + _test_line(tested)
    found = final_evaluation["comparison"]
    if found is not None:
        yield (
            f"a run of trial {found['first']} beats one of trial {found['second']} with "
            f"probability {found['value']:.2f} [{found['low']:.2f}, {found['high']:.2f}]"
        )
    done, wanted = final_evaluation["done"], final_evaluation["wanted"]
    if done < wanted:
        options = f"--test-seeds {final_evaluation['seeds']} --top {len(final_evaluation['asked'])}"
        yield f"{done} of {wanted} tests have ended; continue with: {_command(data)} {options}"


def _command(data: Data) -> str:
    """Return the command ``sweep best NAME`` of the sweep, with ``--root`` if necessary."""
    return f"sweep best {printable(data['name'])}{root_option(data['root'])}"


def _test_line(tested: Data) -> str:
    """Return the line about one tested trial: its interval over test seeds and its score before.

    `tested` is one of the ``trials`` of `final_evaluation.report`. With fewer than two scores, the
    line has the only one, or says that there is none.
    """
    estimate, ended, missing = tested["estimate"], tested["ended"], tested["without_score"]
    if estimate is None:
        none = "no score" if ended else "no score yet"
        result = ", ".join(formatting.number(score) for score in tested["scores"]) or none
    elif estimate["low"] is None:
        result = f"{formatting.number(estimate['value'])} under each"
    else:
        low, high = (formatting.number(estimate[end]) for end in ("low", "high"))
        result = f"{formatting.number(estimate['value'])} [{low}, {high}]"
    without = f", {missing} of {ended} without a score" if missing else ""
    return (
        f"trial {tested['trial']}: {result} of {formatting.plural(len(tested['scores']), 'seed')}"
        f"{without}; {formatting.number(tested['score'])} in the search"
    )


def best(data: Data) -> str:
    """Render `sweep best`: facts as comments, then all settings as the YAML key ``config``.

    `data` is that of `overview.best`.
    """
    facts = (
        f"trial {data['trial']} of {printable(data['name'])}: {printable(data['metric'])} "
        f"{formatting.number(data['score'])} after "
        f"{formatting.plural(data['iterations'], 'iteration')}, {data['status'].lower()}"
    )
    saved = data["checkpoint"]
    checkpoint = "no checkpoint"
    if saved is not None:
        value = ""
        if saved["value"] is not None:
            value = f", {printable(data['metric'])} {formatting.number(saved['value'])}"
        checkpoint = (
            f"checkpoint of iteration {saved['iteration']}{value}: {saved['file']} "
            f"({saved['size']:,} bytes)"
        )
    others = [
        f"# {printable(k)} {formatting.number(v)}" for k, v in data.get("objectives", {}).items()
    ]
    others += [f"# violates the constraint on {printable(p)}" for p in data.get("violates", [])]
    others += [f"# {line.plain}" for line in front_line(data["front"])]
    remarks = [f"# {remark}" for remark in final_evaluation_remarks(data)]
    config = ["config:", *formatting.yaml_lines(data["config"], 2)]
    lines = [f"# {facts}", *others, f"# {checkpoint}", *remarks, *config]
    return "\n".join(lines)


def show(data: Data) -> RenderableType:
    """Render `sweep show`: score, settings, seeds, curve, checkpoints, decisions and error.

    `data` is that of `overview.show`. Parts without content are left out, and so are the seeds if
    there is only one.
    """
    score = f"{printable(data['metric'])} {formatting.number(data['score'])} ({data['mode']})"
    steps = "" if data["steps"] is None else f", {formatting.count(data['steps'])} steps"
    if data["own_steps"] != data["steps"]:
        steps += f", {formatting.count(data['own_steps'])} of them its own"
    facts = [
        f"{score} after {iterations_text(data)}{steps}",
        *(f"{printable(k)} {formatting.number(v)}" for k, v in data.get("objectives", {}).items()),
        *map(_constraint_line, data["constraints"]),
        printable(data["reason"]),
        formatting.describe_lost_results(data["unsaved"]),
        _exactness_line(data["exactness"]) if data["exactness"] else "",
    ]
    shown: list[RenderableType] = [_title(data), *(Text(fact) for fact in facts if fact)]
    shown += change_lines(data["changes"])
    shown += section("settings", formatting.yaml_lines(data["settings"]))
    if len(data["seeds"]) > 1:
        shown += [Text(), Text("seeds", style="bold"), _seeds(data["seeds"])]
    shown += _curve_lines(data)
    if data["checkpoints"]:
        names = {seed["seed_index"]: seed["name"] for seed in data["seeds"]}
        made = _checkpoints(data["checkpoints"], names)
        shown += [Text(), Text("checkpoints", style="bold"), made]
    if data["decisions"]:
        shown += [Text(), Text("what happened", style="bold"), _decisions(data["decisions"])]
    shown += section("newest error", data["error"].rstrip().splitlines())
    return Group(*shown)


def iterations_text(data: Data) -> str:
    """Return a trial's iterations in words; if its seeds differ, as ``22 to 32 iterations``."""
    counts = [seed["iterations"] for seed in data["seeds"] if not is_test(seed["seed_index"])]
    least, most = min(counts), max(counts)
    if least == most or data["own_steps"] != data["steps"]:
        return formatting.plural(data["iterations"], "iteration")
    return f"{least} to {most} iterations"


def _constraint_line(constraint: Data) -> str:
    """Return a line about one of the ``constraints`` of `overview.show`."""
    value = formatting.number(constraint["value"])
    line = f"{printable(constraint['path'])} {value}, limit {constraint['limit']}"
    return f"{line}, violated" if constraint["violated"] else line


def _exactness_line(exactness: str) -> str:
    """Return a line about the exactness with which a trial continues from a checkpoint.

    "A exact state" is shown as "exact state (level A)", words without a level as they are.
    """
    level, _, said = printable(exactness).partition(" ")
    said = f"{said} (level {level})" if len(level) == 1 else printable(exactness)
    return f"exactness of checkpoints: {said}"


def _title(data: Data) -> Text:
    """Return the line with the trial's number, its sweep and its status."""
    name = f" of {printable(data['name'])}  "
    return Text.assemble((f"trial {data['trial']}", "bold"), name, status_text(data["status"]))


def _curve_lines(data: Data) -> list[RenderableType]:
    """Render a trial's curve as a sparkline; with several seeds, the band of their curves.

    The list is empty if the curve has no values.
    """
    if data["band"]:
        return _band_lines(data)
    values = [point["value"] for point in data["curve"] if point["value"] is not None]
    if not values:
        return []
    ends = f"first {formatting.number(values[0])}, last {formatting.number(values[-1])}, "
    extremes = f"least {formatting.number(min(values))}, greatest {formatting.number(max(values))}"
    title = f"{printable(data['metric'])}, {formatting.plural(len(values), 'value')}"
    return section(title, [formatting.sparkline(values), ends + extremes])


def _band_lines(data: Data) -> list[RenderableType]:
    """Render greatest, mean and least of the seeds' curves as three sparklines."""
    rows: list[Data] = data["band"]
    ends = min(row["least"] for row in rows), max(row["greatest"] for row in rows)
    seeds, last = formatting.plural(len(data["scores"]), "seed"), rows[-1]
    title = f"{printable(data['metric'])} of {seeds}, {formatting.plural(len(rows), 'value')}"
    lines = [
        f"{name:<8}  {formatting.sparkline([row[name] for row in rows], 60, ends)}  "
        f"{formatting.number(last[name])}"
        for name in ("greatest", "mean", "least")
    ]
    return section(title, lines)


def _checkpoints(rows: Sequence[Data], names: Mapping[int, str]) -> Table:
    """Return the table of a trial's checkpoints, `rows` of `overview.checkpoint`.

    It has iteration, metric, bytes, and the first 16 digits of the SHA-256; with several seeds also
    the trial's name with the seed, which `names` maps from the seed's index.
    """
    several: Column = ("  trial", "r", lambda row: names[row["seed_index"]])
    return table(
        rows,
        *[several] * (len(names) > 1),
        ("iter" if len(names) > 1 else "  iter", "r", lambda row: str(row["iteration"])),
        ("value", "r", lambda row: formatting.number(row["value"])),
        ("bytes", "r", lambda row: formatting.count(row["size"])),
        ("SHA-256", "cut", lambda row: row["digest"][:16]),
    )


def _seeds(rows: Sequence[Data]) -> Table:
    """Return the table of a trial's replicas, one for each seed."""
    return table(
        rows,
        ("  trial", "r", lambda row: row["name"]),
        ("status", "l", lambda row: status_text(row["status"])),
        ("score", "r", lambda row: formatting.number(row["score"])),
        ("iter", "r", lambda row: str(row["iterations"])),
        ("seed", "cut", lambda row: str(row["seed"])),
    )


def _decisions(rows: Sequence[Data]) -> Table:
    """Return the table of decisions about a trial, with their reasons."""
    return table(
        rows,
        ("", "l", lambda row: f"  {_moment(row['at'])}"),
        ("", "wrap", lambda row: row["what"].lower()),
        ("", "wrap", lambda row: printable(row["why"])),
        head=False,
    )


def _moment(seconds: float) -> str:
    """Return a time in seconds since 1970 as local date and time, without the year."""
    return time.strftime("%m-%d %H:%M:%S", time.localtime(seconds))


def played_text(data: Data) -> str:
    """Render `sweep play`: mean return with its interval, extremes, and the videos' folder.

    `data` is that of `trained.play`. The interval and the folder are left out if they are None.
    """
    rewards = [one["episode_reward"] for one in data["episodes"]]
    lengths = sum(one["episode_len"] for one in data["episodes"]) / len(rewards)
    interval = ""
    if data["low"] is not None:
        low, high = (formatting.number(data[end]) for end in ("low", "high"))
        interval = f" [{low}, {high}] ({LEVEL:.0%} interval)"
    lines = [
        f"trial {data['trial']} of {printable(data['name'])}, iteration {data['iteration']}, "
        f"{formatting.plural(len(rewards), 'episode')} from seed {data['seed']}",
        f"mean return {formatting.number(data['mean'])}{interval}, "
        f"least {formatting.number(min(rewards))}, greatest {formatting.number(max(rewards))}, "
        f"mean length {formatting.number(lengths)}",
    ]
    if data["video"] is not None:
        lines.append(f"videos in {printable(data['video'])}")
    return "\n".join(lines)


def log(data: Data) -> str:
    """Render `sweep show --log`, the end of what the trial printed, or that it printed nothing."""
    lines = [printable(line) for line in data["log"].rstrip().splitlines()]
    return "\n".join(lines) or "it printed nothing"


def card(data: Data) -> str:
    """Render `sweep export-model`: the trial, its score, and the files that were written.

    `data` is the model's card with ``out``, the folder. If that is None, the files were only
    registered and are not listed; ``registered`` is the model's URI in MLflow.
    """
    score = f"{printable(data['metric'])} {formatting.number(data['checkpoint']['value'])}"
    folder = None if data["out"] is None else printable(data["out"])
    files = [
        f"{printable(file) if name == file else name:<12} {folder}/{printable(file)}"
        for name, file in data["files"].items()
    ]
    lines = [
        f"trial {replica_name(data['trial'], data['seed_index'])} of "
        f"{printable(data['sweep'])}, {score}, iteration {data['checkpoint']['iteration']}",
        *formatting.describe_play(data["played"]),
        *([] if folder is None else [*files, f"{'card':<12} {folder}/card.md"]),
        *([f"{'model':<12} {printable(data['registered'])}"] if "registered" in data else []),
    ]
    return "\n".join(lines)


def explanation(data: Data) -> RenderableType:
    """Render `sweep explain`: the decisions in order, each with time, reason and its tables.

    `data` is that of `explanation.explain`. Single values of decisions are not shown; of several
    comparisons by a pruner in a row that changed nothing, only the last one is. The last part is
    the trial's present place at its highest rung, if it has one.
    """
    wanted = {data["metric"]: data["mode"], **data["objectives"]}
    aims = ", ".join(f"{mode} of {name}" for name, mode in wanted.items())
    aim = f"{aims}; {data['scheduler']} counts {data['time_attr']}"
    shown: list[RenderableType] = [_title(data), Text(printable(aim))]
    if data["children"]:
        shown.append(Text(f"children: {', '.join(map(str, data['children']))}"))
    for step in _without_repetitions(data["decisions"]):
        shown += [Text(), Text(f"{_moment(step['at'])}  {step['what']}", style="bold")]
        shown.append(Padding(Text(printable(step["why"])), (0, 0, 0, 2)))
        shown += [Padding(_numbers_table(numbers), (0, 0, 0, 4)) for numbers in step["tables"]]
    if data["stands"] is not None:
        facts = data["stands"]["facts"]
        rung = f"{data['time_attr']} {facts['rung']:g}"
        where = f"now: place {facts['place']} of {facts['of']} trials that reached {rung}"
        shown += [Text(), Text(printable(f"{where}{_front_text(facts)}"), style="bold")]
        if data["stands"]["interpolated"]:
            said = f"scores at {rung}, interpolated where a trial reported before and after it"
            shown.append(Padding(Text(printable(said)), (0, 0, 0, 2)))
        shown += [Padding(_numbers_table(t), (0, 0, 0, 4)) for t in data["stands"]["tables"]]
    return Group(*shown)


def _without_repetitions(decisions: Sequence[Data]) -> Iterator[Data]:
    """Yield the decisions about a trial, with one for several comparisons by a pruner in a row.

    A pruner may compare a trial after each iteration, so of comparisons after which the trial
    continued only the last is yielded; its ``what`` says how many there were. Pauses for a
    comparison are left out.
    """
    following = [*decisions[1:], {"facts": {}}]
    kept = [
        step
        for step, after in zip(decisions, following, strict=True)
        if step["why"] != AT_GOAL or "pruner" not in after["facts"]
    ]
    for unchanged, steps in itertools.groupby(kept, _changes_nothing):
        several = list(steps)
        if unchanged and len(several) > 1:
            counted = f"after each of {len(several)} comparisons (--json shows all)"
            several = [{**several[-1], "what": f"{several[-1]['what']} {counted}"}]
        yield from several


def _changes_nothing(step: Data) -> bool:
    """Return whether a decision is a pruner's, after which the trial continued."""
    return "pruner" in step["facts"] and step["why"].startswith("continues")


def _front_text(facts: Data) -> str:
    """Return words for a trial's Pareto front at a rung, and how many trials continue there.

    `facts` is the evidence of its rank (`explanation.explain`). It is empty if neither is known.
    """
    front, text = facts.get("front"), ""
    if front is not None:
        text = f", on {front_text(front, facts['of_fronts'])}"
    elif "of_fronts" in facts:
        text = ", behind all fronts"
    if "promoted" in facts:
        count = facts["promoted"]
        text += f"; the best {count} continue" if count != 1 else "; the best one continues"
    return text


#: Name of a list in a decision's evidence → title of its column.
_HEADINGS = {
    "places": "place",
    "trials": "trial",
    "fronts": "front",
    "scores": "score",
    "steps": "step",
    "values": "value",
}


def _numbers_table(data: Data) -> RenderableType:
    """Return the table of numbers in a decision's evidence: `data` has ``columns`` and ``rows``."""
    columns: list[Column] = [
        (_heading(name), "r", partial(_cell, place)) for place, name in enumerate(data["columns"])
    ]
    return table(data["rows"], *columns)


def _heading(name: str) -> str:
    """Return the title of a column in a decision's evidence, such as ``score`` for ``scores``."""
    return _HEADINGS.get(name, printable(name.removeprefix("objectives/")))


def _cell(place: int, row: Sequence[Any]) -> str:
    """Return the value in column `place` (from 0) of a row as text; `ABSENT` for None."""
    value = row[place]
    if value is None or isinstance(value, float):
        return formatting.number(value)
    return printable(str(value))

"""The page docs/search.md and its picture, from the figures of ``results.json`` alone."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.search.figures import (
    BASELINE,
    CLAIMS_FROM,
    REACHED_AT,
    SHOWN,
    Figures,
    is_ours,
)

RESULTS = Path(__file__).with_name("results.json")
PAGE = Path(__file__).parents[2] / "docs" / "search.md"
#: Plays from which on an interval says something.
LEAST_PLAYS = 10


def write(figures: Figures, results: Path, page: Path) -> None:
    """Keep the figures, and make the page and its picture anew."""
    results.write_text(_compact(figures), encoding="utf-8")
    page.write_text(text(figures), encoding="utf-8")
    draw(figures, page.with_suffix(".svg"))


def _compact(figures: Figures) -> str:
    """JSON with a line for each game."""
    games = ",\n".join(json.dumps(game) for game in figures["games"])
    rest = {key: value for key, value in figures.items() if key != "games"}
    return f'{json.dumps(rest)[:-1]}, "games": [\n{games}\n]}}\n'


def read(results: Path = RESULTS) -> dict[str, Any]:
    """The figures of the last run."""
    found: dict[str, Any] = json.loads(results.read_text("utf-8"))
    return found


def text(figures: Figures) -> str:
    """The whole page."""
    return "\n".join(_page(figures)) + "\n"


def _page(figures: Figures) -> Iterator[str]:
    games: Sequence[Figures] = [game for game in figures["games"] if game["methods"]]
    yield from _OPENING.format(peers=_peers(figures), plays=_plays(games)).splitlines()
    yield from ("", "## Won and lost", "", *_VERDICTS.splitlines(), "")
    yield from _verdicts(games)
    for workers in sorted({game["workers"] for game in games}):
        its = _with(games, workers)
        yield from ("", f"## With {_workers(workers)}", "", "Regret, mean over the games:", "")
        yield from _mean_regrets(its, figures["looks"])
        yield from ("", *_CLAIMS.splitlines(), "")
        yield from _by_game(its, _excess)
        if any("within" in found for game in its for found in game["methods"].values()):
            yield from ("", *_WITHIN.splitlines(), "")
            yield from _by_game(its, _within)
        yield from ("", *_REACHED.splitlines(), "")
        yield from _by_game(its, _reached)
    yield from _ended(games)
    yield from ("", "## Every game, with one worker", "")
    for game in games:
        if game["workers"] == 1:
            yield from _regrets(game, figures["looks"])


def _ended(games: Sequence[Figures]) -> Iterator[str]:
    """Searches that end themselves, beside the same ones that go on."""
    rows = [(game, *one) for game in games for one in game.get("settled", {}).items()]
    if not rows:
        return
    yield from ("", "## Searches that end themselves", "", *_SETTLED.splitlines(), "")
    yield "| game | workers | method | steps saved | regret added |"
    yield "| --- | --- | --- | --- | --- |"
    for game, method, (saved, more) in rows:
        where = f"{game['game']} | {game['workers']}"
        yield f"| {where} | **{method}** | {saved:.0%} | {more:+.1f} |"
    saved, more = np.mean([found for _, _, found in rows], axis=0)
    yield f"| mean | | | {saved:.0%} | {more:+.1f} |"


def _peers(figures: Figures) -> str:
    return ", ".join(figures["peers"]) or "none"


def _plays(games: Sequence[Figures]) -> str:
    counts = sorted({game["plays"] for game in games}) or [0]
    shown = " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
    return f"{shown} play{'s' * (counts[-1] != 1)}"


def _with(games: Sequence[Figures], workers: int) -> list[Figures]:
    return [game for game in games if game["workers"] == workers]


def _workers(workers: int) -> str:
    return "one worker" if workers == 1 else f"{workers} workers"


def _methods(game: Figures) -> list[str]:
    """Ours first, each in the order of its name."""
    return sorted(game["methods"], key=lambda method: (not is_ours(method), method))


def _bold(method: str) -> str:
    return f"**{method}**" if is_ours(method) else method


def _looked(figures: Figures, looks: Sequence[float]) -> list[int]:
    """Places of the looks that the page shows, as far as a game was played."""
    width = len(next(iter(figures["methods"].values()))["regret"][0])
    return [place for place, look in enumerate(looks[:width]) if look in SHOWN]


def _regrets(game: Figures, looks: Sequence[float]) -> Iterator[str]:
    places = _looked(game, looks)
    steps = f"{game['steps']:,} steps a training"
    yield f"**{game['game']}** ({game['table']}), {steps}, {_plays([game])}:"
    yield ""
    yield "| | " + " | ".join(f"{looks[place]:.0f}" for place in places) + " |"
    yield "| --- |" + " --- |" * len(places)
    for method in _methods(game):
        middle, low, high = game["methods"][method]["regret"]
        cells = [f"{middle[p]:.0f} ({low[p]:.0f} to {high[p]:.0f})" for p in places]
        yield f"| {_bold(method)} | " + " | ".join(cells) + " |"
    yield ""


def _mean_regrets(games: Sequence[Figures], looks: Sequence[float]) -> Iterator[str]:
    """One line for each method: the mean of the medians of those games that all have played."""
    means = _means(games)
    width = min((len(values) for values in means.values()), default=0)
    places = [place for place, look in enumerate(looks[:width]) if look in SHOWN]
    yield "| | " + " | ".join(f"{looks[place]:.0f}" for place in places) + " |"
    yield "| --- |" + " --- |" * len(places)
    for method, values in means.items():
        yield f"| {_bold(method)} | " + " | ".join(f"{values[p]:.0f}" for p in places) + " |"


def _by_game(games: Sequence[Figures], cell: Any) -> Iterator[str]:
    yield "| | " + " | ".join(game["game"] for game in games) + " |"
    yield "| --- |" + " --- |" * len(games)
    names = dict.fromkeys(method for game in games for method in _methods(game))
    for method in sorted(names, key=lambda method: (not is_ours(method), method)):
        its = [game["methods"].get(method) for game in games]
        yield f"| {_bold(method)} | " + " | ".join(cell(one) for one in its) + " |"


def _excess(found: Figures | None) -> str:
    excess = found["excess"] if found else []
    shown = [excess[place] for place in (16, len(excess) - 1) if 0 <= place < len(excess)]
    return ", ".join("-" if value is None else f"{value:+.0f}" for value in dict.fromkeys(shown))


def _within(found: Figures | None) -> str:
    if not found or "within" not in found:
        return "-"
    one, two, _ = found["within"]
    return f"{one:.0%}, {two:.0%}"


def _reached(found: Figures | None) -> str:
    if not found or "reached" not in found:
        return "-"
    middle, low, high = ("never" if n is None else f"{n:.3g}" for n in found["reached"])
    return f"{middle} ({low} to {high})"


def _verdicts(games: Sequence[Figures]) -> Iterator[str]:
    yield "| game | workers | ours | the best peer | at the end, ours less the peer's | |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for game in games:
        for method, (peer, middle, low, high) in game["beside"].items():
            verdict = "**lost**" if low > 0 else "**won**" if high < 0 else "even"
            if game["plays"] < LEAST_PLAYS:
                verdict = "too few plays"
            difference = f"{middle:+.1f} ({low:+.1f} to {high:+.1f})"
            yield (
                f"| {game['game']} | {game['workers']} | **{method}** | {peer} | "
                f"{difference} | {verdict} |"
            )


def draw(figures: Figures, picture: Path) -> None:
    """Regret against trainings, mean over games; one panel for each number of workers."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    games = [game for game in figures["games"] if game["methods"]]
    panels = sorted({game["workers"] for game in games}) or [1]
    with mpl.rc_context({"svg.hashsalt": "search", "svg.fonttype": "none"}):
        size = (5.5 * len(panels), 4.5)
        figure, axes = pyplot.subplots(1, len(panels), sharey=True, figsize=size, squeeze=False)
        for axis, workers in zip(axes[0], panels, strict=True):
            for method, values in _means(_with(games, workers)).items():
                looks = figures["looks"][: len(values)]
                width, dashes = (2.2, "-") if is_ours(method) else (1.2, "--")
                axis.plot(looks, values, dashes, linewidth=width, label=method)
            axis.set_xscale("log", base=2)
            axis.set_xticks(SHOWN, [str(look) for look in SHOWN])
            axis.set_xlabel(f"full trainings, {_workers(workers)}")
            axis.grid(alpha=0.3)
        axes[0][0].set_ylabel("regret on unseen seeds, % (mean over games)")
        axes[0][-1].legend(fontsize=7)
        figure.tight_layout()
        figure.savefig(picture, format="svg", metadata={"Date": None})
        pyplot.close(figure)


def _means(games: Sequence[Figures]) -> Mapping[str, list[float]]:
    """Method → mean over the games that every method has played, by look; ours first."""
    names = dict.fromkeys(method for game in games for method in _methods(game))
    shared = [game for game in games if all(name in game["methods"] for name in names)]
    found = {}
    for name in names:
        lines = [game["methods"][name]["regret"][0] for game in shared]
        width = min((len(line) for line in lines), default=0)
        if width:
            found[name] = [float(mean) for mean in np.mean([line[:width] for line in lines], 0)]
    return found


_OPENING = """# Searches beside their peers

The settings that a search recommends after so much training, and what they are worth on seeds that
it has never seen. Names in bold are ours. Peers here: {peers}. Made by

    python -m benchmarks.search --table curves.npz --tables FOLDER

![Regret against trainings, mean over games](search.svg)

**Games** are tables of learning curves, settings x seeds x points, played as if each look cost its
training (`benchmarks/search/game.py` says what a file holds; `--table` plays any such file, and
`python -m benchmarks.search.trained` makes ones of our own trainers). Each play splits the seeds of
every setting anew: one half is what the search sees, the other half judges. {plays} of every
game, the same splits for all methods; medians, with 95 % bootstrap intervals.

**Ours** are whole sweeps: the driver with its scheduler, searcher and pick, on the [simulated
pool](testing-schedulers.md). Peers are asked and told by their own interfaces, and recommend what
they themselves name as the best (`study.best_trial`, `get_best_result`, `best_config`, the
incumbent). Where a peer cannot be given several seeds, a variant of it is told means of three.

**Settings between the rows** of a table are answered by the nearest row, for every method alike:
these are real curves with real noise, where a model of the table would favour searchers that think
as it does. A trial has a seed of its own, so a row that is proposed again shows another one.

**Regret** is the best setting's worth less that of the recommended one on unseen seeds, in per cent
of the way from a poor setting (of ten, one is worse) to the best. The unit of training is one full
training of one setting under one seed."""
_VERDICTS = """Ours less the peer with the least median regret after all trainings, chosen when all
had played; play by play, the median difference in regret. Less is better; the word says where the
interval leaves zero out."""
_SETTLED = """With `budget: {settled: 0.02}` a sweep ends when as much training again is expected to
improve the pick by less than that share of its range. Steps saved of all that the same search takes
without that budget, and the regret that it has then less that of the other after all trainings;
means over the plays:"""
_CLAIMS = """Claimed less true: the score that the search names for the recommended setting less
its worth on unseen seeds, in per cent of the same scale, after 16 trainings and after all. What is
above zero was luck:"""
_WITHIN = f"""Claims with an error: how many are within one and within two standard errors of the
worth on unseen seeds, from {CLAIMS_FROM} trainings on. The error is that of the claim and that of
the worth, a mean of few seeds, together; of a normal error it is 68 % and 95 %:"""
_REACHED = f"""Full trainings until a method has, and keeps, the regret that {BASELINE} has after
{REACHED_AT}, each of them as many environment steps as is said of the game below (*never*: not
within what was played):"""

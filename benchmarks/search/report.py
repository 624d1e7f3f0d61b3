"""The page docs/search.md and its picture, from the figures of ``results.json`` alone."""

import json
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.search.figures import (
    BASELINE,
    CLAIMS_FROM,
    MAIN,
    REACHED_AT,
    SHOWN,
    Array,
    Figures,
    is_ours,
)

RESULTS = Path(__file__).with_name("results.json")
PAGE = Path(__file__).parents[2] / "docs" / "search.md"
#: Folder of tables of our own trainers, on which every method is played.
OWN_TABLES = Path(__file__).with_name("tables")
#: Number of plays from which on the page states a verdict.
LEAST_PLAYS = 10
#: Number of games from which on a file of tables is a collection with its own regrets.
COLLECTION = 4
#: Stem of a file → its name on the page; "" stands for files with fewer games.
COLLECTIONS = {
    "": "sweep's own tables",
    "curves": "`curves.npz` (PPO)",
    "landscapes": "ARLBench (`landscapes.npz`, Becktepe et al. 2024)",
}


def write(figures: Figures, results: Path, page: Path) -> None:
    """Write the figures, the page and its picture."""
    results.write_text(_compact(figures), encoding="utf-8")
    page.write_text(text(figures), encoding="utf-8")
    draw(figures, page.with_suffix(".svg"))


def _compact(figures: Figures) -> str:
    """Return the figures as JSON, with a line for each game."""
    games = ",\n".join(json.dumps(game) for game in figures["games"])
    rest = {key: value for key, value in figures.items() if key != "games"}
    return f'{json.dumps(rest)[:-1]}, "games": [\n{games}\n]}}\n'


def read(results: Path = RESULTS) -> dict[str, Any]:
    """Return the figures of the last run."""
    figures: dict[str, Any] = json.loads(results.read_text("utf-8"))
    return figures


def text(figures: Figures) -> str:
    """Return the whole page."""
    return "\n".join(_page(figures)) + "\n"


def _page(figures: Figures) -> Iterator[str]:
    """Yield the lines of the page: the answer first, how it was measured last."""
    games: Sequence[Figures] = [game for game in figures["games"] if game["methods"]]
    yield from ("# Searches compared with other tools", "", *_answer(games, figures["looks"]), "")
    yield from textwrap.wrap(_OPENING.format(plays=_counts(games)), 100, break_on_hyphens=False)
    yield from ("", *_COMMAND.splitlines())
    yield from ("", "## Regret", "", *_REGRETS.splitlines())
    for workers in sorted({game["workers"] for game in games}):
        its = _with(games, workers)
        yield from ("", f"With {_workers(workers)}:", "")
        yield from _all_regrets(its, figures["looks"])
        yield from _by_collection(its, figures["looks"])
        yield from ("", *_REACHED.splitlines(), "")
        yield from _by_game(its, _reached)
    verdicts = _VERDICTS.format(least=LEAST_PLAYS)
    yield from ("", "## Compared with the best peer", "", *verdicts.splitlines(), "")
    yield from _verdicts(games)
    yield from ("", "## Reported scores", "", *_CLAIMS.splitlines(), "")
    its = _with(games, min((game["workers"] for game in games), default=1))
    yield from _by_game(its, _excess)
    if any("within" in found for game in its for found in game["methods"].values()):
        yield from ("", *_WITHIN.splitlines(), "")
        yield from _by_game(its, _within)
    yield from _savings(games)
    for paragraph in _HOW.format(peers=_peers(figures), own=_own_games()).split("\n\n"):
        yield from ("", *textwrap.wrap(paragraph, 100, break_on_hyphens=False))
    yield from ("", "## Each game, with one worker", "")
    for game in _with(games, 1):
        yield from _regrets(game, figures["looks"])


def _answer(games: Sequence[Figures], looks: Sequence[float]) -> Iterator[str]:
    """Yield the regret of the default, of the baseline and of the best peer in one paragraph."""
    its = _with(games, 1)
    place = looks.index(REACHED_AT)
    means, medians = _over_games(its, np.mean), _over_games(its, np.median)
    found = {
        name: (line[place], medians[name][place])
        for name, line in means.items()
        if place < len(line)
    }
    others = [name for name in found if not is_ours(name)]
    if not others or not {MAIN, BASELINE} <= found.keys():
        yield "The worth of recommended settings on seeds that no search saw."
        return
    peer = min(others, key=lambda name: (found[name], name))
    yield from textwrap.wrap(
        f"How good are the settings that a search recommends? After as many environment steps as "
        f"{REACHED_AT} full trainings, sweep's default method recommends settings that score "
        f"{_percent(*found[MAIN])} lower than the best ones, as the mean over {len(its)} benchmark "
        f"tasks, called games, on seeds that no search saw. Percentages are of a game's range of "
        f"scores. Settings of the best other method, {peer}, score {_percent(*found[peer])} lower. "
        f"Without knowledge from other games and with one seed per setting (`asha` with `tpe`), "
        f"sweep's settings score {_percent(*found[BASELINE])} lower."
        f"{_in_collections(its, peer, place)}",
        100,
    )


def _in_collections(games: Sequence[Figures], peer: str, place: int) -> str:
    """Return a sentence with the means of the default and of a peer in each collection."""
    texts = []
    for name, its in _collections(games).items():
        means = _over_games(its, np.mean)
        if {MAIN, peer} <= means.keys():
            own, other = means[MAIN][place], means[peer][place]
            texts.append(f"{own:.0f} % against {other:.0f} % on {_games_of(its, name)}")
    return f" By collection, the means are {', '.join(texts)}." if texts else ""


def _percent(mean: float, median: float) -> str:
    """Return the mean over games, with the median in brackets."""
    return f"{mean:.0f} % (median: {median:.0f} %)"


def _savings(games: Sequence[Figures]) -> Iterator[str]:
    """Yield the section of searches that end themselves, compared with those that continue."""
    rows = [(game, *one) for game in games for one in game.get("settled", {}).items()]
    if not rows:
        return
    yield from ("", "## Searches that end themselves", "", *_SETTLED.splitlines(), "")
    yield "| game | workers | method | steps saved | regret added |"
    yield "| --- | --- | --- | --- | --- |"
    for game, method, (saved, more) in rows:
        cells = f"{game['game']} | {game['workers']}"
        yield f"| {cells} | **{method}** | {saved:.0%} | {more:+.1f} |"
    saved, more = np.mean([found for _, _, found in rows], axis=0)
    yield f"| mean | | | {saved:.0%} | {more:+.1f} |"


def _own_games() -> str:
    """Return the names of the games of our own trainers, with their settings and seeds."""
    found = []
    for path in sorted(OWN_TABLES.glob("*.npz")):
        with np.load(path, allow_pickle=False) as table:
            for key in (key for key in table.files if key.endswith("/evals")):
                settings, seeds, _ = table[key].shape
                found.append(f"{key.split('/')[0]} ({settings} settings, {seeds} seeds)")
    return ", ".join(found)


def _peers(figures: Figures) -> str:
    return ", ".join(figures["peers"]) or "none"


def _counts(games: Sequence[Figures]) -> str:
    """Return how often each search was played, such as "5 to 8 times with one worker"."""
    texts = []
    for workers in sorted({game["workers"] for game in games}):
        counts = sorted({game["plays"] for game in _with(games, workers)})
        times = " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
        texts.append(f"{times} times with {_workers(workers)}")
    return " and ".join(texts)


def _with(games: Sequence[Figures], workers: int) -> list[Figures]:
    return [game for game in games if game["workers"] == workers]


def _workers(workers: int) -> str:
    return "one worker" if workers == 1 else f"{workers} workers"


def _methods(game: Figures) -> list[str]:
    """Return the names of the methods in alphabetical order, ours first."""
    return sorted(game["methods"], key=lambda method: (not is_ours(method), method))


def _bold(method: str) -> str:
    return f"**{method}**" if is_ours(method) else method


def _shown_looks(figures: Figures, looks: Sequence[float]) -> list[int]:
    """Return the indices of the looks that the page shows, up to the end of the plays."""
    width = len(next(iter(figures["methods"].values()))["regret"][0])
    return [place for place, look in enumerate(looks[:width]) if look in SHOWN]


def _regrets(game: Figures, looks: Sequence[float]) -> Iterator[str]:
    places = _shown_looks(game, looks)
    steps = f"{game['steps']:,} steps a training"
    yield f"**{game['game']}** ({game['table']}), {steps}, {game['plays']} plays:"
    yield ""
    yield "| | " + " | ".join(f"{looks[place]:.0f}" for place in places) + " |"
    yield "| --- |" + " --- |" * len(places)
    for method in _methods(game):
        median, low, high = game["methods"][method]["regret"]
        cells = [f"{median[p]:.0f} ({low[p]:.0f} to {high[p]:.0f})" for p in places]
        yield f"| {_bold(method)} | " + " | ".join(cells) + " |"
    yield ""


def _all_regrets(games: Sequence[Figures], looks: Sequence[float]) -> Iterator[str]:
    """Yield a row for each method: the median and the mean over games of the median regret."""
    medians, means = _over_games(games, np.median), _over_games(games, np.mean)
    width = min((len(values) for values in means.values()), default=0)
    places = [place for place, look in enumerate(looks[:width]) if look in SHOWN]
    yield "| | " + " | ".join(f"{looks[place]:.0f}" for place in places) + " |"
    yield "| --- |" + " --- |" * len(places)
    for method, values in medians.items():
        cells = [f"{values[p]:.0f}, {means[method][p]:.0f}" for p in places]
        yield f"| {_bold(method)} | " + " | ".join(cells) + " |"


def _by_collection(games: Sequence[Figures], looks: Sequence[float]) -> Iterator[str]:
    """Yield the same table for each collection."""
    for name, its in _collections(games).items():
        yield from ("", f"Only {_games_of(its, name)}:", "")
        yield from _all_regrets(its, looks)


def _games_of(games: Sequence[Figures], name: str) -> str:
    """Return a collection with its number of games, such as ``the 6 games of ARLBench``."""
    return f"the {len(games)} {'game' if len(games) == 1 else 'games'} of {name}"


def _collections(games: Sequence[Figures]) -> Mapping[str, list[Figures]]:
    """Return name → games of each collection; empty if there is only one.

    A collection is a file of tables with at least `COLLECTION` games; all others are one, too.
    """
    counts = Counter(game["table"] for game in games)
    parts: dict[str, list[Figures]] = {}
    for game in games:
        is_large = counts[game["table"]] >= COLLECTION
        table = game["table"] if is_large else ""
        parts.setdefault(COLLECTIONS.get(table, table), []).append(game)
    return parts if len(parts) > 1 else {}


def _by_game(games: Sequence[Figures], cell: Any) -> Iterator[str]:
    names = dict.fromkeys(method for game in games for method in _methods(game))
    methods = sorted(names, key=lambda method: (not is_ours(method), method))
    yield "| | " + " | ".join(_bold(method) for method in methods) + " |"
    yield "| --- |" + " --- |" * len(methods)
    for game in games:
        its = [game["methods"].get(method) for method in methods]
        yield f"| {game['game']} | " + " | ".join(cell(one) for one in its) + " |"


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
    median, low, high = ("never" if n is None else f"{n:.3g}" for n in found["reached"])
    return f"{median} ({low} to {high})"


def _verdicts(games: Sequence[Figures]) -> Iterator[str]:
    yield "| game | workers | ours | the best peer | ours minus the peer's, at the end | result |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for game in games:
        beside = game["beside"]
        for method in [MAIN] if MAIN in beside else beside:
            peer, median, low, high = beside[method]
            verdict = "**lost**" if low > 0 else "**won**" if high < 0 else "even"
            if game["plays"] < LEAST_PLAYS:
                verdict = "too few plays"
            difference = f"{median:+.1f} ({low:+.1f} to {high:+.1f})"
            yield (
                f"| {game['game']} | {game['workers']} | **{method}** | {peer} | "
                f"{difference} | {verdict} |"
            )


def draw(figures: Figures, picture: Path) -> None:
    """Draw the regret over trainings, mean over games; one panel per number of workers."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    games = [game for game in figures["games"] if game["methods"]]
    panels = sorted({game["workers"] for game in games}) or [1]
    with mpl.rc_context({"svg.hashsalt": "search", "svg.fonttype": "none"}):
        size = (5.5 * len(panels), 4.5)
        figure, axes = pyplot.subplots(1, len(panels), sharey=True, figsize=size, squeeze=False)
        for axis, workers in zip(axes[0], panels, strict=True):
            for method, values in _over_games(_with(games, workers), np.mean).items():
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


def _over_games(
    games: Sequence[Figures], reduce: Callable[[Array, int], Array]
) -> Mapping[str, list[float]]:
    """Return method → reduced median regret at each look, over the games that all played.

    Methods of sweep come first.
    """
    names = dict.fromkeys(method for game in games for method in _methods(game))
    shared = [game for game in games if all(name in game["methods"] for name in names)]
    found = {}
    for name in names:
        lines = [game["methods"][name]["regret"][0] for game in shared]
        width = min((len(line) for line in lines), default=0)
        if width:
            reduced = reduce(np.array([line[:width] for line in lines]), 0)
            found[name] = [float(value) for value in reduced]
    return found


_OPENING = """Methods in bold are sweep's; those of other tools are called *peers*. Each search was
repeated per game with the same seeds for all methods, {plays}; a repetition is called a *play*.
For details, see [How the searches are played](#how-the-searches-are-played). This command runs the
searches and writes the page:"""
_COMMAND = """    python -m benchmarks.search --table curves.npz --table landscapes.npz

![Regret against trainings, mean over games](search.svg)"""
_REGRETS = """The regret of a search says how much worse its recommended settings score than the
game's best ones, on seeds that no search saw. Regret is a percentage of the game's range, which
reaches from the score of a poor setting (only one in ten is worse) to the best one. Smaller is
better. The columns show the training used so far, in full trainings. Each cell shows the median
and the mean over the games."""
_VERDICTS = """On each game, sweep's method is compared with the peer that had the lowest median
regret at the end of the searches. The difference is the median over plays of sweep's regret minus
the peer's, with its 95 % interval; negative values are in favour of sweep. The last column says
*won* if the whole interval is below zero, *lost* if it is above, and *even* otherwise; *too few
plays* means fewer than {least}."""
_SETTLED = """With `budget: {settled: 0.02}` a sweep ends by itself when doubling the training is
expected to improve the recommended setting's score by less than 2 % of the difference between it
and a poor setting's score.
The table compares such sweeps with the same sweeps without this budget: environment steps saved,
and regret added at the end, as means over plays."""
_CLAIMS = """A search also reports a score for the setting that it recommends. The table shows by
how much this score exceeds the setting's mean score on unseen seeds, with one worker, in per cent
of the game's range. The first number is after 16 full trainings, the second at the end of the
search. A positive value means that the score was partly luck."""
_WITHIN = f"""The next table shows how accurate the reported scores were after {CLAIMS_FROM} full
trainings or more: the shares of scores within one and within two standard errors of the mean on
unseen seeds. Correct standard errors would give 68 % and 95 %."""
_REACHED = f"""The next table shows after how many full trainings each method's regret falls to, and
stays at or below, the regret that **{BASELINE}** has after {REACHED_AT} (*never*: not within the
play). The 95 % interval is in brackets:"""
_HOW = """## How the searches are played

**A game** is a table of learning curves, one for each setting and seed. Instead of training, a
search reads parts of these curves. One full training is one whole curve: one setting under one
seed. In each play the search sees a random half of each setting's seeds; the other half evaluate
the setting that it recommends. Intervals are 95 % bootstrap intervals of the median over plays.
`benchmarks/search/game.py` describes the file format of a game; `--table` accepts any such file.
Some games contain curves of sweep's own trainers, made by `python -m benchmarks.search.trained`:
{own}.

**sweep** runs as it does for users, with driver, scheduler, searcher and choice of the best trial,
but on the [simulated pool](testing-schedulers.md). The prior of `default`, which is the knowledge
from other games, never contains the game that is played.

**Peers** ({peers}) are used through their own interfaces and recommend the setting that
they name as the best (`study.best_trial`, `get_best_result`). A peer that cannot train a setting
under several seeds is also played in a second way: each result is the mean of three seeds.

**A proposed setting that is not in the table** gets the curves of the nearest setting in the table,
for all methods. So all curves are real, with real noise. Each trial has a new seed, so a setting
that is proposed twice gets two different curves."""

"""Results of the plays: medians with 95 % bootstrap intervals, all of them of paired plays.

Methods are compared on the plays that all of them have played, so on the same splits of seeds.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.search.ours import SETTLED
from benchmarks.search.plays import LOOKS

Rows = Sequence[Mapping[str, Any]]
Figures = Mapping[str, Any]
Array = NDArray[np.float64]
#: After so many trainings the tables of the page show the regret.
SHOWN = (2, 4, 8, 16, 32, 64)
#: Whose result after so many trainings is to be reached.
BASELINE, REACHED_AT = "asha, tpe", 16
#: The method that a spec without a searcher, scheduler and seeds gets.
MAIN = "default"
#: What is ours in name only: everybody has it.
CONTROL = "random"
#: How the names of the peers' methods begin; all others are ours.
PEERS = ("Optuna", "Ray", "Syne", "SMAC3")
RESAMPLES = 2000
#: Trainings from which on claims are held against their errors.
CLAIMS_FROM = 8
#: Regret where nothing can be recommended yet: that of a poor setting.
NOTHING = 100.0


def is_ours(method: str) -> bool:
    """Return whether a method is sweep's own, not a peer's."""
    return not method.startswith(PEERS)


def sum_up(rows: Rows) -> dict[str, Any]:
    """All figures of the page, as plain data."""
    peers = sorted({row["by"] for row in rows if row["by"]})
    games = [_game(of_game) for of_game in _groups(rows, "workers", "table", "game")]
    return {"peers": peers, "looks": list(LOOKS), "games": games}


def _groups(rows: Rows, *keys: str) -> Iterator[Rows]:
    found: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in keys), []).append(row)
    yield from (found[key] for key in sorted(found))


def _game(rows: Rows) -> dict[str, Any]:
    """One game with so many workers: every method on the plays that all have played."""
    by_method = {str(group[0]["method"]): group for group in _groups(rows, "method")}
    paired = sorted(
        set.intersection(*({row["play"] for row in group} for group in by_method.values()))
    )
    first = rows[0]
    curves = {
        method: (_table(group, paired, "regret"), _table(group, paired, "excess"))
        for method, group in by_method.items()
    }
    baseline = curves[BASELINE][0] if BASELINE in curves else None
    found = {key: first[key] for key in ("table", "game", "workers", "steps")}
    methods = {
        method: _method(regret, excess, baseline) for method, (regret, excess) in curves.items()
    }
    for method, within in _within(by_method, paired).items():
        methods[method]["within"] = within
    settled = _settled(by_method, paired) if paired else {}
    beside = _beside({method: regret for method, (regret, _) in curves.items()}) if paired else {}
    kept = methods if paired else {}
    return {**found, "plays": len(paired), "methods": kept, "beside": beside, "settled": settled}


def _within(by_method: Mapping[str, Rows], paired: Sequence[int]) -> dict[str, list[float]]:
    """Return the shares of claims within one and two standard errors, and their number.

    They are those of all looks from `CLAIMS_FROM` trainings on, of the methods that name an error.
    """
    first = LOOKS.index(float(CLAIMS_FROM))
    found: dict[str, list[float]] = {}
    for method, group in by_method.items():
        its = [row.get("errors", [])[first:] for row in group if row["play"] in paired]
        errors = np.array([one for line in its for one in line if one is not None])
        if len(errors):
            shares = (float((errors <= most).mean()) for most in (1, 2))
            found[method] = [*(round(share, 3) for share in shares), len(errors)]
    return found


def _settled(by_method: Mapping[str, Rows], paired: Sequence[int]) -> dict[str, list[float]]:
    """Method that ends itself → the share of steps that it saves, and regret that it adds; means.

    The other method is the one that does the same and does not end itself.
    """
    found = {}
    for method, rows in by_method.items():
        whole = by_method.get(method.removesuffix(SETTLED))
        if whole is None or whole is rows:
            continue
        spent, end = ({row["play"]: row for row in one} for one in (rows, whole))
        saved = [1 - _spent(spent[play]) / _spent(end[play]) for play in paired]
        last = [(spent[play]["regret"][-1], end[play]["regret"][-1]) for play in paired]
        more = [(NOTHING if a is None else a) - (NOTHING if b is None else b) for a, b in last]
        found[method] = [round(float(np.mean(saved)), 3), round(float(np.mean(more)), 2)]
    return found


def _spent(row: Mapping[str, Any]) -> float:
    """Trainings that a search took; as a rule all that it was given."""
    return float(row.get("spent", LOOKS[len(row["regret"]) - 1]))


def _beside(regrets: Mapping[str, Array]) -> dict[str, list[Any]]:
    """Ours → the best peer, and the difference to it at the last look, play by play."""
    last = {m: np.nan_to_num(regret[:, -1], nan=NOTHING) for m, regret in regrets.items()}
    others = {method: float(np.median(end)) for method, end in last.items() if not is_ours(method)}
    if not others:
        return {}
    peer = min(others, key=lambda method: (others[method], method))
    found: dict[str, list[Any]] = {}
    for method, end in last.items():
        if is_ours(method) and method != CONTROL:
            apart = end - last[peer]
            drawn = np.median(apart[_resampled(len(apart))], axis=1)
            low, high = np.percentile(drawn, [2.5, 97.5])
            numbers = (float(np.median(apart)), float(low), float(high))
            found[method] = [peer, *(round(number, 2) for number in numbers)]
    return found


def _table(rows: Rows, paired: Sequence[int], key: str) -> Array:
    """(plays, looks), NaN where nothing was recommended yet; up to the looks that all have."""
    by_play = {row["play"]: row[key] for row in rows}
    values = [by_play[play] for play in paired]
    width = min((len(line) for line in values), default=0)
    return np.array([[np.nan if v is None else v for v in line[:width]] for line in values])


def _method(regret: Array, excess: Array, baseline: Array | None) -> dict[str, Any]:
    if not len(regret):
        return {}
    whole = np.where(np.isnan(regret), NOTHING, regret)
    picks = _resampled(len(whole))
    middle = np.median(whole, axis=0)
    low, high = np.percentile(np.median(whole[picks], axis=1), [2.5, 97.5], axis=0)
    found: dict[str, Any] = {
        "regret": [_rounded(middle), _rounded(low), _rounded(high)],
        "excess": _rounded(_medians(excess)),
    }
    if baseline is not None and (reached := _speed_up(whole, baseline, picks)):
        found["reached"] = reached
    return found


def _medians(excess: Array) -> Array:
    """Of the plays that recommend something; NaN: none does."""
    return np.array(
        [np.median(c[~np.isnan(c)]) if (~np.isnan(c)).any() else np.nan for c in excess.T]
    )


def _speed_up(regret: Array, baseline: Array, picks: NDArray[np.intp]) -> list[float | None] | None:
    """Trainings until the median regret is, and stays, what the baseline's is; with interval.

    None for a number: it never is. None for all: nobody played long enough.
    """
    mark = LOOKS.index(float(REACHED_AT))
    if mark >= min(regret.shape[1], baseline.shape[1]):
        return None
    base = np.where(np.isnan(baseline), NOTHING, baseline)
    middle = _first_kept(np.median(regret, axis=0), float(np.median(base[:, mark])))
    drawn = [
        _first_kept(np.median(regret[pick], axis=0), float(np.median(base[pick, mark])))
        for pick in picks
    ]
    low, high = np.percentile(drawn, [2.5, 97.5], method="nearest")
    return [None if np.isinf(value) else float(value) for value in (middle, low, high)]


def _first_kept(regret: Array, target: float) -> float:
    """The first look from which on the regret is at most the target; infinite: never."""
    worse = np.flatnonzero(regret > target + 1e-9)
    first = int(worse[-1]) + 1 if len(worse) else 0
    return LOOKS[first] if first < len(regret) else float("inf")


def _resampled(plays: int) -> NDArray[np.intp]:
    return np.random.default_rng(0).integers(plays, size=(RESAMPLES, plays))


def _rounded(values: Array) -> list[float | None]:
    return [None if np.isnan(value) else round(float(value), 1) for value in values]

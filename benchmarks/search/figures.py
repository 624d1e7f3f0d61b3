"""Figures of paired plays: medians with 95 % bootstrap intervals.

Methods are compared on the plays that all of them have played, that is on the same splits of seeds.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.search.ours import SETTLED
from benchmarks.search.plays import LOOKS

Rows = Sequence[Mapping[str, Any]]
Figures = Mapping[str, Any]
"""Contents of results.json, or a part of it."""
Array = NDArray[np.float64]
#: Numbers of trainings after which the tables of the page show the regret.
SHOWN = (2, 4, 8, 16, 32, 64)
#: Method whose regret after so many trainings is the target of other methods.
BASELINE, REACHED_AT = "asha, tpe", 16
#: Method of a spec without searcher, scheduler and seeds.
MAIN = "default"
#: Method of ours that is not compared, because every library has it.
CONTROL = "random"
#: Prefixes of the names of the peers' methods; all others are ours.
PEERS = ("Optuna", "Ray", "Syne", "SMAC3")
RESAMPLES = 2000
"""Resamples of a bootstrap interval."""
#: Number of trainings from which on claims are compared with their errors.
CLAIMS_FROM = 8
#: Regret of a search without a recommendation: that of a poor setting.
WITHOUT_PICK = 100.0


def is_ours(method: str) -> bool:
    """Return whether a method is sweep's own, not a peer's."""
    return not method.startswith(PEERS)


def sum_up(rows: Rows) -> dict[str, Any]:
    """Return all figures of the page, as plain data."""
    peers = sorted({row["by"] for row in rows if row["by"]})
    games = [_game(of_game) for of_game in _groups(rows, "workers", "table", "game")]
    return {"peers": peers, "looks": list(LOOKS), "games": games}


def _groups(rows: Rows, *keys: str) -> Iterator[Rows]:
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    yield from (groups[key] for key in sorted(groups))


def _game(rows: Rows) -> dict[str, Any]:
    """Return the figures of one game with one number of workers, for all methods.

    Only plays that all methods have played are used.
    """
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
    names = {key: first[key] for key in ("table", "game", "workers", "steps")}
    methods = {
        method: _method(regret, excess, baseline) for method, (regret, excess) in curves.items()
    }
    for method, within in _coverage(by_method, paired).items():
        methods[method]["within"] = within
    settled = _savings(by_method, paired) if paired else {}
    beside = (
        _differences({method: regret for method, (regret, _) in curves.items()}) if paired else {}
    )
    shown = methods if paired else {}
    return {**names, "plays": len(paired), "methods": shown, "beside": beside, "settled": settled}


def _coverage(by_method: Mapping[str, Rows], paired: Sequence[int]) -> dict[str, list[float]]:
    """Return the shares of claims within one and two standard errors, and their number.

    The shares are those of all claims from `CLAIMS_FROM` trainings on, of methods that state an
    error.
    """
    first = LOOKS.index(float(CLAIMS_FROM))
    found: dict[str, list[float]] = {}
    for method, group in by_method.items():
        lines = [row.get("errors", [])[first:] for row in group if row["play"] in paired]
        errors = np.array([one for line in lines for one in line if one is not None])
        if len(errors):
            shares = (float((errors <= most).mean()) for most in (1, 2))
            found[method] = [*(round(share, 3) for share in shares), len(errors)]
    return found


def _savings(by_method: Mapping[str, Rows], paired: Sequence[int]) -> dict[str, list[float]]:
    """Return method that ends itself → mean share of saved steps, mean additional regret.

    Such a method is compared with the same method that does not end itself.
    """
    found = {}
    for method, rows in by_method.items():
        full = by_method.get(method.removesuffix(SETTLED))
        if full is None or full is rows:
            continue
        spent, end = ({row["play"]: row for row in one} for one in (rows, full))
        saved = [1 - _spent(spent[play]) / _spent(end[play]) for play in paired]
        last = [(spent[play]["regret"][-1], end[play]["regret"][-1]) for play in paired]
        more = [
            (WITHOUT_PICK if a is None else a) - (WITHOUT_PICK if b is None else b) for a, b in last
        ]
        found[method] = [round(float(np.mean(saved)), 3), round(float(np.mean(more)), 2)]
    return found


def _spent(row: Mapping[str, Any]) -> float:
    """Return the number of trainings that a search used; by default its whole budget."""
    return float(row.get("spent", LOOKS[len(row["regret"]) - 1]))


def _differences(regrets: Mapping[str, Array]) -> dict[str, list[Any]]:
    """Return our method → [best peer, median difference in regret at the end, its interval]."""
    last = {m: np.nan_to_num(regret[:, -1], nan=WITHOUT_PICK) for m, regret in regrets.items()}
    others = {method: float(np.median(end)) for method, end in last.items() if not is_ours(method)}
    if not others:
        return {}
    peer = min(others, key=lambda method: (others[method], method))
    found: dict[str, list[Any]] = {}
    for method, end in last.items():
        if is_ours(method) and method != CONTROL:
            differences = end - last[peer]
            drawn = np.median(differences[_resampled(len(differences))], axis=1)
            low, high = np.percentile(drawn, [2.5, 97.5])
            numbers = (float(np.median(differences)), float(low), float(high))
            found[method] = [peer, *(round(number, 2) for number in numbers)]
    return found


def _table(rows: Rows, paired: Sequence[int], key: str) -> Array:
    """Return `key` of all plays, (plays, looks), with NaN before the first recommendation.

    The array ends where the shortest play ends.
    """
    by_play = {row["play"]: row[key] for row in rows}
    values = [by_play[play] for play in paired]
    width = min((len(line) for line in values), default=0)
    return np.array([[np.nan if v is None else v for v in line[:width]] for line in values])


def _method(regret: Array, excess: Array, baseline: Array | None) -> dict[str, Any]:
    if not len(regret):
        return {}
    full = np.where(np.isnan(regret), WITHOUT_PICK, regret)
    picks = _resampled(len(full))
    median = np.median(full, axis=0)
    low, high = np.percentile(np.median(full[picks], axis=1), [2.5, 97.5], axis=0)
    found: dict[str, Any] = {
        "regret": [_rounded(median), _rounded(low), _rounded(high)],
        "excess": _rounded(_medians(excess)),
    }
    if baseline is not None and (reached := _speed_up(full, baseline, picks)):
        found["reached"] = reached
    return found


def _medians(excess: Array) -> Array:
    """Return the median over plays with a recommendation at each look; NaN if there is none."""
    return np.array(
        [np.median(c[~np.isnan(c)]) if (~np.isnan(c)).any() else np.nan for c in excess.T]
    )


def _speed_up(regret: Array, baseline: Array, picks: NDArray[np.intp]) -> list[float | None] | None:
    """Return the trainings until the median regret reaches and keeps the baseline's, and interval.

    A number is None if the target is never reached. Returns None if the plays are too short.
    """
    place = LOOKS.index(float(REACHED_AT))
    if place >= min(regret.shape[1], baseline.shape[1]):
        return None
    base = np.where(np.isnan(baseline), WITHOUT_PICK, baseline)
    median = _first_kept(np.median(regret, axis=0), float(np.median(base[:, place])))
    drawn = [
        _first_kept(np.median(regret[pick], axis=0), float(np.median(base[pick, place])))
        for pick in picks
    ]
    low, high = np.percentile(drawn, [2.5, 97.5], method="nearest")
    return [None if np.isinf(value) else float(value) for value in (median, low, high)]


def _first_kept(regret: Array, target: float) -> float:
    """Return the trainings from which on the regret is at most the target; infinity if never."""
    worse = np.flatnonzero(regret > target + 1e-9)
    first = int(worse[-1]) + 1 if len(worse) else 0
    return LOOKS[first] if first < len(regret) else float("inf")


def _resampled(plays: int) -> NDArray[np.intp]:
    return np.random.default_rng(0).integers(plays, size=(RESAMPLES, plays))


def _rounded(values: Array) -> list[float | None]:
    return [None if np.isnan(value) else round(float(value), 1) for value in values]

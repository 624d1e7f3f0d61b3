"""Parameters in the words of W&B's sweeps, and the same in ours.

{min: 1, max: 20}                                        {randint: [1, 20]}
{min: 0.0, max: 1}                                       {uniform: [0.0, 1]}
{min: 0, max: 1, q: 0.1}                                 {uniform: [0, 1], step: 0.1}
{distribution: log_uniform_values, min: 1e-5, max: 1}    {loguniform: [1e-5, 1]}
{distribution: log_uniform, min: -5, max: 0}             {loguniform: [exp(-5), exp(0)]}
{distribution: normal, mu: 0, sigma: 1, q: 0.5}          {normal: [0, 1], step: 0.5}
{values: [a, b], probabilities: [0.2, 0.8]}              {choice: [a, b], weights: [0.2, 0.8]}
{value: 3}                                               3

``log_uniform`` takes exponents of e, ``log_uniform_values`` the values themselves: a known trap.
Where the bounds of the former look like values, it is refused.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sweep.errors import KeyPath, Source
from trainables.errors import nearest

#: Words that mark a parameter as W&B's; ``value`` and ``parameters`` are read beside ours.
WORDS = frozenset(("min", "max", "distribution", "values", "mu", "sigma", "q"))
_COMPANIONS = WORDS | {"probabilities", "when", "value"}

#: Distribution → the words that stand beside it.
_DISTRIBUTIONS: dict[str, tuple[str, ...]] = {
    "constant": ("value",),
    "categorical": ("values", "probabilities"),
    "categorical_w_probabilities": ("values", "probabilities"),
    "int_uniform": ("min", "max"),
    "uniform": ("min", "max"),
    "q_uniform": ("min", "max", "q"),
    "log_uniform": ("min", "max"),
    "q_log_uniform": ("min", "max", "q"),
    "log_uniform_values": ("min", "max"),
    "inv_log_uniform_values": ("min", "max"),
    "q_log_uniform_values": ("min", "max", "q"),
    "normal": ("mu", "sigma"),
    "q_normal": ("mu", "sigma", "q"),
    "log_normal": ("mu", "sigma"),
    "q_log_normal": ("mu", "sigma", "q"),
}
_OPTIONAL = {"probabilities": None, "mu": 0.0, "sigma": 1.0, "q": 1}
_INSTEAD = {
    "beta": "write {normal: [mean, deviation], bounds: [0, 1]}",
    "q_beta": "write {normal: [mean, deviation], bounds: [0, 1], step: q}",
    "inv_log_uniform": "write inv_log_uniform_values with the values themselves",
}


@dataclass(frozen=True)
class Translated:
    """A parameter in our words, and where each of them was written."""

    raw: dict[str, Any]
    places: dict[KeyPath, KeyPath]


def translate(raw: Mapping[str, Any], where: Source) -> Translated:
    """A parameter in our words.

    Args:
        raw: the plain data, with one of `WORDS` at least.
        where: the source, seen from the parameter.

    Raises:
        BadSpace: the words do not fit together.
    """
    distribution = _distribution(raw, where)
    allowed = ("distribution", *_DISTRIBUTIONS[distribution], "when")
    for word in raw:
        if word not in allowed:
            expected = f"with distribution {distribution} only {', '.join(allowed)}"
            raise where.refuse((word,), word, expected, nearest(word, allowed))
    for word in _DISTRIBUTIONS[distribution]:
        if word not in raw and word not in _OPTIONAL:
            raise where.refuse((), dict(raw), f"{word} beside distribution {distribution}")
    found = _in_our_words(distribution, raw, where)
    if "when" in raw:
        found.raw["when"] = raw["when"]
    return found


def _distribution(raw: Mapping[str, Any], where: Source) -> str:
    """The distribution that is named or, as W&B has it, follows from the other words."""
    named = raw.get("distribution")
    if "distribution" in raw:
        if isinstance(named, str) and named in _DISTRIBUTIONS:
            return named
        hint = _INSTEAD.get(str(named)) or nearest(named, _DISTRIBUTIONS)
        allowed = f"one of {', '.join(_DISTRIBUTIONS)}"
        raise where.refuse(("distribution",), named, allowed, hint)
    for word in raw:
        if word not in _COMPANIONS:
            hint = nearest(word, _COMPANIONS)
            raise where.refuse((word,), word, "words of one kind: ours or W&B's", hint)
    if "values" in raw:
        return "categorical"
    if "mu" in raw or "sigma" in raw:
        return "q_normal" if "q" in raw else "normal"
    if "q" in raw:
        return "q_uniform"
    return "int_uniform" if _are_whole(raw, "min", "max") else "uniform"


def _are_whole(raw: Mapping[str, Any], *words: str) -> bool:
    return all(isinstance(raw.get(word, 1), int) for word in words)


def _in_our_words(distribution: str, raw: Mapping[str, Any], where: Source) -> Translated:
    bare = distribution.removeprefix("q_")
    if bare in ("normal", "log_normal"):
        return _normal(bare.replace("_", ""), distribution, raw)
    if bare == "constant":
        return Translated({"constant": raw["value"]}, {})
    if bare.startswith("categorical"):
        found = Translated({"choice": raw["values"]}, {("choice",): ("values",)})
        if isinstance(raw["values"], list | tuple):
            found.places.update(
                {("choice", i): ("values", i) for i in range(len(raw["values"]))},
            )
        if "probabilities" in raw:
            found.raw["probabilities"] = raw["probabilities"]
        return found
    return _range(bare, distribution, raw, where)


def _normal(kind: str, distribution: str, raw: Mapping[str, Any]) -> Translated:
    moments = [raw.get("mu", _OPTIONAL["mu"]), raw.get("sigma", _OPTIONAL["sigma"])]
    places: dict[KeyPath, KeyPath] = {(kind, 0): ("mu",), (kind, 1): ("sigma",), (kind,): ()}
    return _stepped(Translated({kind: moments}, places), distribution, raw)


def _range(bare: str, distribution: str, raw: Mapping[str, Any], where: Source) -> Translated:
    bounds = [raw["min"], raw["max"]]
    stepped = distribution.startswith("q_")
    log = "log_uniform" in bare
    if bare == "log_uniform":
        bounds = [_power(raw, word, where) for word in ("min", "max")]
        _check_exponents(raw, bounds, where)
    whole = _are_whole(raw, "min", "max", "q") and bare != "log_uniform"
    if bare == "int_uniform" or (stepped and whole):
        kind = "lograndint" if log else "randint"
    else:
        kind = "loguniform" if log else "uniform"
    places: dict[KeyPath, KeyPath] = {(kind, 0): ("min",), (kind, 1): ("max",), (kind,): ()}
    return _stepped(Translated({kind: bounds}, places), distribution, raw)


def _stepped(found: Translated, distribution: str, raw: Mapping[str, Any]) -> Translated:
    if distribution.startswith("q_"):
        found.raw["step"] = raw.get("q", _OPTIONAL["q"])
        found.places["step",] = ("q",)
    return found


def _power(raw: Mapping[str, Any], word: str, where: Source) -> float:
    """E to the power that stands beside `word`."""
    exponent = raw[word]
    number = isinstance(exponent, int | float) and not isinstance(exponent, bool)
    if not number or not abs(exponent) <= math.log(1e300):
        hint = "log_uniform_values takes the values themselves"
        raise where.refuse((word,), exponent, "an exponent of e from -690 to 690", hint)
    return math.exp(exponent)


def _check_exponents(raw: Mapping[str, Any], bounds: list[float], where: Source) -> None:
    if 0 < raw["min"] < raw["max"] <= 1:
        low, high = (f"{bound:.4g}" for bound in bounds)
        raise where.refuse(
            ("distribution",),
            "log_uniform",
            f"exponents of e as min and max; these would mean {low} to {high}",
            f"write log_uniform_values if you mean {raw['min']} to {raw['max']}",
        )

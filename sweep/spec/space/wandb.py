"""Parameters in the syntax of W&B's sweeps, and their equivalents in ours.

{min: 1, max: 20}                                        {randint: [1, 20]}
{min: 0.0, max: 1}                                       {uniform: [0.0, 1]}
{min: 0, max: 1, q: 0.1}                                 {uniform: [0, 1], step: 0.1}
{distribution: log_uniform_values, min: 1e-5, max: 1}    {loguniform: [1e-5, 1]}
{distribution: log_uniform, min: -5, max: 0}             {loguniform: [exp(-5), exp(0)]}
{distribution: normal, mu: 0, sigma: 1, q: 0.5}          {normal: [0, 1], step: 0.5}
{values: [a, b], probabilities: [0.2, 0.8]}              {choice: [a, b], weights: [0.2, 0.8]}
{value: 3}                                               3

``log_uniform`` takes exponents of e, ``log_uniform_values`` the values themselves: a known trap. If
the bounds of the former look like values, it is refused.
"""

import math
from collections.abc import Mapping
from typing import Any

from sweep.core.errors import KeyPath, Source
from trainables.errors import nearest, shorten

#: Keywords that mark a parameter as W&B's; ``value`` and ``parameters`` exist in both.
WORDS = frozenset(("min", "max", "distribution", "values", "mu", "sigma", "q"))
#: All keys that a parameter of W&B may have besides ``distribution``.
_COMPANIONS = WORDS | {"probabilities", "when", "value"}

#: Distribution → its keywords.
DISTRIBUTIONS: dict[str, tuple[str, ...]] = {
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
#: Keyword that may be left out → its value then.
OPTIONAL = {"probabilities": None, "mu": 0.0, "sigma": 1.0, "q": 1}
#: Distribution of W&B that spaces do not have → advice.
_INSTEAD = {
    "beta": "write {normal: [mean, deviation], bounds: [0, 1]}",
    "q_beta": "write {normal: [mean, deviation], bounds: [0, 1], step: q}",
    "inv_log_uniform": "write inv_log_uniform_values with the values themselves",
}


def translate(
    raw: Mapping[str, Any], source: Source
) -> tuple[dict[str, Any], dict[KeyPath, KeyPath]]:
    """Return a parameter of W&B in our keywords, such as ``{"uniform": [0, 1], "step": 0.1}``.

    Also returns path in this mapping → path in the file, for messages. Raises BadSpace if its
    keywords do not fit together.
    """
    distribution = _distribution(raw, source)
    words = DISTRIBUTIONS[distribution]
    allowed = ("distribution", *words, "when")
    for word in raw:
        if word not in allowed:
            problem = f"{shorten(word)} cannot be used with distribution {distribution}"
            expected = f"only {', '.join(allowed)}"
            raise source.refuse((word,), word, expected, nearest(word, allowed), problem)
    for word in words:
        if word not in raw and word not in OPTIONAL:
            problem = f"{word} is missing, which distribution {distribution} needs"
            raise source.refuse((), dict(raw), hint="add it", problem=problem)
    kind, value = _kind_and_value(distribution, raw, source)
    ours: dict[str, Any] = {kind: value}
    paths: dict[KeyPath, KeyPath] = {}
    if kind == "choice":
        paths[kind,] = ("values",)
        count = len(value) if isinstance(value, list | tuple) else 0
        paths |= {(kind, index): ("values", index) for index in range(count)}
    elif kind != "constant":
        paths = {(kind, 0): (words[0],), (kind, 1): (words[1],), (kind,): ()}
    if "q" in words:
        ours["step"], paths["step",] = raw.get("q", OPTIONAL["q"]), ("q",)
    ours |= {word: raw[word] for word in ("probabilities", "when") if word in raw}
    return ours, paths


def _distribution(raw: Mapping[str, Any], source: Source) -> str:
    """Return a parameter's distribution, such as ``q_uniform``: as named, or as W&B infers it.

    Raises BadSpace for an unknown name, or, without one, for a keyword that is not W&B's.
    """
    named = raw.get("distribution")
    if "distribution" in raw:
        if isinstance(named, str) and named in DISTRIBUTIONS:
            return named
        hint = _INSTEAD.get(str(named)) or nearest(named, DISTRIBUTIONS)
        allowed = f"one of {', '.join(DISTRIBUTIONS)}"
        problem = f"there is no distribution {shorten(named)}"
        raise source.refuse(("distribution",), named, allowed, hint, problem)
    for word in raw:
        if word not in _COMPANIONS:
            hint = nearest(word, _COMPANIONS)
            problem = f"{shorten(word)} is not a keyword of W&B, but the others here are"
            raise source.refuse((word,), word, hint=hint, problem=problem)
    if "values" in raw:
        return "categorical"
    if "mu" in raw or "sigma" in raw:
        return "q_normal" if "q" in raw else "normal"
    if "q" in raw:
        return "q_uniform"
    return "int_uniform" if _are_whole(raw, "min", "max") else "uniform"


def _are_whole(raw: Mapping[str, Any], *words: str) -> bool:
    """Return whether all of the entries `words` that exist are integers."""
    return all(isinstance(raw.get(word, 1), int) for word in words)


def _kind_and_value(distribution: str, raw: Mapping[str, Any], source: Source) -> tuple[str, Any]:
    """Return our keyword for a parameter of W&B's distribution, and the value of the keyword.

    The value is a list: of bounds, of mean and deviation, or that of ``choice``. The keyword is
    ``constant`` for a constant. Raises BadSpace for bounds of ``log_uniform`` that are not
    exponents of e.
    """
    bare = distribution.removeprefix("q_")
    if bare in ("normal", "log_normal"):
        return bare.replace("_", ""), [raw.get(word, OPTIONAL[word]) for word in ("mu", "sigma")]
    if bare == "constant":
        return bare, raw["value"]
    if bare.startswith("categorical"):
        return "choice", raw["values"]
    log = "log" if "log_uniform" in bare else ""
    if bare == "log_uniform":
        bounds = [_power(raw, word, source) for word in ("min", "max")]
        _check_exponents(raw, bounds, source)
        return "loguniform", bounds
    whole = distribution != bare and _are_whole(raw, "min", "max", "q")
    kind = "randint" if bare == "int_uniform" or whole else "uniform"
    return log + kind, [raw["min"], raw["max"]]


def _power(raw: Mapping[str, Any], word: str, source: Source) -> float:
    """Return e to the power of the entry `word`; BadSpace if the entry is not a valid exponent."""
    exponent = raw[word]
    number = isinstance(exponent, int | float) and not isinstance(exponent, bool)
    if not number or not abs(exponent) <= math.log(1e300):
        hint = "log_uniform_values takes the values themselves"
        raise source.refuse((word,), exponent, "an exponent of e from -690 to 690", hint)
    return math.exp(exponent)


def _check_exponents(raw: Mapping[str, Any], bounds: list[float], source: Source) -> None:
    """Raise BadSpace if the exponents ``min`` and ``max`` look like values: both above 0, up to 1.

    `bounds` are the numbers that they would mean.
    """
    if 0 < raw["min"] < raw["max"] <= 1:
        low, high = (f"{bound:.4g}" for bound in bounds)
        raise source.refuse(
            ("distribution",),
            "log_uniform",
            hint=f"write log_uniform_values if you mean {raw['min']} to {raw['max']}",
            problem=f"min and max of log_uniform are exponents of e, here {low} to {high}",
        )

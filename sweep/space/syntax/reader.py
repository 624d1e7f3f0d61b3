"""How one parameter of a search space is written.

lr: {loguniform: [1e-5, 1e-2]}              a number between two bounds, both included; also uniform
clip: {uniform: [0.1, 0.4], step: 0.1}      on a grid; also loguniform
epochs: {randint: [1, 20]}                  a whole number, both bounds included; also lograndint
noise: {normal: [0, 0.1], bounds: [-1, 1]}  around a mean; lognormal: of the natural logarithm
activation: {choice: [tanh, relu]}          one of some values, any plain data
net: {choice: [cnn, mlp], weights: [1, 3]}  the second is drawn three times as often
size: {ordinal: [small, medium, large]}     one of some values that have an order
env: {grid: [CartPole-v1, Acrobot-v1]}      the trials take them in turn
gamma: 0.99                                 fixed
lambda_: {value: "1 - _one_minus_lambda"}   derived from others, see `sweep.space.expressions`
clip: {uniform: [5, 20], when: {filter: MeanStdFilter}}   see `sweep.space.conditions`

The words of W&B's sweeps are read too, see `sweep.space.syntax.wandb`; groups in
`sweep.space.groups`.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from sweep.errors import Source
from sweep.space import conditions
from sweep.space.conditions import Condition
from sweep.space.domains import Choice, Domain, Ordinal
from sweep.space.expressions import Expression
from sweep.space.groups import Entry
from sweep.space.parameters import Derived, Fixed, Parameter
from sweep.space.syntax import aliases, wandb
from sweep.space.syntax.grammar import ALLOWED, LONGEST, ExpressionError
from sweep.space.syntax.numbers import read_float, read_int, read_normal
from sweep.space.syntax.reading import Reading, plain, real
from sweep.space.values import equality_key
from trainables.errors import nearest, shorten

MOST_CHOICES = 10_000
#: How far the sum of probabilities may lie from 1.
_ROUNDING = 1e-6


def read(entry: Entry, space: Source) -> Parameter:
    """The parameter that an entry describes.

    Args:
        entry: name, place and plain data.
        space: the source, seen from the space.

    Raises:
        BadSpace: it cannot work.
    """
    where = space.below(*entry.path)
    found = [one for path, raw in entry.conditions for one in conditions.read(raw, path, space)]
    if not isinstance(entry.raw, Mapping):
        role = Fixed(_fixed(entry.raw, where))
        return Parameter(entry.name, role, tuple(found), path=entry.path)
    reading = _reading(entry.name, entry.raw, where)
    if "when" in reading.raw:
        found += _when(reading.raw["when"], where)
    return Parameter(
        entry.name,
        _KINDS[reading.kind](reading),
        tuple(found),
        crossed=reading.kind == "grid",
        path=entry.path,
    )


def _fixed(raw: Any, where: Source) -> Any:
    if isinstance(raw, str) and (remedy := aliases.remedy_for_call(raw)):
        raise where.refuse((), raw, "a value, or a mapping such as {uniform: [0, 1]}", remedy)
    return plain(raw, (), where)


def _when(raw: Any, where: Source) -> tuple[Condition, ...]:
    return conditions.read(plain(raw, ("when",), where), ("when",), where)


def _reading(name: str, raw: Mapping[str, Any], where: Source) -> Reading:
    kinds = [word for word in _READERS if word in raw]
    if raw.keys() & wandb.WORDS and kinds in ([], ["value"]):
        translated = wandb.translate(raw, where)
        kind = next(word for word in _KINDS if word in translated.raw)
        return Reading(name, kind, translated.raw, where, translated.places)
    if len(kinds) != 1:
        raise _no_kind(raw, kinds, where)
    for word in raw:
        _check_companion(word, kinds[0], where)
    return Reading(name, kinds[0], raw, where)


def _no_kind(raw: Mapping[str, Any], kinds: list[str], where: Source) -> Exception:
    allowed = f"exactly one of {', '.join(_READERS)}"
    if kinds:
        return where.refuse((), " and ".join(kinds), allowed)
    strange = next((word for word in raw if word != "when"), None)
    if strange is None:
        return where.refuse((), dict(raw), allowed, "a fixed mapping belongs in config")
    known = (aliases.WORDS[word] for word in raw if word in aliases.WORDS)
    hint = next(known, "") or nearest(strange, _READERS) or "a fixed mapping belongs in config"
    return where.refuse((strange,), strange, allowed, hint)


def _check_companion(word: str, kind: str, where: Source) -> None:
    companions = _COMPANIONS.get(kind, ())
    if word in (kind, "when", *companions):
        return
    hint = nearest(word, ("when", *companions))
    kinds = [other for other, words in _COMPANIONS.items() if word in words]
    if kinds:
        hint = f"{word} stands beside {', '.join(kinds)} only"
    allowed = f"beside {kind} only {', '.join(('when', *companions))}"
    raise where.refuse((word,), word, allowed, hint)


# ---- choices and values ---------------------------------------------------------------------


def _values(reading: Reading) -> tuple[Any, ...]:
    values = reading.value
    allowed = f"a list of 1 to {MOST_CHOICES} different values"
    if not isinstance(values, list | tuple):
        raise reading.refuse(values, allowed)
    if not 1 <= len(values) <= MOST_CHOICES:
        raise reading.refuse(f"a list of {len(values)}", allowed)
    seen: dict[str, int] = {}
    for index, value in enumerate(values):
        path = (reading.kind, index)
        plain(value, reading.places.get(path, path), reading.where)
        first = seen.setdefault(equality_key(value), index)
        if first != index:
            hint = f"it equals {shorten(values[first])}, value {first}; write each value once"
            raise reading.refuse(value, allowed, hint, index)
    return tuple(values)


def _read_choice(reading: Reading) -> Choice:
    values = _values(reading)
    given = [word for word in ("weights", "probabilities") if word in reading.raw]
    if not given:
        return Choice(values)
    if len(given) > 1:
        raise reading.refuse_at((given[1],), given[1], "weights or probabilities, not both")
    return Choice(values, _weights(reading, given[0], len(values)))


def _weights(reading: Reading, word: str, count: int) -> tuple[float, ...]:
    weights = reading.raw[word]
    if not isinstance(weights, list | tuple) or len(weights) != count:
        raise reading.refuse_at((word,), weights, f"a list of {count} numbers, one per value")
    for index, weight in enumerate(weights):
        if instead := real(weight):
            raise reading.refuse_at((word, index), weight, instead)
        if not 1e-12 <= weight <= 1e12:
            hint = "leave out a value that is never to be drawn"
            raise reading.refuse_at((word, index), weight, "a number from 1e-12 to 1e12", hint)
    total = math.fsum(weights)
    if word == "probabilities" and abs(total - 1.0) > _ROUNDING:
        hint = "weights may have any sum"
        raise reading.refuse_at((word,), weights, f"numbers whose sum is 1, not {total:g}", hint)
    return tuple(float(weight) for weight in weights)


def _read_ordinal(reading: Reading) -> Ordinal:
    return Ordinal(_values(reading))


def _read_grid(reading: Reading) -> Choice:
    return Choice(_values(reading))


def _read_value(reading: Reading) -> Fixed | Derived:
    value = reading.value
    if not isinstance(value, str):
        return Fixed(plain(value, (reading.kind,), reading.where))
    try:
        return Derived(Expression(value))
    except ExpressionError as error:
        raise reading.refuse_at(
            (reading.kind,),
            value,
            f"{ALLOWED}, up to {LONGEST} characters",
            f"a fixed value is written bare, {reading.name}: …",
            f"{shorten(value, LONGEST)} {error}",
        ) from error


_READERS: dict[str, Callable[[Reading], Domain | Fixed | Derived]] = {
    "uniform": read_float,
    "loguniform": read_float,
    "randint": read_int,
    "lograndint": read_int,
    "normal": read_normal,
    "lognormal": read_normal,
    "choice": _read_choice,
    "ordinal": _read_ordinal,
    "grid": _read_grid,
    "value": _read_value,
}
#: With W&B's constant, which is never an expression.
_KINDS: dict[str, Callable[[Reading], Domain | Fixed | Derived]] = {
    **_READERS,
    "constant": lambda reading: Fixed(_fixed(reading.value, reading.where)),
}
_COMPANIONS: dict[str, tuple[str, ...]] = {
    "uniform": ("step",),
    "loguniform": ("step",),
    "randint": ("step",),
    "lograndint": ("step",),
    "normal": ("bounds", "step"),
    "lognormal": ("bounds", "step"),
    "choice": ("weights", "probabilities"),
}
#: With one of these a mapping is a parameter and no group.
WORDS = frozenset({*_READERS, "distribution", "values"})

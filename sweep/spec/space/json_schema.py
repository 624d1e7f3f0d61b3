"""JSON Schema of the search-space language, which editors check a file with while it is written.

It says less than `Space.parse` does: neither that a low bound lies below a high one nor that a
condition speaks of a parameter that is there.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sweep.spec.space import wandb
from sweep.spec.space.groups import NAME
from sweep.spec.space.parameters import SIGNS
from sweep.spec.space.reader import COMPANIONS, MOST_CHOICES, WORDS

#: A JSON schema.
Schema = dict[str, Any]

PARAMETER, WHEN, FORBIDDEN = "space.parameter", "space.when", "space.forbidden"
_MAPPING, _GROUP, _WANDB = "space.mapping", "space.group", "space.wandb"
#: Word → its meaning, as editors show it.
_MEANINGS = {
    "uniform": "a number between two bounds, both included",
    "loguniform": "a number between two bounds, spread evenly over magnitudes",
    "randint": "a whole number, both bounds included",
    "lograndint": "a whole number, spread evenly over magnitudes",
    "normal": "a number around a mean: [mean, deviation]",
    "lognormal": "a number whose natural logarithm is normal: [mean, deviation]",
    "choice": "one of these values, which have no order",
    "ordinal": "one of these values, which have an order",
    "grid": "trials take these values in turn",
    "value": "an expression in quotes, computed from other parameters; or a fixed value",
    "step": "the distance of neighbours on a grid",
    "bounds": "[low, high], both included; null for no bound",
    "weights": "relative frequency with which each value is drawn",
    "probabilities": "how often each value is drawn; they sum to 1",
    "when": "the condition under which the parameter is active",
    "parameters": "the parameters of a group, whatever they are called",
}


def ref(name: str) -> Schema:
    """Return the schema that refers to the definition `name`."""
    return {"$ref": f"#/definitions/{name}"}


def definitions() -> dict[str, Schema]:
    """Return name → schema of the definitions; `PARAMETER` is that of one entry of a space."""
    return {
        PARAMETER: {"if": {"type": "object"}, "then": ref(_MAPPING)},
        WHEN: {"anyOf": [{"type": "string", "minLength": 1}, ref(FORBIDDEN)]},
        FORBIDDEN: {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": {"if": _has_any(SIGNS), "then": _comparison()},
        },
        _MAPPING: _mapping(),
        _GROUP: {
            "type": "object",
            "properties": {"when": ref(WHEN)},
            "patternProperties": {f"^(?!when$){NAME.pattern}$": ref(PARAMETER)},
            "additionalProperties": False,
        },
        _WANDB: _wandb_parameter(),
        **{f"space.{word}": _of_kind(word) for word in _kinds()},
    }


def space(
    definitions: Mapping[str, Schema] | None = None,
    patterns: Sequence[str] = (),
    open_: bool = True,
) -> Schema:
    """Return the schema of the key ``space``.

    Args:
        definitions: name of a setting that the trainable has → schema of its parameter.
        patterns: regular expressions of further names, which fit the whole name.
        open_: True if any name is allowed, whatever `patterns` are; without it, only these and
            names that begin with an underscore.
    """
    below = [NAME.pattern] if open_ else ["_.*", *patterns]
    return {
        "type": "object",
        "properties": dict(definitions or {}),
        "patternProperties": {f"^({pattern})$": ref(PARAMETER) for pattern in below},
        "additionalProperties": False,
    }


def of_setting(values: Schema) -> Schema:
    """Return the schema of a parameter in ``space`` for a setting with values of this schema.

    It applies to a fixed value and to the values of a list, but not to the bounds of a range.
    """
    return {
        "allOf": [ref(PARAMETER)],
        "if": {"type": "object"},
        "then": {"patternProperties": {"^(choice|ordinal|grid|values)$": {"items": values}}},
        "else": values,
    }


def _kinds() -> list[str]:
    """Return the keywords that name a kind of parameter, such as ``uniform``."""
    return [word for word in _MEANINGS if word in WORDS]


def _has_any(words: Iterator[str] | Sequence[str] | Mapping[str, Any]) -> Schema:
    """Return a schema that accepts an object with at least one of these keys."""
    return {"type": "object", "anyOf": [{"required": [word]} for word in words]}


def _comparison() -> Schema:
    """Return the schema of a comparison in a condition, such as ``{">=": 2}``."""
    number: Schema = {"type": "number"}
    equal = ("==", "!=")
    return {
        "type": "object",
        "properties": {sign: {} if sign in equal else number for sign in SIGNS},
        "additionalProperties": False,
    }


def _mapping() -> Schema:
    """Return the schema of a mapping in ``space``, which is a parameter or a group.

    The cases are in the order in which `groups` and `reader` distinguish them.
    """
    named = {
        "type": "object",
        "properties": {"parameters": {**space(), "minProperties": 1}, "when": ref(WHEN)},
        "additionalProperties": False,
    }
    members: Schema = {"properties": {"when": {}}, "additionalProperties": {"not": _OBJECT}}
    is_group: Schema = {"type": "object", "not": members}
    is_named = {"properties": {"parameters": _OBJECT}, "required": ["parameters"]}
    ours = [word for word in _kinds() if word != "value"]
    cases = [
        (is_named, named),
        ({"allOf": [{"not": _has_any(sorted(WORDS))}, is_group]}, ref(_GROUP)),
        ({"allOf": [_has_any(sorted(wandb.WORDS)), {"not": _has_any(ours)}]}, ref(_WANDB)),
        *(({"required": [word]}, ref(f"space.{word}")) for word in _kinds()),
    ]
    chain: Schema = _has_any(_kinds())
    for condition, schema in reversed(cases):
        chain = {"if": condition, "then": schema, "else": chain}
    described = {word: {"description": meaning} for word, meaning in _MEANINGS.items()}
    return {"type": "object", "properties": described, **chain}


#: Schema of any mapping.
_OBJECT: Schema = {"type": "object"}


def _of_kind(word: str) -> Schema:
    """Return the schema of a parameter with this keyword, such as ``uniform``."""
    companions = {other: _companion(other) for other in COMPANIONS.get(word, ())}
    schema: Schema = {
        "type": "object",
        "properties": {word: _operand(word), **companions, "when": ref(WHEN)},
        "required": [word],
        "additionalProperties": False,
    }
    if "weights" in companions:
        schema["not"] = {"required": ["weights", "probabilities"]}
    return schema


def _operand(word: str) -> Schema:
    """Return the schema of the value of a kind's keyword, such as ``uniform`` or ``choice``."""
    if word == "value":
        return {}
    if word in ("choice", "ordinal", "grid"):
        return _values()
    if word in ("normal", "lognormal"):
        return _pair({"type": "number"}, {"type": "number", "exclusiveMinimum": 0})
    number: Schema = {"type": "integer" if word.endswith("int") else "number"}
    if word.startswith("log"):
        number["exclusiveMinimum"] = 0
    return _pair(number, number)


def _companion(word: str) -> Schema:
    """Return the schema of the value of a keyword that stands next to a kind, such as ``step``."""
    if word == "step":
        return {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "null"}]}
    if word == "bounds":
        bound: Schema = {"type": ["number", "null"]}
        return _pair(bound, bound)
    return {"type": "array", "items": {"type": "number", "exclusiveMinimum": 0}, "minItems": 1}


def _values() -> Schema:
    """Return the schema of a list of different values."""
    return {"type": "array", "minItems": 1, "maxItems": MOST_CHOICES, "uniqueItems": True}


def _pair(first: Schema, second: Schema) -> Schema:
    """Return the schema of a list of two items, the first and second with these schemas."""
    return {"type": "array", "items": [first, second], "minItems": 2, "maxItems": 2}


def _wandb_parameter() -> Schema:
    """Return the schema of a parameter in the syntax of W&B's sweeps."""
    words: dict[str, Schema] = {
        "distribution": {"enum": list(wandb.DISTRIBUTIONS)},
        "values": _values(),
        "probabilities": _companion("probabilities"),
        "value": {},
        "when": ref(WHEN),
        **{word: {"type": "number"} for word in ("min", "max", "mu", "sigma", "q")},
    }
    named = [
        {
            "if": {"properties": {"distribution": {"const": name}}, "required": ["distribution"]},
            "then": {
                "propertyNames": {"enum": ["distribution", "when", *beside]},
                "required": [word for word in beside if word not in wandb.OPTIONAL],
            },
        }
        for name, beside in wandb.DISTRIBUTIONS.items()
    ]
    unnamed = {
        "anyOf": [
            {"required": ["distribution"]},
            {"propertyNames": {"enum": ["values", "probabilities", "when"]}},
            {"propertyNames": {"enum": ["mu", "sigma", "q", "when"]}},
            {"propertyNames": {"enum": ["min", "max", "q", "when"]}, "required": ["min", "max"]},
        ]
    }
    return {
        "type": "object",
        "properties": words,
        "additionalProperties": False,
        "allOf": [*named, unnamed],
    }

"""Other tools' names of our keywords, with advice on what to write instead."""

import re

#: Keyword of another tool → advice.
WORDS = {
    **dict.fromkeys(
        ("quniform", "suggest_discrete_uniform"), "write {uniform: [low, high], step: q}"
    ),
    "qloguniform": "write {loguniform: [low, high], step: q}",
    "qrandint": "write {randint: [low, high], step: q}",
    "qlograndint": "write {lograndint: [low, high], step: q}",
    **dict.fromkeys(("qnormal", "qrandn"), "write {normal: [mean, deviation], step: q}"),
    "qlognormal": "write {lognormal: [mean, deviation], step: q}",
    **dict.fromkeys(("randn", "gaussian"), "write {normal: [mean, deviation]}"),
    "log_normal": "write {lognormal: [mean, deviation]}",
    "log_uniform": "write {loguniform: [low, high]}",
    "grid_search": "write {grid: [...]}",
    **dict.fromkeys(("sample_from", "lambda", "eval"), 'write {value: "an expression"}'),
    **dict.fromkeys(
        ("categorical", "options", "choices", "suggest_categorical"), "write {choice: [...]}"
    ),
    "ordered": "write {ordinal: [...]}",
    **dict.fromkeys(("suggest_float", "interval"), "write {uniform: [low, high]}, or loguniform"),
    "suggest_int": "write {randint: [low, high]}, or lograndint",
    **dict.fromkeys(("suggest_uniform", "float"), "write {uniform: [low, high]}"),
    "suggest_loguniform": "write {loguniform: [low, high]}",
    "range": "write {randint: [low, high]}, both included",
    "int": "write {randint: [low, high]}",
    **dict.fromkeys(
        ("low", "high"), "write {uniform: [low, high]}, or loguniform, randint, lograndint"
    ),
    "log": "write {loguniform: [low, high]}, or lograndint",
    **dict.fromkeys(("type", "_type"), "the word is the key: {uniform: [low, high]}"),
    "name": "the name is the key: lr: {uniform: [low, high]}",
    "weights": "weights go next to choice: {choice: [a, b], weights: [1, 3]}",
    "probabilities": "they go next to choice: {choice: [a, b], probabilities: [0.25, 0.75]}",
    "bounds": "bounds go next to normal and lognormal; otherwise write {uniform: [low, high]}",
    "step": "a step goes next to a range: {uniform: [0, 1], step: 0.1}",
    **dict.fromkeys(("condition", "conditions", "if", "depends"), "write when"),
    **dict.fromkeys(
        "ab", "a and b belong to beta; write {normal: [mean, deviation], bounds: [0, 1]}"
    ),
}

#: Pattern of a domain written as a call, as in Ray Tune, Hyperopt and Optuna.
_CALL = re.compile(
    r"\s*(?:(?:tune|hp|trial)\.)?"
    r"(q?(?:log)?(?:uniform|randint|normal)|choice|range|interval|tag|glob|grid_search|sample_from"
    r"|randn|suggest_\w+|shuffle|sort)\s*\(.*\)\s*",
    re.DOTALL,
)
#: Keyword of a domain → its form in a spec, for messages.
_WRITTEN = {
    "uniform": "{uniform: [low, high]}",
    "loguniform": "{loguniform: [low, high]}",
    "randint": "{randint: [low, high]}",
    "lograndint": "{lograndint: [low, high]}",
    "normal": "{normal: [mean, deviation]}",
    "lognormal": "{lognormal: [mean, deviation]}",
    "choice": "{choice: [...]}",
    "tag": "{loguniform: [low, high]}",
}


def remedy_for_call(text: str) -> str:
    """Return advice for a text such as ``interval(1e-5, 1e-1)``, a call in another tool's syntax.

    It is empty for other texts.
    """
    called = _CALL.fullmatch(text)
    if called is None:
        return ""
    word = called[1]
    ours = _WRITTEN.get(word)
    return f"write {ours}" if ours else WORDS.get(word, "write {choice: [...]}")

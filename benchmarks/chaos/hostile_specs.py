"""Hostile specs: random changes of the shipped ones and of one with all keys.

Bytes, words, numbers, types and nesting are changed. The rest remains valid, so that the change
reaches all parts of the readers.
"""

import importlib.resources
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")

#: Spec with every key of the language, as the shipped specs use few of them.
RICH = """\
name: rich
trials: 12
trainable: tests.support.quadratic:Quadratic
metric: loss
mode: min
score: {mean_last: 3}
objectives: {size: min, speed/max: max}
constraints: {size: "<= 2"}
aggregate: {lower_bound: 0.9}
seeds: 3
config: {noise: 0.1, nested: {a: [1, 2.5, null], b: {c: "text"}}}
forbid:
  - {filter: mean, layers: {">": 2}}
  - "lr > 0.5 and layers == 1"
initial:
  - {lr: 3e-4, filter: mean}
  - {net: {hidden: [64]}}
space:
  lr: {loguniform: [1e-5, 0.9]}
  clip: {uniform: [0.1, 0.4], step: 0.1, when: {filter: [mean, none]}}
  layers: {randint: [1, 9], step: 2}
  batch: {lograndint: [1, 1024]}
  noise2: {normal: [0, 0.1], bounds: [-1, 1]}
  scale: {lognormal: [0, 0.5], step: 0.01}
  filter: {choice: [none, mean, "x"], weights: [1, 3, 2]}
  kind: {choice: [cnn, mlp], probabilities: [0.25, 0.75]}
  size: {ordinal: [small, medium, large]}
  seeds: {grid: [1, 2, 3]}
  gamma: 0.99
  _rest: {uniform: [0.01, 0.3]}
  lambda_: {value: "1 - _rest"}
  half: {value: "min(clip / 2, layers ** 2) if filter == 'mean' else 0"}
  net:
    when: "layers > 2 or filter == 'none'"
    hidden: {choice: [[64], [256, 256]]}
    drop: {min: 0.0, max: 0.5}
  wandb: {distribution: log_uniform_values, min: 1e-4, max: 1.0}
  many: {values: [1, 2, 3]}
stop: {training_iteration: 9, loss: {"<=": 0.001}, plateau: {patience: 4, min_delta: 0.1}}
budget: {time_s: 100, trials_s: 50}
searcher: {name: random}
scheduler: {name: asha, grace_period: 1, reduction_factor: 3}
checkpoint: {every: 1, keep_last: 2, keep_best: 1, max_disk: 1GB}
resources: {cpu: 1}
limits: {slice_s: 30, trial_s: 3600, trial_memory: 4GB, max_failures: 3, no_progress_s: 60}
deterministic: {batch: 4}
trackers: []
seed: 7
"""

#: Words that replace others.
_WORDS = (
    *("", "null", "~", "true", "on", "0", "-0", "-1", "0.0", "-0.0", "1e-320", "1e308", "1e309"),
    *("010", "0x10", "0o17", "12:30:45", "1_000", ".nan", "-.inf", "2024-01-31", "0.1e", "+5"),
    *(str(2**31), str(2**53 + 1), str(2**63 - 1), str(2**63), "9" * 400, "1" + "0" * 5000),
    *("[]", "{}", "[[]]", "{a: {}}", "[1, [2]]", "[null]", "{'': 1}", "[NaN]", "{1: 2}"),
    *("!!python/object/apply:os.system [id]", "!x 1", "&a [*a]", "*a", "<<: {a: 1}", "---", "..."),
    *("..", "../../etc/passwd", "/dev/zero", "CON", "-rf", "a" * 300, "x" * 3000, "%s{0}%n"),
    *("$(id)", "`id`", "'; drop table trials; --'", "'{{7*7}}'", "a\\0b", '"\\u202e"', '"\\e[2J"'),
    *("é", "e\u0301", "\u202e", "\u2066x", "\ufeff", "\u0000", "\x1b[31m", "😀", "\ud7ff", "\x85"),
    *(
        "os:system",
        "builtins:eval",
        "a.b:c",
        "this:x",
        "sweep.cli.main:main",
        ":",
        "ppo",
        "tpe",
        "asha",
    ),
    *("lr", "lr.x", "_x", "a..b", "model", "filter", "'1 + '", "'(' * 99", "'9**9**9'", "'1/0'"),
    *("'lr if lr else lr'", "'__import__(1)'", "'a.b.c'", "'lr in [1]'", "'not 1'", "'(lr)(lr)'"),
    *("[low, high]", "[1, 0]", "[0, 0]", "[0, 1e400]", "[-1, 1]", "[1, 2, 3]", "[a, b]", "[1]"),
    *("{uniform: [0, 1]}", "{value: lr}", "{value: half}", "{when: {lr: 1}}", "{grid: [1]}"),
    *("https://user:secret@host/x", "sqlite:////etc/passwd", "file:///", "postgresql://a:b@c/d"),
)
_TOKEN = re.compile(r"[^\s,:\[\]{}]+|[\[\]{}:,]")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(\.\d+)?(e-?\d+)?(?![\w.])")
_LINE_WORDS = (*"[]{}:,#&*!|>'\"%@`-?", "- ", "\t", "\r", "\n", "  ")


def shipped_specs() -> list[str]:
    """Return the texts of the shipped specs, and twice `RICH`.

    Specs of MuJoCo are omitted: its import starts a program that searches OpenGL, which the jail
    could not distinguish from an attack.
    """
    files = importlib.resources.files("search_spaces").iterdir()
    texts = [f.read_text(encoding="utf-8") for f in files if f.name.endswith(".yaml")]
    return [*sorted(text for text in texts if "-v5" not in text), RICH, RICH]


def change_spec(stream: np.random.Generator, texts: list[str]) -> bytes:
    """Return one of the texts with one to four random changes."""
    text = _choose(stream, texts)
    for _ in range(int(_choose(stream, (1, 1, 1, 2, 4)))):
        change = _choose(stream, _CHANGES)
        text = change(text, stream)
    content = text.encode("utf-8", "surrogatepass")
    return _change_bytes(content, stream) if stream.random() < 0.1 else content


def _choose(stream: np.random.Generator, values: Sequence[T]) -> T:
    return values[int(stream.integers(len(values)))]


def _change_bytes(content: bytes, stream: np.random.Generator) -> bytes:
    body = bytearray(content)
    for _ in range(int(stream.integers(1, 4))):
        body[int(stream.integers(len(body)))] = int(stream.integers(256))
    return bytes(body)


# ---- changes ----------------------------------------------------------------------------------


def _replace_word(text: str, stream: np.random.Generator) -> str:
    """Replace a word by one of `_WORDS`."""
    found = list(_TOKEN.finditer(text))
    if not found:
        return text
    match = _choose(stream, found)
    return text[: match.start()] + _choose(stream, _WORDS) + text[match.end() :]


def _copy_word(text: str, stream: np.random.Generator) -> str:
    """Replace a word by another word of the text."""
    found = list(_TOKEN.finditer(text))
    if not found:
        return text
    match, other = _choose(stream, found), _choose(stream, found)
    return text[: match.start()] + other[0] + text[match.end() :]


def _change_number(text: str, stream: np.random.Generator) -> str:
    """Change a number."""
    found = list(_NUMBER.finditer(text))
    if not found:
        return text
    match = _choose(stream, found)
    grown = (
        f"-{match[0]}",
        f"{match[0]}e30",
        f"{match[0]}0000000",
        "0",
        "1e-9",
        f"{match[0]}.5",
        "'1'",
    )
    return text[: match.start()] + _choose(stream, grown) + text[match.end() :]


def _replace_value(text: str, stream: np.random.Generator) -> str:
    """Replace the value of a key."""
    lines = text.splitlines(keepends=True)
    index = int(stream.integers(max(1, len(lines))))
    if not lines or ":" not in lines[index]:
        return text
    head, _, _ = lines[index].partition(":")
    lines[index] = f"{head}: {_choose(stream, _WORDS)}\n"
    return "".join(lines)


def _change_lines(text: str, stream: np.random.Generator) -> str:
    """Delete, repeat, exchange or indent a line."""
    lines = text.splitlines(keepends=True)
    if len(lines) < 2:
        return text
    index, to = (int(stream.integers(len(lines))) for _ in range(2))
    kind = int(stream.integers(4))
    if kind == 0:
        del lines[index]
    elif kind == 1:
        lines.insert(to, lines[index])
    elif kind == 2:
        lines[index], lines[to] = lines[to], lines[index]
    else:
        lines[index] = " " * int(stream.integers(9)) + lines[index].lstrip()
    return "".join(lines)


def _nest(text: str, stream: np.random.Generator) -> str:
    """Put a word inside lists or mappings, up to thousands of them."""
    found = list(_TOKEN.finditer(text))
    if not found:
        return text
    match, depth = _choose(stream, found), int(_choose(stream, (1, 2, 20, 40, 3000)))
    opened, closed = ("[", "]") if stream.random() < 0.5 else ("{a: ", "}")
    wrapped: str = opened * depth + match[0] + closed * depth
    return text[: match.start()] + wrapped + text[match.end() :]


def _insert(text: str, stream: np.random.Generator) -> str:
    """Insert a character or a few."""
    index = int(stream.integers(len(text) + 1))
    word: str = _choose(stream, _LINE_WORDS)
    return text[:index] + word + text[index:]


def _cut(text: str, stream: np.random.Generator) -> str:
    """Delete a part of the text."""
    index = int(stream.integers(len(text) + 1))
    return text[:index] + text[index + int(stream.integers(1, 40)) :]


_CHANGES: tuple[Callable[[str, np.random.Generator], str], ...] = (
    _replace_word,
    _replace_word,
    _copy_word,
    _change_number,
    _replace_value,
    _replace_value,
    _change_lines,
    _nest,
    _insert,
    _cut,
)

"""Specs that nobody would write: the ready-made ones and a rich one, changed by chance.

Bytes, words, numbers, types and nesting are changed; what stays the same gets the change deep into
the readers.
"""

import importlib.resources
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")

#: Every word of the language once, for the shipped spaces use few of them.
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


def shipped() -> list[str]:
    """The ready-made specs, and the rich one.

    Not those of MuJoCo, whose import starts a program that looks for OpenGL: a reader that may do
    nothing cannot tell it from an attack.
    """
    files = importlib.resources.files("search_spaces").iterdir()
    texts = [f.read_text(encoding="utf-8") for f in files if f.name.endswith(".yaml")]
    return [*sorted(text for text in texts if "-v5" not in text), RICH, RICH]


def fuzzed(stream: np.random.Generator, texts: list[str]) -> bytes:
    """A spec changed by chance, one to four times."""
    text = _any(stream, texts)
    for _ in range(int(_any(stream, (1, 1, 1, 2, 4)))):
        change = _any(stream, _CHANGES)
        text = change(text, stream)
    content = text.encode("utf-8", "surrogatepass")
    return _flipped(content, stream) if stream.random() < 0.1 else content


def _any(stream: np.random.Generator, of: Sequence[T]) -> T:
    return of[int(stream.integers(len(of)))]


def _flipped(content: bytes, stream: np.random.Generator) -> bytes:
    body = bytearray(content)
    for _ in range(int(stream.integers(1, 4))):
        body[int(stream.integers(len(body)))] = int(stream.integers(256))
    return bytes(body)


# ---- changes ----------------------------------------------------------------------------------


def _token(text: str, stream: np.random.Generator) -> str:
    """Another word in the place of one."""
    found = list(_TOKEN.finditer(text))
    if not found:
        return text
    at = _any(stream, found)
    return text[: at.start()] + _any(stream, _WORDS) + text[at.end() :]


def _token_of_the_text(text: str, stream: np.random.Generator) -> str:
    """A word of the text in the place of another."""
    found = list(_TOKEN.finditer(text))
    if not found:
        return text
    at, other = _any(stream, found), _any(stream, found)
    return text[: at.start()] + other[0] + text[at.end() :]


def _number(text: str, stream: np.random.Generator) -> str:
    found = list(_NUMBER.finditer(text))
    if not found:
        return text
    at = _any(stream, found)
    grown = (f"-{at[0]}", f"{at[0]}e30", f"{at[0]}0000000", "0", "1e-9", f"{at[0]}.5", "'1'")
    return text[: at.start()] + _any(stream, grown) + text[at.end() :]


def _value(text: str, stream: np.random.Generator) -> str:
    """Another value behind a key."""
    lines = text.splitlines(keepends=True)
    at = int(stream.integers(max(1, len(lines))))
    if not lines or ":" not in lines[at]:
        return text
    head, _, _ = lines[at].partition(":")
    lines[at] = f"{head}: {_any(stream, _WORDS)}\n"
    return "".join(lines)


def _lines(text: str, stream: np.random.Generator) -> str:
    """A line goes, comes twice, moves, or is indented otherwise."""
    lines = text.splitlines(keepends=True)
    if len(lines) < 2:
        return text
    at, to = (int(stream.integers(len(lines))) for _ in range(2))
    what = int(stream.integers(4))
    if what == 0:
        del lines[at]
    elif what == 1:
        lines.insert(to, lines[at])
    elif what == 2:
        lines[at], lines[to] = lines[to], lines[at]
    else:
        lines[at] = " " * int(stream.integers(9)) + lines[at].lstrip()
    return "".join(lines)


def _nested(text: str, stream: np.random.Generator) -> str:
    """A word inside lists or mappings, few or thousands."""
    found = list(_TOKEN.finditer(text))
    if not found:
        return text
    at, depth = _any(stream, found), int(_any(stream, (1, 2, 20, 40, 3000)))
    opened, closed = ("[", "]") if stream.random() < 0.5 else ("{a: ", "}")
    wrapped: str = opened * depth + at[0] + closed * depth
    return text[: at.start()] + wrapped + text[at.end() :]


def _inserted(text: str, stream: np.random.Generator) -> str:
    at = int(stream.integers(len(text) + 1))
    word: str = _any(stream, _LINE_WORDS)
    return text[:at] + word + text[at:]


def _cut(text: str, stream: np.random.Generator) -> str:
    """A stretch goes."""
    at = int(stream.integers(len(text) + 1))
    return text[:at] + text[at + int(stream.integers(1, 40)) :]


_CHANGES: tuple[Callable[[str, np.random.Generator], str], ...] = (
    _token,
    _token,
    _token_of_the_text,
    _number,
    _value,
    _value,
    _lines,
    _nested,
    _inserted,
    _cut,
)

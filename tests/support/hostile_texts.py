"""Hostile text for every door: names, settings and whole specs, each with its number in the list.

What is in `NAMES` no sweep may be called. Each of `SPECS` is a file that must be refused.
"""

import unicodedata

NAMES: dict[str, str] = {
    "51 empty": "",
    "51 dot": ".",
    "51 above": "..",
    "51 path above": "../../etc",
    "51 absolute": "/abs",
    "51 path": "a/b",
    "51 backslash": "a\\b",
    "51 300 characters": "a" * 300,
    "51 100 000 characters": "a" * 100_000,
    "51 device": "CON",
    "51 device with an ending": "nul.txt",
    "51 trailing dot": "a.",
    "51 NUL": "a\0b",
    "51 newline": "a\nb",
    "51 like an option": "-rf",
    "51 emoji": "😀",
    "51 composed": "\xe9",
    "51 decomposed": unicodedata.normalize("NFD", "\xe9"),
    "51 right to left": "\u202etini",
    "51 isolate": "\u2066a\u2069",
    "51 no width": "a\u200bb",
    "51 terminal": "\x1b[2J\x1b]0;x\x07",
    "51 half a pair": "a\udc80",
    "51 SQL": "'; DROP TABLE sweep; --",
    "51 format": "%s{0}%n",
    "51 shell": "$(touch canary)",
    "51 backticks": "`touch canary`",
    "51 home": "~root",
    "51 URL": "a?b#c%2e%2e",
    "51 braces": "{x}[y]*",
}

#: Any spec, to be changed; `{}` is where a value goes.
GOOD = """\
name: tiny
trials: 4
trainable: tests.support.quadratic:Quadratic
metric: loss
mode: min
space: {lr: {loguniform: [1e-3, 0.9]}}
stop: {training_iteration: 3}
searcher: random
trackers: []
"""


def _with(old: str, new: str) -> bytes:
    assert old in GOOD
    return GOOD.replace(old, new, 1).encode("utf-8", "surrogatepass")


def _quoted(text: str) -> str:
    """As YAML writes any character at all."""
    return '"' + "".join(f"\\U{ord(character):08x}" for character in text) + '"'


def _space(text: str) -> bytes:
    return _with("{loguniform: [1e-3, 0.9]}", text)


def _value(text: str) -> bytes:
    """A setting of the trainable."""
    return (GOOD + f"config: {{noise: {text}}}\n").encode()


_BOMB = "config:\n  a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"  {name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)

SPECS: dict[str, bytes] = {
    "40 python/object/apply": _value("!!python/object/apply:os.system [touch canary]"),
    "40 python/name": _value("!!python/name:os.system"),
    "41 alias bomb": (GOOD + _BOMB).encode(),
    "41 alias": _with("trials: 4", "trials: &a 4\nseed: *a"),
    "42 duplicate key": (GOOD + "trials: 5\n").encode(),
    "42 duplicate key inside": _space("{uniform: [0, 1], uniform: [0, 2]}"),
    "43 number as text": _space("{uniform: ['1e-3', 1]}"),
    "44 date": _value("2024-01-31"),
    "44 on": _with("trials: 4", "trials: on"),
    "44 minutes": _with("trials: 4", "trials: 12:30:45"),
    **{
        f"45 {text} {place}": _with(old, new.format(text))
        for text in (".nan", ".inf", "-.inf", "1e999")
        for place, old, new in (
            ("in space", "[1e-3, 0.9]", "[1e-3, {}]"),
            ("in stop", "iteration: 3", "iteration: {}"),
            ("as trials", "trials: 4", "trials: {}"),
            ("as a choice", "{loguniform: [1e-3, 0.9]}", "{{choice: [1, {}]}}"),
        )
    },
    "46 low > high": _space("{uniform: [2, 1]}"),
    "46 low == high": _space("{uniform: [1, 1]}"),
    "46 log of 0": _space("{loguniform: [0, 1]}"),
    "46 log below 0": _space("{loguniform: [-1, 1]}"),
    "46 step 0": _space("{uniform: [0, 1], step: 0}"),
    "46 step below 0": _space("{randint: [0, 9], step: -1}"),
    "46 step does not divide": _space("{uniform: [0, 1], step: 0.3}"),
    "47 bound 0.5": _space("{randint: [0.5, 3]}"),
    "47 bound 2^70": _space(f"{{randint: [0, {2**70}]}}"),
    "47 bound 10^400": _space(f"{{randint: [0, {10**400}]}}"),
    **{
        f"48 trials {text}": _with("trials: 4", f"trials: {text}")
        for text in ("-1", "0", "1e12", "10000000", "'10'", "true", "[]", "1.5", "")
    },
    "49 no choices": _space("{choice: []}"),
    "49 1e5 choices": _space(f"{{choice: [{','.join(map(str, range(20_000)))}]}}"),
    "49 duplicates": _space("{choice: [a, b, a]}"),
    "49 1 and 1.0": _space("{choice: [1, 1.0]}"),
    "50 unknown key": _with("trials: 4", "trails: 4"),
    "50 unknown key inside": _space("{unifrom: [0, 1]}"),
    "50 key of 3000 characters": (GOOD + f"{'k' * 3000}: 1\n").encode(),
    **{
        f"51 name {name[3:]}": _with("name: tiny", f"name: {_quoted(text)}")
        for name, text in NAMES.items()
    },
    **{
        f"51 parameter {name[3:]}": _with("{lr:", f"{{{_quoted(text)}:")
        for name, text in NAMES.items()
        if name not in ("51 device", "51 device with an ending", "51 like an option")
    },
    "52 3000 lists": _value("[" * 3000 + "]" * 3000),
    "52 3000 mappings": _value("{a: " * 3000 + "1" + "}" * 3000),
    "52 3000 indents": (
        GOOD + "config:\n" + "".join(" " * i + "a:\n" for i in range(1, 500))
    ).encode(),
    "52 3000 sequences": (GOOD + "config:\n  a: " + "- " * 3000 + "1\n").encode(),
    "53 2 MB": GOOD.encode() + b"#" * 2_000_000,
    "53 100 000 items": _value(f"[{'1,' * 100_000}1]"),
    "53 a long word": _with("trials: 4", f"trials: {'9' * 450_000}"),
    "54 no such module": _with("tests.support.quadratic:Quadratic", "no.such.module:Class"),
    "54 a function of os": _with("tests.support.quadratic:Quadratic", "os:path"),
    "54 a call": _with("tests.support.quadratic:Quadratic", "'os:system(1)'"),
    "empty": b"",
    "NUL": GOOD.encode() + b"\0",
    "control characters": GOOD.encode() + b"config: {noise: '\x1b[2J'}\n",
    "bad UTF-8": GOOD.encode() + b"\xff\xfe",
    "UTF-16": GOOD.encode("utf-16"),
    "half a pair": _with("min", '"\\ud800"'),
    "two documents": (GOOD + "---\n" + GOOD).encode(),
    "merge key": (GOOD + "config:\n  <<: {noise: 1}\n").encode(),
    "a list": b"[1, 2]",
    "expression of calls": _space("{value: \"__import__('os').system('touch canary')\"}"),
    "expression of powers": _space('{value: "9**9**9**9"}'),
    "expression of depth": _space('{value: "' + "(" * 3000 + ")" * 3000 + '"}'),
    "expression of attributes": _space('{value: "().__class__.__mro__"}'),
    "a circle": _with("space: {", 'space: {a: {value: "b"}, b: {value: "a"}, '),
    "a scheduler of os": (GOOD + "scheduler: os:system\n").encode(),
    "a path as a searcher": _with("searcher: random", "searcher: ../../etc/passwd"),
    "a path as a tracker": _with("trackers: []", "trackers: [../../x]"),
    "a schedule that is no file": (
        GOOD + "scheduler: {name: pbt_replay, schedule: /dev/zero}\n"
    ).encode(),
    "a schedule that is a folder": (
        GOOD + "scheduler: {name: pbt_replay, schedule: /etc}\n"
    ).encode(),
}

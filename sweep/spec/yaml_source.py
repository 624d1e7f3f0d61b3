"""YAML text as plain data, with the line of every key; the only reader of YAML.

YAML 1.2 (section 10.3.2, the core schema): ``1e-5`` is a number, ``on`` is text, ``010`` is 10.
Surprising syntax is refused: duplicate keys, anchors and aliases, tags, merge keys, several
documents, dates without quotes, NaN and infinity, control characters, numbers of more than 64 bits.
Mistakes in values are collected, so that the rest is checked too.
"""

import math
import re
import unicodedata
from collections.abc import Iterator
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from sweep.core.errors import BadConfig, Gathering, KeyPath, Place, Source
from trainables.errors import cut, shorten

LARGEST_FILE = 500_000
"""Maximum number of characters in a text, and of bytes in a file."""
DEEPEST = 32
"""Maximum nesting depth of mappings and lists."""
MOST_NODES = 10_000
"""Maximum number of keys and values in a file."""
NUMBERED: frozenset[KeyPath] = frozenset({("seeds",)})
"""Paths of mappings that may have numbers as keys, which are read as text."""

#: Pattern of a decimal integer.
_INT = re.compile(r"[-+]?[0-9]+")
#: Pattern of an octal or hexadecimal integer.
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
#: Pattern of a decimal number.
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
#: Pattern of infinity and NaN.
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
#: Pattern of a date, which is refused without quotes.
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt \t].*)?")
#: Pattern of a number with underscores, which is refused without quotes.
_GROUPED = re.compile(r"[-+]?[0-9][0-9_]*_[0-9_]*(\.[0-9_]*)?([eE][-+]?[0-9]+)?")
#: Integers of this length, in characters, are refused as too large.
_LONGEST_INT = 25
#: Pattern of a character that YAML does not allow.
_UNPRINTABLE = re.compile(
    "[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f-\\x9f\\ud800-\\udfff\\ufffe\\uffff]"
)
#: Text without quotes → value that it stands for.
_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


def read(text: str, file: str) -> tuple[dict[str, Any], Source]:
    """Read YAML text as a mapping of plain data; also return the place of each key and list item.

    Raises BadConfig, with all mistakes, if `text` is not one mapping of plain data; `file` is its
    name in the message.
    """
    value, source, found = survey(text, file)
    found.check()
    return value, source


def survey(text: str, file: str) -> tuple[dict[str, Any], Source, Gathering]:
    """Read YAML text like `read`, but return mistakes in values instead of raising them.

    A scalar with a mistake and an alias are None; a value with an anchor or tag is kept, and so is
    the first value of a repeated key. Raises BadConfig, with the mistakes so far, for bad syntax,
    bad keys, too large a text, and anything but a mapping.
    """
    builder = _Builder(text, Place(file, 1))
    try:
        value = builder.document()
        if not isinstance(value, dict):
            raise builder.refuse((), value, "a mapping, key: value, one per line")
    except BadConfig as error:
        builder.found.add(error)
        builder.found.check()
        raise
    return value, Source(file, builder.marks), builder.found


def read_value(text: str, option: str, above: KeyPath) -> Any:
    """Read the YAML value of an option such as ``--set lr=0.1``.

    Raises BadConfig if `text` is empty or has a mistake.
    `option` is the option's text for messages, and `above` the path of the key that it sets.
    """
    builder = _Builder(text, Place(option), above)
    value = builder.document()
    builder.found.check()
    return value


class _Builder:
    """Builds plain data from the YAML parser's events, and refuses mistakes as early as possible.

    Args:
        start: place of the text, for messages.
        above: path of the data in a larger one, for messages.
    """

    def __init__(self, text: str, start: Place, above: KeyPath = ()) -> None:
        self._text = text
        self._start = start
        self._above = above
        self._nodes = 0
        self.marks: dict[KeyPath, Place] = {(): start}
        self.found = Gathering()

    def refuse(
        self, path: KeyPath, value: object, allowed: str = "", hint: str = "", problem: str = ""
    ) -> BadConfig:
        """Return the BadConfig for a mistake at `path` in the text."""
        source = Source(self._start.file, self.marks, self._above)
        return source.refuse(path, value, allowed, hint, problem)

    def document(self) -> Any:
        """Parse the text, which must be one document; return its value.

        Mistakes in values are only added to `found`; raises BadConfig if the rest is not valid.
        """
        if len(self._text) > LARGEST_FILE:
            size = f"{len(self._text)} characters"
            problem = f"the text has {size}"
            raise self.refuse((), size, f"at most {LARGEST_FILE}", problem=problem)
        if found := _UNPRINTABLE.search(self._text):
            self.marks[()] = self._at_line(self._text.count("\n", 0, found.start()))
            problem = f"the text has a control character, {shorten(found[0])}"
            raise self.refuse((), found[0], hint="remove it", problem=problem)
        self._events: Iterator[Any] = YAML(typ="safe", pure=True).parse(self._text)
        try:
            return self._document()
        except MarkedYAMLError as error:
            raise self._unreadable(error) from error
        except (YAMLError, ValueError, OverflowError) as error:
            raise self.refuse((), str(error), problem=f"cannot be read: {error}") from error

    def _document(self) -> Any:
        """Build the document's value from the parser's events.

        Raises BadConfig for an empty text, a second document, and a ``%YAML`` other than 1.2.
        """
        next(self._events)
        first = next(self._events)
        if isinstance(first, StreamEndEvent):
            raise self.refuse((), None, "a mapping, key: value, one per line", problem="is empty")
        if isinstance(first, DocumentStartEvent) and first.version not in (None, (1, 2)):
            version = ".".join(map(str, first.version))
            problem = f"a YAML file of version {version} is not read, only of 1.2"
            raise self.refuse((), f"%YAML {version}", hint="remove the line", problem=problem)
        value = self._node(next(self._events), ())
        next(self._events)
        after = next(self._events)
        if not isinstance(after, StreamEndEvent):
            self.marks[()] = self._place_of(after)
            problem = "a second YAML document begins here"
            raise self.refuse((), "---", "one document", "split the file", problem)
        return value

    def _node(self, event: Any, path: KeyPath) -> Any:
        """Build the value of the node that `event` begins.

        Mistakes in it are added to `found`. An alias, and a scalar with a mistake, become None; a
        value with an anchor or tag is built still.
        """
        self._check_size(path)
        with self.found.collect():
            self._check_node(event, path)
        match event:
            case SequenceStartEvent():
                return self._sequence(path)
            case MappingStartEvent():
                return self._mapping(path)
            case ScalarEvent():
                with self.found.collect():
                    return self._scalar(event, path)
        return None

    def _scalar(self, event: Any, path: KeyPath) -> Any:
        """Return the value of a scalar: text if it is quoted, else by YAML's core schema.

        Raises BadConfig if it is refused.
        """
        return (self._unquoted if event.implicit[0] else self._printable)(event.value, path)

    def _check_size(self, path: KeyPath) -> None:
        """Count a node; BadConfig if there are too many, or they nest too deep."""
        self._nodes += 1
        if len(path) > DEEPEST:
            deep = f"lists and mappings are nested too deeply here: at most {DEEPEST} are allowed"
            raise self.refuse(path[:4], "…", problem=deep)
        if self._nodes > MOST_NODES:
            many = f"the text has too many keys and values: at most {MOST_NODES} are allowed"
            raise self.refuse(path, "…", problem=many)

    def _check_node(self, event: Any, path: KeyPath) -> None:
        """Raise BadConfig if a node is an alias, or has an anchor or tag."""
        if isinstance(event, AliasEvent):
            raise self._unsupported(path, f"*{event.anchor}", "alias", "write the value out")
        if event.anchor:
            raise self._unsupported(path, f"&{event.anchor}", "anchor", "remove it")
        if event.ctag is not None:
            advice = "remove it, or quote it if it is text"
            raise self._unsupported(path, str(event.ctag), "tag", advice)

    def _unsupported(self, path: KeyPath, text: str, kind: str, hint: str) -> BadConfig:
        """Return the BadConfig for a feature of YAML, of the name `kind`, that specs lack."""
        problem = f"{shorten(text)} is a YAML {kind}, which sweep does not read"
        return self.refuse(path, text, hint=hint, problem=problem)

    def _sequence(self, path: KeyPath) -> list[Any]:
        """Build the list of a sequence at `path` from the events up to its end.

        Stores the place of each item.
        """
        items: list[Any] = []
        while not isinstance(event := next(self._events), SequenceEndEvent):
            below = (*path, len(items))
            self.marks[below] = self._place_of(event)
            items.append(self._node(event, below))
        return items

    def _mapping(self, path: KeyPath) -> dict[str, Any]:
        """Build the dict of a mapping at `path` from the events up to its end.

        Stores the place of each key. A repeated key is added to `found`; its first value counts.
        """
        mapping: dict[str, Any] = {}
        while not isinstance(event := next(self._events), MappingEndEvent):
            key = self._key(event, path)
            key_path, earlier = (*path, key), self.marks.get((*path, key))
            self.marks[key_path] = self._place_of(event)
            value = self._node(next(self._events), key_path)
            if key in mapping:
                hint = f"it is also at {earlier}; remove one of the two"
                twice = "this key is written twice"
                self.found.add(self.refuse(key_path, key, hint=hint, problem=twice))
            mapping.setdefault(key, value)
        return mapping

    def _key(self, event: Any, path: KeyPath) -> str:
        """Return the key in a mapping at `path` that `event` gives; BadConfig if it is not text.

        In mappings in `NUMBERED` a number is allowed, and returned as it is written.
        """
        outer_place = self.marks[path]
        self.marks[path] = self._place_of(event)
        if not isinstance(event, ScalarEvent):
            self._check_node(event, path)
            problem = "a key is a list or mapping, but it must be text"
            raise self.refuse(path, "a list or mapping", problem=problem)
        if event.value == "<<" and event.implicit[0]:
            raise self._unsupported(path, "<<", "merge key", "write the keys out")
        self._check_size(path)
        self._check_node(event, path)
        key = self._scalar(event, path)
        if path in NUMBERED and type(key) in (int, float):
            return str(event.value)
        if not isinstance(key, str):
            problem = f"the key {shorten(key)} is not text"
            raise self.refuse(path, key, hint=f"quote it: '{event.value}'", problem=problem)
        self.marks[path] = outer_place
        return key

    def _unquoted(self, text: str, path: KeyPath) -> Any:
        """Return the value of an unquoted scalar by YAML's core schema.

        Raises BadConfig for dates, digits grouped by ``_``, numbers that are not finite or have
        more than 64 bits, and control characters.
        """
        if text in _WORDS:
            return _WORDS[text]
        if _INT.fullmatch(text) or _BASED.fullmatch(text):
            return self._int(text, path)
        if _FLOAT.fullmatch(text) and math.isfinite(number := float(text)):
            return number
        if _FLOAT.fullmatch(text) or _NOT_FINITE.fullmatch(text):
            raise self.refuse(path, text, "a finite number")
        if _DATE.fullmatch(text):
            problem = f"{shorten(text)} is a date, which sweep does not read"
            raise self.refuse(path, text, hint=f"quote it: '{text}'", problem=problem)
        if _GROUPED.fullmatch(text):
            plain = text.replace("_", "")
            problem = f"{shorten(text)} is a number with _"
            hint = f"write {plain}, or quote it"
            raise self.refuse(path, text, hint=hint, problem=problem)
        return self._printable(text, path)

    def _int(self, text: str, path: KeyPath) -> int:
        """Return the integer in `text`: decimal, 0o or 0x; BadConfig beyond 64 bits with sign."""
        number = int(text, 10 if _INT.fullmatch(text) else 0) if len(text) < _LONGEST_INT else 2**64
        if -(2**63) <= number < 2**63:
            return number
        problem = f"{cut(text, 80)} is too large for a whole number of 64 bits"
        raise self.refuse(path, text, hint="quote it if it is text", problem=problem)

    def _printable(self, text: str, path: KeyPath) -> str:
        """Return `text` unchanged; BadConfig for control characters but newlines and tabs."""
        for character in text:
            if character not in "\n\t" and unicodedata.category(character) in ("Cc", "Cs"):
                problem = f"the text has a control character, {shorten(character)}"
                raise self.refuse(path, text, hint="remove it", problem=problem)
        return text

    def _place_of(self, event: Any) -> Place:
        """Return file and line of a parser's event."""
        return self._at_line(event.start_mark.line)

    def _at_line(self, line: int) -> Place:
        """Return the place of a line, counted from 0; that of the option itself for an option."""
        return self._start if self._start.line is None else Place(self._start.file, line + 1)

    def _unreadable(self, error: MarkedYAMLError) -> BadConfig:
        """Return the BadConfig for a syntax error of the parser.

        Its line becomes the place of the whole text in `marks`.
        """
        mark = error.problem_mark or error.context_mark
        line = "" if mark is None else "".join(self._text.splitlines()[mark.line : mark.line + 1])
        if mark is not None:
            self.marks[()] = self._at_line(mark.line)
        hint = ""
        if "\t" in line:
            hint = "indent with spaces, not tabs"
        elif "mapping values" in str(error.problem):
            hint = "indent keys of one mapping equally, and quote text that contains ': '"
        elif "parsing a block" in str(error.context):
            hint = "indent keys of one mapping, or items of one list, equally"
        problem = f"{shorten(line.strip())} cannot be read: {error.problem}"
        return self.refuse((), line.strip(), "YAML 1.2", hint, problem)

"""Where each setting was written, so that a mistake is answered with its place.

A path is a tuple of mapping keys and list indices, from the top of the spec. A key of the search
space is one element even where it has dots: ``("space", "model.hidden", "choice", 1)``. Lines count
from 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sweep.errors import At, BadConfig, BadSpace

KeyPath = tuple[str | int, ...]
#: Characters of one key that a place shows.
LONGEST_PART = 200
_OF_THE_SPACE = (("space",), ("forbid",), ("initial",))


@dataclass(frozen=True)
class Source:
    """The text that settings were read from; two sources never differ, only what they say does."""

    file: str = field(default="", compare=False)
    """The file as the user named it; empty: not read from a file."""
    marks: Mapping[KeyPath, At] = field(default_factory=dict, compare=False, repr=False)
    """Path → where its key (or list item) stands."""
    above: KeyPath = field(default=(), compare=False)
    """The path that all others are relative to."""

    def below(self, *parts: str | int) -> "Source":
        """The same text, seen from one of its parts."""
        return Source(self.file, self.marks, (*self.above, *parts))

    def at(self, path: KeyPath) -> At:
        """Where `path` is written, or the nearest thing around it that is."""
        full = (*self.above, *path)
        for end in range(len(full), -1, -1):
            if full[:end] in self.marks:
                return self.marks[full[:end]]
        return At(self.file)

    def place(self, path: KeyPath) -> str:
        """`path` in words, for example ``space.lr.loguniform[0]``."""
        text = ""
        for part in (*self.above, *path):
            if isinstance(part, str) and len(part) > LONGEST_PART:
                part = f"{part[: LONGEST_PART - 1]}…"  # noqa: PLW2901 the same part, shorter
            text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
        return text or "the spec"

    def refuse(
        self, path: KeyPath, value: object, allowed: str, hint: str = "", problem: str = ""
    ) -> BadConfig:
        """The error for a mistake at `path`."""
        kind = BadSpace if (*self.above, *path)[:1] in _OF_THE_SPACE else BadConfig
        return kind(self.place(path), value, allowed, hint, at=self.at(path), problem=problem)

"""The console that everything is printed to; it outlives its reader.

On a terminal rich's styles and widths apply. In a pipe or a file there are no control codes and
lines are as long as they need be. When the reader goes away (``| head``, a closed window) or the
disk of a redirected file is full, printing ends and the work goes on; `Terminal.lost` says so.
"""

import contextlib
import os
import sys
from typing import IO, Any, TextIO, cast

from rich.console import Console, Group, RenderableType
from rich.text import Text

#: Columns of what is not a terminal: nothing is cut or wrapped there.
_PIPE_WIDTH = 10_000


class Terminal(Console):
    """A console that goes on when printing fails.

    Args:
        stream: where to print; a terminal gets styles and its own width.
        options: of rich's Console, over those that follow from `stream`.
    """

    def __init__(self, stream: TextIO, **options: Any) -> None:
        interactive = stream.isatty()
        self._lasting = _Lasting(stream)
        chosen: dict[str, Any] = {
            "file": cast("IO[str]", self._lasting),
            "force_terminal": interactive,
            "color_system": "auto" if interactive else None,
            "width": None if interactive else _PIPE_WIDTH,
            "markup": False,
            "emoji": False,
            "highlight": False,
            "force_jupyter": False,  # there it would show everything twice, as HTML too
        }
        super().__init__(**{**chosen, **options})

    def show(self, *renderables: RenderableType, **options: Any) -> None:
        """Print one below the other; what is `whole` is longer than the terminal is wide."""
        shown = Group(*renderables)
        options = {"crop": False, **options}
        if self.is_terminal:
            self.print(shown, **options)
            return
        with self.capture() as captured:
            self.print(shown, **options)
        self._write(captured.get())

    def say(self, text: str) -> None:
        """Print plain text, whatever its length; in a pipe at a tenth of the cost."""
        if self.is_terminal or "\t" in text:
            self.show(Text(text), soft_wrap=True)
        else:
            self._write(f"{Text(text).plain}\n")

    def _write(self, text: str) -> None:
        # A table's last column is filled with blanks, which a pipe need not have.
        self.file.write("".join(f"{line.rstrip()}\n" for line in text.splitlines()))
        self.file.flush()

    @property
    def lost(self) -> OSError | None:
        """Why something could not be printed, if anything could not."""
        return self._lasting.lost

    @property
    def live(self) -> bool:
        """True if lines can be redrawn."""
        return self.is_terminal and not self.is_dumb_terminal


def whole(text: str, style: str = "") -> Text:
    """Text to paste or to parse: the terminal folds its lines, which stay as long as they are."""
    return Text(text, style=style, no_wrap=True, overflow="ignore")


def terminal() -> Terminal:
    """A console on what is standard output now."""
    return Terminal(sys.stdout)


class _Lasting:
    """A stream that accepts everything, also when its reader is gone."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.encoding = stream.encoding
        self.lost: OSError | None = None

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as error:
            self._end(error)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._end(error)

    def _end(self, error: OSError) -> None:
        self.lost = self.lost or error
        silence(self._stream)

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()


def silence(stream: TextIO) -> None:
    """Discard what is in the buffer of `stream`, and what is written to it from now on."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        with contextlib.suppress(OSError, ValueError):  # no file behind it
            os.dup2(nowhere, stream.fileno())
    finally:
        os.close(nowhere)

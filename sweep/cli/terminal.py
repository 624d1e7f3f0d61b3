"""The console for all output, which survives the loss of its reader.

A terminal gets styles and its own width. A pipe or a file gets no control codes and uncut lines. If
the reader is gone (``| head``, a closed window) or the disk of a file is full, output is discarded
and the program continues; `Terminal.failure` has the error.
"""

import contextlib
import os
import sys
from typing import IO, Any, TextIO, cast

from rich.console import Console, Group, RenderableType
from rich.text import Text

#: Width of output that is not a terminal, so that nothing is cut or wrapped.
_PIPE_WIDTH = 10_000


class Terminal(Console):
    """Rich's console for a stream, which continues when output fails.

    Args:
        stream: output; a terminal gets styles and its own width.
        options: options of rich's Console, which replace our defaults.
    """

    def __init__(self, stream: TextIO, **options: Any) -> None:
        interactive = stream.isatty()
        self._lasting = _LastingStream(stream)
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
        """Print renderables one below the other; lines of an `unwrapped` text are not wrapped.

        `options` are those of rich's `print`. In a pipe or a file, lines lose trailing blanks.
        """
        shown = Group(*renderables)
        options = {"crop": False, **options}
        if self.is_terminal:
            self.print(shown, **options)
            return
        with self.capture() as captured:
            self.print(shown, **options)
        self._write(captured.get())

    def say(self, text: str) -> None:
        """Print a line of plain text uncut; in a pipe this is ten times as fast as `show`."""
        if self.is_terminal or "\t" in text:
            self.show(Text(text), soft_wrap=True)
        else:
            self._write(f"{Text(text).plain}\n")

    def _write(self, text: str) -> None:
        """Write text without trailing blanks in its lines, and flush it."""
        # A table's last column is padded with blanks, which a pipe does not need.
        self.file.write("".join(f"{line.rstrip()}\n" for line in text.splitlines()))
        self.file.flush()

    @property
    def failure(self) -> OSError | None:
        """Error of the first output that failed; None if all worked."""
        return self._lasting.failure

    @property
    def is_live(self) -> bool:
        """True if the stream is a terminal on which lines can be redrawn."""
        return self.is_terminal and not self.is_dumb_terminal


def unwrapped(text: str, style: str = "") -> Text:
    """Return rich text whose lines are never wrapped or cut, such as commands to paste."""
    return Text(text, style=style, no_wrap=True, overflow="ignore")


def terminal() -> Terminal:
    """Return a console on the current standard output."""
    return Terminal(sys.stdout)


class _LastingStream:
    """A text stream that discards all output after the first error."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.encoding = stream.encoding
        self.failure: OSError | None = None

    def write(self, text: str) -> int:
        """Write to the stream; after an error, discard the text. Returns its length."""
        try:
            return self._stream.write(text)
        except OSError as error:
            self._end(error)
            return len(text)

    def flush(self) -> None:
        """Flush the stream; after an error, output is discarded."""
        try:
            self._stream.flush()
        except OSError as error:
            self._end(error)

    def _end(self, error: OSError) -> None:
        """Keep the first error in `failure`, and discard further output."""
        self.failure = self.failure or error
        silence(self._stream)

    def isatty(self) -> bool:
        """Return whether the stream is a terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """Return the stream's file descriptor."""
        return self._stream.fileno()


def silence(stream: TextIO) -> None:
    """Discard the buffer of `stream`, and all further output of its file descriptor.

    Does nothing for a stream without one.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        with contextlib.suppress(OSError, ValueError):  # no file behind it
            os.dup2(nowhere, stream.fileno())
    finally:
        os.close(nowhere)

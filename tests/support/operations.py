"""Operations of Python that a part of the package takes: its cost, and the same under load."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from sweep.driver.start import launch

#: The package's own folder; the one around it may have the same name.
OURS = f"{Path(launch.__file__).parents[1]}/"


class Operations:
    """Counts the operations of Python in functions of ours, but for those of the ledger."""

    def __init__(self) -> None:
        self.count = 0

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(before)

    def _enter(self, frame: FrameType, _event: str, _argument: object) -> Any:
        file = frame.f_code.co_filename
        ours = file.startswith(OURS) and not file.startswith(f"{OURS}ledger/")
        if not ours:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._step

    def _step(self, _frame: FrameType, event: str, _argument: object) -> Any:
        self.count += event == "opcode"
        return self._step

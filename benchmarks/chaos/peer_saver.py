"""A process that imports a tool once and saves in child processes, which tests trace.

The module needs only Python. Lines of JSON are read and answered:

    {"do": "save", "folder": F}              → {"pid": P, "token": T} of a child that has saved once
    {"do": "go"}                             → {"saved": k, "token": T} or {"refused": …} for each
                                               of `SAVES` further saves, then {"ended": status}
    {"do": "load", "folder": F, "token": T}  → {"state": …} or {"error": …}, in another child
"""

import ctypes
import json
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

SAVES = 4
#: Option of prctl: any process may trace this one.
_SET_PTRACER, _ANY = 0x59616D61, -1


@dataclass
class Saving:
    """Functions with which a tool saves and loads."""

    prepare: Callable[[str], Any]
    """Returns an object for `save`, given an empty folder."""
    save: Callable[[Any, int], Any]
    """Saves the state of an iteration; returns a token."""
    load: Callable[[str, Any], Any]
    """Returns the state of a token, given the folder."""


def serve(saving: Saving) -> None:
    """Answer the lines of standard input until its end."""
    go = -1
    child = 0
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "save":
            wait, go = os.pipe()
            child = _fork(partial(_save, saving, request["folder"], wait))
            os.close(wait)
        elif request["do"] == "go":
            os.write(go, b"g")
            os.close(go)
            _answer({"ended": os.waitpid(child, 0)[1]})
        else:
            os.waitpid(_fork(partial(_load, saving, request["folder"], request["token"])), 0)


def _fork(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        work()
    except BaseException:  # noqa: BLE001 a child must not run the code of its parent
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _save(saving: Saving, folder: str, wait: int) -> None:
    ctypes.CDLL(None).prctl(_SET_PTRACER, _ANY)
    prepared = saving.prepare(folder)
    _answer({"pid": os.getpid(), "token": saving.save(prepared, 0)})
    os.read(wait, 1)
    for k in range(1, SAVES + 1):
        try:
            token = saving.save(prepared, k)
        except Exception as error:  # noqa: BLE001 after any error nothing is acknowledged
            _answer({"refused": f"{type(error).__name__}: {error}"[:200]})
        else:
            _answer({"saved": k, "token": token})


def _load(saving: Saving, folder: str, token: Any) -> None:
    try:
        _answer({"state": saving.load(folder, token)})
    except Exception as error:  # noqa: BLE001 the error is the answer
        _answer({"error": f"{type(error).__name__}: {error}"[:200]})


def _answer(data: dict[str, Any]) -> None:
    os.writev(
        1, [json.dumps(data).encode() + b"\n"]
    )  # this system call is not among those that fail

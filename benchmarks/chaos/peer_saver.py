"""A process that imports a tool once and saves in children of its own, for tests that trace these.

Nothing but Python. Lines of JSON come in and go out:

    {"do": "save", "folder": F}              → {"pid": P, "token": T}: a child that has saved once
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
#: prctl: any process may trace this one.
_SET_PTRACER, _ANY = 0x59616D61, -1


@dataclass
class Way:
    """A tool's way of saving: functions that prepare, save, and load by a token."""

    prepare: Callable[[str], Any]
    save: Callable[[Any, int], Any]
    load: Callable[[str, Any], Any]


def serve(way: Way) -> None:
    """Answer standard input until it ends."""
    go = -1
    child = 0
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["do"] == "save":
            wait, go = os.pipe()
            child = _forked(partial(_save, way, asked["folder"], wait))
            os.close(wait)
        elif asked["do"] == "go":
            os.write(go, b"g")
            os.close(go)
            _say({"ended": os.waitpid(child, 0)[1]})
        else:
            os.waitpid(_forked(partial(_load, way, asked["folder"], asked["token"])), 0)


def _forked(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        work()
    except BaseException:  # noqa: BLE001 a child must not go on as its parent
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _save(way: Way, folder: str, wait: int) -> None:
    ctypes.CDLL(None).prctl(_SET_PTRACER, _ANY)
    prepared = way.prepare(folder)
    _say({"pid": os.getpid(), "token": way.save(prepared, 0)})
    os.read(wait, 1)
    for k in range(1, SAVES + 1):
        try:
            token = way.save(prepared, k)
        except Exception as error:  # noqa: BLE001 whatever it is, nothing was acknowledged
            _say({"refused": f"{type(error).__name__}: {error}"[:200]})
        else:
            _say({"saved": k, "token": token})


def _load(way: Way, folder: str, token: Any) -> None:
    try:
        _say({"state": way.load(folder, token)})
    except Exception as error:  # noqa: BLE001 that is the answer
        _say({"error": f"{type(error).__name__}: {error}"[:200]})


def _say(what: dict[str, Any]) -> None:
    os.writev(1, [json.dumps(what).encode() + b"\n"])  # a call that is not made to fail

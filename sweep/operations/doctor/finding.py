"""The finding of one look at a part, and the bound on a look's time."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from sweep.errors import SweepError, without_password
from trainables.errors import SigningError, printable

Level = Literal["ok", "warning", "problem"]
#: Seconds by which another machine's clock may differ before it is said.
CLOCK_S = 5.0


class Finding(NamedTuple):
    """One line of the answer."""

    part: str
    level: Level
    seen: str
    todo: str = ""
    """The next step for the user; empty if there is none, or if `seen` names it."""


class Look(NamedTuple):
    """A look at one part, which may raise what it raises."""

    part: str
    at: Callable[[], list[Finding]]
    todo: str
    """The next step for the user where the look fails in an unforeseen way."""


def clock(part: str, whose: str, ahead_s: float) -> Finding:
    """Return the finding about another machine's clock that is `ahead_s` seconds ahead of ours."""
    if abs(ahead_s) <= CLOCK_S:
        return Finding(part, "ok", f"{whose}: its clock is within {CLOCK_S:g} s of this one")
    apart = f"{abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} this machine's"
    return Finding(
        *(part, "warning", f"{whose}: its clock is {apart}"),
        "set both by NTP (for example chrony): certificates and signed requests have dates",
    )


def look_at(looks: Sequence[Look], patience_s: float) -> list[Finding]:
    """Return the findings of all looks, in order; one that takes longer than `patience_s` is left.

    They run at once, in threads that do not keep the process alive.
    """
    found: list[list[Finding]] = [[] for _ in looks]
    threads = [
        threading.Thread(target=_look, args=(look, into), name=look.part, daemon=True)
        for look, into in zip(looks, found, strict=True)
    ]
    until = time.monotonic() + patience_s
    for thread in threads:
        thread.start()
    for look, into, thread in zip(looks, found, threads, strict=True):
        thread.join(max(0.0, until - time.monotonic()))
        if thread.is_alive():
            late = f"no answer within {patience_s:g} s"
            into[:] = [Finding(look.part, "problem", late, f"{look.todo}; --wait waits longer")]
    return [_shown(one) for findings in found for one in findings]


def _look(look: Look, into: list[Finding]) -> None:
    try:
        came = look.at()
    except (SweepError, SigningError) as error:
        came = [_of_error(look, error)]
    except Exception as error:  # noqa: BLE001 a client of a service raises what it likes
        said = " ".join(str(error).split())
        came = [Finding(look.part, "problem", said or type(error).__name__, look.todo)]
    into.extend(came)


def _of_error(look: Look, error: SweepError | SigningError) -> Finding:
    """Our own errors have the next step in them where there is one: behind the last semicolon."""
    seen, _, todo = str(error).rpartition("; ")
    return Finding(look.part, "problem", seen or todo, todo if seen else look.todo)


def _shown(finding: Finding) -> Finding:
    """The same on one line, without a secret."""
    seen, todo = (without_password(printable(text)) for text in (finding.seen, finding.todo))
    return finding._replace(seen=seen, todo=todo)

"""The result of a check, and running checks with a time limit."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from sweep.core.errors import SweepError, without_password
from trainables.errors import SigningError, printable

Level = Literal["ok", "warning", "problem"]
#: Largest difference to another machine's clock that causes no warning, in seconds.
CLOCK_S = 5.0


class Finding(NamedTuple):
    """One line of the result of `sweep doctor`."""

    part: str
    """Name of the checked part, such as ``disk``."""
    level: Level
    """Severity of the finding."""
    seen: str
    """The observation, in words."""
    todo: str = ""
    """Advice for the user; empty if none is needed, or if `seen` contains it."""


class Check(NamedTuple):
    """A check of one part."""

    part: str
    """Name of the checked part, such as ``disk``."""
    run: Callable[[], list[Finding]]
    """Function that returns the findings, or raises an error."""
    todo: str
    """Advice for the user if the check raises an error without advice."""


def clock(part: str, machine: str, ahead_s: float) -> Finding:
    """Return the finding about a machine whose clock is `ahead_s` seconds ahead of ours."""
    if abs(ahead_s) <= CLOCK_S:
        return Finding(part, "ok", f"{machine}: its clock is within {CLOCK_S:g} s of this one")
    apart = f"{abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} this machine's"
    return Finding(
        *(part, "warning", f"{machine}: its clock is {apart}"),
        "set both by NTP (for example chrony): certificates and signed requests have dates",
    )


def run_checks(checks: Sequence[Check], patience_s: float) -> list[Finding]:
    """Return the findings of all checks, in order; a check that takes too long is a problem.

    The checks run at once, in daemon threads, for at most `patience_s` seconds.
    """
    lists: list[list[Finding]] = [[] for _ in checks]
    threads = [
        threading.Thread(target=_run_check, args=(check, into), name=check.part, daemon=True)
        for check, into in zip(checks, lists, strict=True)
    ]
    until = time.monotonic() + patience_s
    for thread in threads:
        thread.start()
    for check, into, thread in zip(checks, lists, threads, strict=True):
        thread.join(max(0.0, until - time.monotonic()))
        if thread.is_alive():
            late = f"no answer within {patience_s:g} s"
            into[:] = [Finding(check.part, "problem", late, f"{check.todo}; --wait waits longer")]
    return [_make_printable(one) for findings in lists for one in findings]


def _run_check(check: Check, findings: list[Finding]) -> None:
    """Run one check, and append its findings, or its error as a finding, to `findings`."""
    try:
        came = check.run()
    except (SweepError, SigningError) as error:
        came = [_finding_of_error(check, error)]
    except Exception as error:  # noqa: BLE001 a client of a service raises what it likes
        said = " ".join(str(error).split())
        came = [Finding(check.part, "problem", said or type(error).__name__, check.todo)]
    findings.extend(came)


def _finding_of_error(check: Check, error: SweepError | SigningError) -> Finding:
    """Return one of our own errors as a finding; its advice is after the last semicolon."""
    seen, _, todo = str(error).rpartition("; ")
    return Finding(check.part, "problem", seen or todo, todo if seen else check.todo)


def _make_printable(finding: Finding) -> Finding:
    """Return a finding on one line, without passwords."""
    seen, todo = (without_password(printable(text)) for text in (finding.seen, finding.todo))
    return finding._replace(seen=seen, todo=todo)

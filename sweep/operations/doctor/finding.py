"""The result of a check, and running checks with a time limit."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from sweep.core.errors import SweepError, without_password
from trainables.errors import SigningError, printable

#: Severity of a finding.
Level = Literal["ok", "warning", "problem"]
#: Largest difference to another machine's clock that causes no warning, in seconds.
CLOCK_S = 5.0


class Finding(NamedTuple):
    """One observation of a check, shown as one line of `sweep doctor`."""

    part: str
    """Name of the checked part, such as ``disk``."""
    level: Level
    """``ok``, ``warning``, or ``problem``, with which the command fails."""
    seen: str
    """The observation, in words."""
    todo: str = ""
    """Advice for the user; empty if none is needed, or if `seen` contains it."""


class Check(NamedTuple):
    """A check that has not run yet, with the advice if it fails."""

    part: str
    """Name of the checked part, such as ``disk``."""
    run: Callable[[], list[Finding]]
    """Function that returns the findings; an error that it raises becomes a problem."""
    todo: str
    """Advice for the user if `run` raises an error that contains none."""


def clock(part: str, machine: str, ahead_s: float) -> Finding:
    """Return a warning if a machine's clock differs from ours by more than `CLOCK_S`, else an ok.

    `part` is the finding's part, `machine` a name for its text. `ahead_s` is the number of seconds
    by which the clock is ahead of this machine's; negative if it is behind.
    """
    if abs(ahead_s) <= CLOCK_S:
        return Finding(part, "ok", f"{machine}: its clock is within {CLOCK_S:g} s of this one")
    apart = f"{abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} this machine's"
    return Finding(
        *(part, "warning", f"{machine}: its clock is {apart}"),
        "synchronise both clocks by NTP (for example with chrony), because certificates and "
        "signed requests contain times",
    )


def run_checks(checks: Sequence[Check], patience_s: float) -> list[Finding]:
    """Run all checks at once in daemon threads; return their findings in the order of the checks.

    A check that has not ended after `patience_s` seconds is left running, and is a problem. The
    findings' texts have no control characters and no passwords.
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
            into[:] = [
                Finding(check.part, "problem", late, f"{check.todo}; or wait longer with --wait")
            ]
    return [_make_printable(one) for findings in lists for one in findings]


def _run_check(check: Check, findings: list[Finding]) -> None:
    """Run one check, and append its findings to `findings`; an error becomes a problem."""
    try:
        came = check.run()
    except (SweepError, SigningError) as error:
        came = [_finding_of_error(check, error)]
    except Exception as error:  # noqa: BLE001 a client of a service raises what it likes
        said = " ".join(str(error).split())
        came = [Finding(check.part, "problem", said or type(error).__name__, check.todo)]
    findings.extend(came)


def _finding_of_error(check: Check, error: SweepError | SigningError) -> Finding:
    """Return an error of ours as a problem; the text after its last semicolon is the advice.

    Without a semicolon, it is the check's own advice.
    """
    seen, _, todo = str(error).rpartition("; ")
    return Finding(check.part, "problem", seen or todo, todo if seen else check.todo)


def _make_printable(finding: Finding) -> Finding:
    """Return a finding whose texts have no control characters and no passwords."""
    seen, todo = (without_password(printable(text)) for text in (finding.seen, finding.todo))
    return finding._replace(seen=seen, todo=todo)

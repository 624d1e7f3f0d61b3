"""Start sweeps, and validate specs, as processes of their own: the commands that a person types.

A sweep's process is the leader of its own session, so it outlives the server and whoever started
that. The server itself loads no trainable.
"""

import fcntl
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sweep.core.errors import SweepError, UsageError
from sweep.driver.start.creation.creating import BY_A_MODEL
from sweep.ledger.folder import Folder, require_regular_file
from sweep.spec import Override
from sweep.views import lookup
from trainables.errors import printable

#: Seconds within which a sweep begins; importing a trainable takes most of them.
BEGIN_S = 120.0
#: Seconds for which a validation trains, and after which it is ended.
TRY_S, VALIDATE_S = 20.0, 180.0
#: Seconds between two looks at a process.
POLL_S = 0.05
#: Maximum number of characters in one word of a command: Linux takes 32 pages of memory.
LONGEST_WORD = 131_000
#: Exit codes of a sweep that ran: done, and with failed trials.
_RAN = (0, 1)


def begin(
    folder: Folder,
    file: Path,
    changes: Sequence[Override],
    jobs: int | None,
    log: Path,
    claim: int,
) -> "subprocess.Popen[bytes]":
    """Start ``sweep run`` as a process, and return it once a driver has the sweep or it has ended.

    Args:
        folder: folder of the new sweep, which the process creates.
        changes: overrides of the spec's keys.
        jobs: number of trials that train at once; None for the default.
        log: file that is replaced by the output of the process; deleted again if the command
            refused the sweep before it existed.
        claim: descriptor of a locked file that the process inherits, and that is unlocked when the
            sweep is driven or has ended: a driver may take minutes to send its last results.

    Raises:
        UsageError: the command refused the sweep; the message is its own. Or the log is a link, or
            an override is too long for a command.
        SweepError: no sweep began within `BEGIN_S` seconds; the process gets SIGTERM.
    """
    named = [*changes, Override("name", folder.name, "name")]
    command = _command("run", file, named, jobs, folder.root)
    require_regular_file(log)
    with log.open("wb") as out:
        process = subprocess.Popen(  # noqa: S603 ours
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            pass_fds=[claim],
            env={**os.environ, BY_A_MODEL: "1"},
        )
    until = time.monotonic() + BEGIN_S
    # A person may start a sweep of this name at the same moment.
    while process.poll() is None and not (folder.by_a_model.exists() and lookup.is_driven(folder)):
        if time.monotonic() > until:
            process.terminate()
            raise SweepError(f"run: the sweep did not start within {BEGIN_S:g} seconds; see {log}")
        time.sleep(POLL_S)
    if process.returncode not in (None, *_RAN):
        said = _refusals(log.read_text(encoding="utf-8", errors="replace"))
        if not folder.by_a_model.exists():
            log.unlink()
        raise UsageError(said)
    fcntl.flock(claim, fcntl.LOCK_UN)
    return process


def validate(
    file: Path, changes: Sequence[Override], jobs: int | None, root: Path
) -> dict[str, Any]:
    """Run ``sweep validate --json`` as a process for at most `VALIDATE_S` seconds; return its data.

    The process trains the spec in `file`, with `changes`, for at most `TRY_S` seconds.

    Raises:
        UsageError: the spec or its trainable is not valid, or the time is up.
    """
    command = _command("validate", file, changes, jobs, root, f"--for={TRY_S:g}", "--json")
    try:
        ended = subprocess.run(  # noqa: S603 ours
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=VALIDATE_S,
            check=False,
            encoding="utf-8",
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"validate: the check took longer than {VALIDATE_S:g} seconds; a person can allow "
            "more time with `sweep validate SPACE --for SECONDS`"
        ) from None
    if ended.returncode:
        raise UsageError(_refusals(ended.stderr))
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def _command(
    verb: str,
    file: Path,
    changes: Sequence[Override],
    jobs: int | None,
    root: Path,
    *options: str,
) -> list[str]:
    """Return the command line ``sweep VERB FILE`` with `changes` as ``--set`` options.

    It also has ``--root``, ``--jobs`` unless that is None, and the further `options`. Raises
    UsageError if the text of a change is longer than Linux allows.
    """
    settings = [f"--set={change.path}={_yaml(change.value)}" for change in changes]
    if longest := [word for word in settings if len(word) > LONGEST_WORD]:
        where = longest[0].partition("=")[2].partition("=")[0]
        raise UsageError(
            f"narrow: the values of {where} have {len(longest[0])} characters, but a command "
            f"takes at most {LONGEST_WORD}; list fewer values, or give between"
        )
    slots = [] if jobs is None else [f"--jobs={jobs}"]
    program = [sys.executable, "-P", "-m", "sweep", verb]
    return [*program, f"--root={root}", *slots, *options, *settings, "--", str(file)]


def _yaml(value: Any) -> str:
    """Return plain data as YAML in ASCII: JSON with an escape of 8 digits for other characters.

    JSON itself writes a pair of surrogates for some characters, which YAML does not read.
    """
    text = json.dumps(value, ensure_ascii=False)
    return re.sub(r"[^ -~]", lambda found: f"\\U{ord(found[0]):08x}", text)


def _refusals(output: str) -> str:
    """Return the messages of ``sweep`` in a command's error output, joined by semicolons.

    Without any, it is the last line, or a text that there is none.
    """
    lines = [line for line in output.splitlines() if line.strip()]
    own = [line.removeprefix("sweep: ") for line in lines if line.startswith("sweep: ")]
    return printable(
        "; ".join(own) or (lines[-1] if lines else "the process ended without a message")
    )

"""Judgement of the answers to hostile files, which are read in a jail.

Each file must be valid, or be refused with a printable line for each of its mistakes, in time and
without side effects: no file may be written, in particular not the canary.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.chaos.store_cases import Failed
from tests.support.attacks import CANARY

#: Seconds of CPU time for one file, at most.
MOST_S = 1.0
#: Characters in a line of a refusal, at most; the longest lists the keys of a trainer.
LONGEST = 4200
#: Lines of a refusal, one for each mistake, at most; more than any of these files has.
MOST_LINES = 100
#: Prefix of each line if there are several: file and position.
_MISTAKE = re.compile(r"\S+:\d+: ")


@dataclass(frozen=True)
class Jail:
    """Process that reads files, and its limits."""

    module: str
    """Module whose main program calls `jail.serve`."""
    memory_mib: int
    """Address space for reading, in MiB, beyond that of the process at its start."""
    limit_s: float
    """Seconds for all files together."""


def read_all(jail: Jail, files: Mapping[str, bytes], good: int | None = None) -> dict[str, Any]:
    """Read all files in a jail; return their figures.

    Args:
        files: name → content.
        good: number of valid files; None if it is not known.

    Raises:
        Failed: an answer is wrong.
    """
    answers = answers_to(jail, files)
    for name, answer in answers.items():
        judge(name, answer)
    accepted = [name for name, answer in answers.items() if answer["result"] == "good"]
    if good is not None and len(accepted) != good:
        raise Failed(f"{len(accepted)} files were accepted: {accepted[:5]}")
    slowest = max(answer["s"] for answer in answers.values())
    return {"files": len(answers), "good": len(accepted), "slowest_s": slowest}


def answers_to(jail: Jail, files: Mapping[str, bytes]) -> dict[str, dict[str, Any]]:
    """Return the reader's answer to each file.

    Raises Failed if a file ended the process, or a file was written.
    """
    scratch = Path(tempfile.mkdtemp(prefix="strangers-"))
    try:
        (scratch / "inside").mkdir()
        names = [f"{number}-{Path(name).suffix}" for number, name in enumerate(files)]
        for name, content in zip(names, files.values(), strict=True):
            (scratch / name).write_bytes(content)
        answers = _answers(jail, scratch, names)
        if list((scratch / "inside").iterdir()) or (scratch / CANARY).exists():
            raise Failed("a file was written")
        return dict(zip(files, answers, strict=True))
    finally:
        shutil.rmtree(scratch)


def judge(name: str, answer: Mapping[str, Any]) -> None:
    """Raise Failed unless the file was refused in lines or is valid, without side effects."""
    if answer["effects"]:
        raise Failed(f"{name}: side effects {answer['effects'][:3]}")
    if answer["result"] == "fault":
        raise Failed(f"{name}: {answer['reason']}")
    if answer["s"] >= MOST_S:
        raise Failed(f"{name}: took {answer['s']} s")
    lines = answer["reason"].split("\n")
    if len(lines) > MOST_LINES:
        raise Failed(f"{name}: the refusal has {len(lines)} lines")
    if len(lines) > 1 and not all(map(_MISTAKE.match, lines)):  # one mistake on several lines
        raise Failed(f"{name}: refused with {lines[:2]!r}, not one mistake per line")
    for line in lines:
        if not line.isprintable() or len(line) > LONGEST:
            raise Failed(f"{name}: refused with {line[:200]!r}, {len(line)} characters")


def _answers(jail: Jail, scratch: Path, names: list[str]) -> list[dict[str, Any]]:
    root = str(Path(__file__).parents[2])
    done = subprocess.run(  # noqa: S603 our own process
        [sys.executable, "-m", jail.module, str(scratch), str(jail.memory_mib)],
        input="".join(f"{name}\n" for name in names),
        capture_output=True,
        text=True,
        cwd=scratch / "inside",
        env={**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        timeout=jail.limit_s,
        check=False,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode or len(answers) != len(names):
        culprit = names[len(answers)] if len(answers) < len(names) else "?"
        raise Failed(f"file {culprit} ended the process ({done.returncode}): {done.stderr[-300:]}")
    return answers

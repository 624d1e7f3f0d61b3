"""Has files from strangers read in a jail, and judges how each was answered.

Each is refused in a printable line for each of its mistakes, or good; in time, without a deed, and
without a trace: no file may be written, and none may be called like the canary.
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

#: Seconds of processor time that one file may take.
MOST_S = 1.0
#: Characters of a line of a refusal, at most: the longest names the keys of a trainer.
LONGEST = 4200
#: Lines of a refusal, one for each mistake of a spec, at most; many more than these files have.
MOST_LINES = 100
#: The beginning of a line that is one of several: the file and the place in it.
_MISTAKE = re.compile(r"\S+:\d+: ")


@dataclass(frozen=True)
class Jail:
    """Which process reads, and what it may use."""

    module: str
    """Its main calls `jail.serve`."""
    memory_mib: int
    """Address space that reading may need beyond what the process has when it begins."""
    limit_s: float
    """Seconds of all files together."""


def survived(jail: Jail, files: Mapping[str, bytes], good: int | None = None) -> dict[str, Any]:
    """Have all files read; `good` is how many of them are, where that is known.

    Raises:
        Failed: one was not answered well.
    """
    answers = answers_to(jail, files)
    for name, answer in answers.items():
        judge(name, answer)
    accepted = [name for name, answer in answers.items() if answer["what"] == "good"]
    if good is not None and len(accepted) != good:
        raise Failed(f"{len(accepted)} of them were accepted: {accepted[:5]}")
    slowest = max(answer["s"] for answer in answers.values())
    return {"files": len(answers), "good": len(accepted), "slowest_s": slowest}


def answers_to(jail: Jail, files: Mapping[str, bytes]) -> dict[str, dict[str, Any]]:
    """Return the reader's answer to each file; raises Failed if one ends it or leaves a trace."""
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
    """Raise Failed unless the file was refused in lines, or is good, in time, without a deed."""
    if answer["did"]:
        raise Failed(f"{name}: it did {answer['did'][:3]}")
    if answer["what"] == "fault":
        raise Failed(f"{name}: {answer['why']}")
    if answer["s"] >= MOST_S:
        raise Failed(f"{name}: took {answer['s']} s")
    lines = answer["why"].split("\n")
    if len(lines) > MOST_LINES:
        raise Failed(f"{name}: says {len(lines)} lines")
    if len(lines) > 1 and not all(map(_MISTAKE.match, lines)):  # one mistake, on several lines
        raise Failed(f"{name}: says {lines[:2]!r}, not a mistake a line")
    for line in lines:
        if not line.isprintable() or len(line) > LONGEST:
            raise Failed(f"{name}: says {line[:200]!r}, {len(line)} characters")


def _answers(jail: Jail, scratch: Path, names: list[str]) -> list[dict[str, Any]]:
    root = str(Path(__file__).parents[2])
    done = subprocess.run(  # noqa: S603 a process of ours
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

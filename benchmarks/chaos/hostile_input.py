"""Specs and ledgers from strangers: each is refused in one line, or good; nothing else happens.

    python -m benchmarks.chaos.hostile_input [--out DIR] [--rounds N] [--seed S]

The listed attacks first, then `FUZZED` specs and `LEDGERS` ledgers per round, made by chance from
good ones. They are read in processes of limited memory and time (`hostile_reader`), which are
watched for processes, sockets and writes.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.chaos.hostile_ledgers import broken, sample
from benchmarks.chaos.hostile_specs import fuzzed, shipped
from benchmarks.chaos.store_cases import Cases, Failed, main
from tests.support.attacks import CANARY
from tests.support.hostile_texts import SPECS
from trainables import rng

#: The module that reads them.
READER = "benchmarks.chaos.hostile_reader"
#: Specs and ledgers of one round, and of one process.
FUZZED, LEDGERS, BATCH = 2000, 400, 1000
#: Address space that reading may need beyond what the process has when it begins, MiB.
MEMORY_MIB = 200
#: Seconds of processor time that one file may take.
MOST_S = 1.0
LIMIT_S = 1200.0
#: Characters of a refusal, at most: the longest names the keys of a trainer.
LONGEST = 4200


def run(out: Path, rounds: int, seed: int) -> int:
    """The list, and so many rounds of changed files; returns how many cases failed."""
    cases = Cases(out, "hostile_input")
    cases.run("the list of attacks", partial(survived, SPECS, good=0))
    texts, ledger = shipped(), sample()
    for number in range(rounds):
        for start in range(0, FUZZED, BATCH):
            stream = rng.generator(seed, "specs", number, start)
            made = {f"{start + i}.yaml": fuzzed(stream, texts) for i in range(BATCH)}
            cases.run(f"seed {seed} round {number} specs from {start}", partial(survived, made))
        stream = rng.generator(seed, "ledgers", number)
        ledgers = {f"{i}.db": broken(stream, ledger) for i in range(LEDGERS)}
        cases.run(f"seed {seed} round {number} ledgers", partial(survived, ledgers))
    return cases.close()


def survived(files: Mapping[str, bytes], good: int | None = None) -> dict[str, Any]:
    """Have all files read by a stranger to them; raises Failed unless they are answered well."""
    answers = answers_to(files)
    for name, answer in answers.items():
        judge(name, answer)
    accepted = sum(answer["what"] == "good" for answer in answers.values())
    if good is not None and accepted != good:
        took = [name for name, answer in answers.items() if answer["what"] == "good"]
        raise Failed(f"{accepted} of them were accepted: {took[:5]}")
    slowest = max(answer["s"] for answer in answers.values())
    return {"files": len(answers), "good": accepted, "slowest_s": slowest}


def answers_to(files: Mapping[str, bytes]) -> dict[str, dict[str, Any]]:
    """What the reader says of each file; raises Failed when one ends it, or leaves a trace."""
    scratch = Path(tempfile.mkdtemp(prefix="hostile-input-"))
    try:
        (scratch / "inside").mkdir()
        names = [f"{number}-{Path(name).suffix}" for number, name in enumerate(files)]
        for name, content in zip(names, files.values(), strict=True):
            (scratch / name).write_bytes(content)
        answers = _answers(scratch, names)
        if list((scratch / "inside").iterdir()) or (scratch / CANARY).exists():
            raise Failed("a file was written")
        return dict(zip(files, answers, strict=True))
    finally:
        shutil.rmtree(scratch)


def _answers(scratch: Path, names: list[str]) -> list[dict[str, Any]]:
    root = str(Path(__file__).parents[2])
    done = subprocess.run(  # noqa: S603 a process of ours
        [sys.executable, "-m", READER, str(scratch), str(MEMORY_MIB)],
        input="".join(f"{name}\n" for name in names),
        capture_output=True,
        text=True,
        cwd=scratch / "inside",
        env={**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        timeout=LIMIT_S,
        check=False,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode or len(answers) != len(names):
        culprit = names[len(answers)] if len(answers) < len(names) else "?"
        raise Failed(f"file {culprit} ended the process ({done.returncode}): {done.stderr[-300:]}")
    return answers


def judge(name: str, answer: Mapping[str, Any]) -> None:
    """Raise Failed unless the file was refused in a line, or is good, in time, without a deed."""
    if answer["did"]:
        raise Failed(f"{name}: it did {answer['did'][:3]}")
    if answer["what"] == "fault":
        raise Failed(f"{name}: {answer['why']}")
    if answer["s"] >= MOST_S:
        raise Failed(f"{name}: took {answer['s']} s")
    if not answer["why"].isprintable() or len(answer["why"]) > LONGEST:
        raise Failed(f"{name}: says {answer['why'][:200]!r}, {len(answer['why'])} characters")


if __name__ == "__main__":
    main(run, rounds=5)

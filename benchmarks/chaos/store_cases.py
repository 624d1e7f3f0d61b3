"""Results of cases: one JSON line per case, so that a long run can be interrupted and continued.

    cases = Cases(out, "store_damage")
    for name in names:
        cases.run(name, lambda: damage(name))     # skipped if the case has passed before
    return cases.close()

A case returns its figures as a dict, or raises `Failed` with the error. The lines are in
``OUT/<part>.jsonl``; a truncated last line is removed.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

#: Seconds between two lines of progress.
PROGRESS_S = 5.0


class Failed(Exception):
    """A condition of a case does not hold; the message describes the error."""


class Cases:
    """Results of the cases of one part.

    Args:
        out: folder of the results; existing ones are read.
    """

    def __init__(self, out: Path, part: str) -> None:
        out.mkdir(parents=True, exist_ok=True)
        self.part = part
        self.file = out / f"{part}.jsonl"
        lines = self.file.read_bytes().splitlines(keepends=True) if self.file.exists() else []
        complete = [line for line in lines if line.endswith(b"\n")]
        self.file.write_bytes(b"".join(complete))
        self.done: dict[str, dict[str, Any]] = {
            found["case"]: found for found in map(json.loads, complete)
        }
        self._printed_at = time.monotonic()

    def run(self, name: str, case: Callable[[], Mapping[str, Any]]) -> bool:
        """Run one case unless it has passed before; return whether it passes."""
        if self.done.get(name, {}).get("ok"):
            return True
        began = time.monotonic()
        try:
            figures, failed = dict(case()), ""
        except Failed as failure:
            figures, failed = {}, str(failure)
        line = {
            "case": name,
            "ok": not failed,
            "s": round(time.monotonic() - began, 4),
            **figures,
            **({"failed": failed} if failed else {}),
        }
        with self.file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")
        self.done[name] = line
        self._print_progress(name, failed)
        return not failed

    def close(self) -> int:
        """Print a summary; return the number of failed cases."""
        failed = [name for name, line in self.done.items() if not line["ok"]]
        _print(f"{self.part}: {len(self.done)} cases, {len(failed)} failed: {self.file}")
        for name in failed[:20]:
            _print(f"  {name}: {self.done[name]['failed']}")
        return len(failed)

    def _print_progress(self, name: str, failed: str) -> None:
        now = time.monotonic()
        if failed:
            _print(f"{self.part}: FAILED {name}: {failed}")
        elif now - self._printed_at > PROGRESS_S:
            self._printed_at = now
            _print(f"{self.part}: {len(self.done)} cases, the last was {name}")


def main(
    run: Callable[..., int], rounds: int, option: str = "", choices: Collection[str] = ()
) -> None:
    """Run the command line of one part: ``python -m benchmarks.chaos.PART [--out DIR] …``.

    Args:
        run: called with the folder, the rounds, the seed, and perhaps a further option.
        rounds: default of ``--rounds``.
        option: name of a further option that is required; empty if there is none.
        choices: values of this option.
    """
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument(
        "--out", type=Path, default=Path("build/chaos"), help="folder of the results"
    )
    parser.add_argument("--rounds", type=int, default=rounds, help="number of rounds")
    parser.add_argument("--seed", type=int, default=0, help="seed of all random choices")
    if option:
        (kind,) = {type(one) for one in choices}
        parser.add_argument(
            f"--{option}", type=kind, choices=list(choices), required=True, help="variant"
        )
    given = vars(parser.parse_args())
    own = {option: given[option]} if option else {}
    sys.exit(1 if run(given["out"], given["rounds"], given["seed"], **own) else 0)


def _print(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()

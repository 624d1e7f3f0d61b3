"""One JSON line per finished case, so that a long run can be stopped, looked at and resumed.

    cases = Cases(out, "store_damage")
    for name in names:
        cases.run(name, lambda: damage(name))     # not again what stands in the file already
    return cases.close()

A case returns its figures as a dict, or raises `Failed` with what is wrong. Lines lie in
``OUT/<part>.jsonl``; a torn last line is cut off.
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
    """The claim of a case is false; the message says where."""


class Cases:
    """The cases of one part of the long run."""

    def __init__(self, out: Path, part: str) -> None:
        out.mkdir(parents=True, exist_ok=True)
        self.part = part
        self.file = out / f"{part}.jsonl"
        lines = self.file.read_bytes().splitlines(keepends=True) if self.file.exists() else []
        whole = [line for line in lines if line.endswith(b"\n")]
        self.file.write_bytes(b"".join(whole))
        self.done: dict[str, dict[str, Any]] = {
            found["case"]: found for found in map(json.loads, whole)
        }
        self._told = time.monotonic()

    def run(self, name: str, case: Callable[[], Mapping[str, Any]]) -> bool:
        """Run one case unless it has passed before; returns whether it passes."""
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
        self._tell(name, failed)
        return not failed

    def close(self) -> int:
        """Print the sum; returns how many cases failed."""
        failed = [name for name, line in self.done.items() if not line["ok"]]
        _print(f"{self.part}: {len(self.done)} cases, {len(failed)} failed: {self.file}")
        for name in failed[:20]:
            _print(f"  {name}: {self.done[name]['failed']}")
        return len(failed)

    def _tell(self, name: str, failed: str) -> None:
        now = time.monotonic()
        if failed:
            _print(f"{self.part}: FAILED {name}: {failed}")
        elif now - self._told > PROGRESS_S:
            self._told = now
            _print(f"{self.part}: {len(self.done)} cases, the last was {name}")


def main(
    run: Callable[..., int], rounds: int, what: str = "", choices: Collection[str] = ()
) -> None:
    """The command line of one part: ``python -m benchmarks.chaos.PART [--out DIR] …``.

    `run` is called with the folder, the rounds and the seed; and with `what`, one of `choices`,
    where the part is one of several.
    """
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/chaos"), help="where lines go")
    parser.add_argument("--rounds", type=int, default=rounds, help="how long it is")
    parser.add_argument("--seed", type=int, default=0, help="what all chance is made from")
    if what:
        (kind,) = {type(one) for one in choices}
        parser.add_argument(
            f"--{what}", type=kind, choices=list(choices), required=True, help="which part"
        )
    given = vars(parser.parse_args())
    own = {what: given[what]} if what else {}
    sys.exit(1 if run(given["out"], given["rounds"], given["seed"], **own) else 0)


def _print(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()

"""A program that knows nothing of us: gradient descent, told and continued by lines and files.

program.py HOW [settings]     HOW: data or files, what its checkpoints are; or never
"""

import json
import os
import random
import sys
from pathlib import Path
from typing import Any

# ruff: noqa: T201, S311  it prints results, and noise is not a secret


def settings() -> dict[str, Any]:
    """However they were given."""
    given = dict(word[2:].split("=", 1) for word in sys.argv[2:] if word.startswith("--"))
    given |= {
        key[6:]: value for key, value in os.environ.items() if key in ("SWEEP_lr", "SWEEP_a_b")
    }
    return given or dict(json.loads(sys.stdin.readline()))


def main() -> None:
    how, given = sys.argv[1], settings()
    state: dict[str, Any] = {"x": 5.0, "i": 0}
    if before := os.environ.get("SWEEP_CHECKPOINT"):
        state = json.loads((Path(before) / "checkpoint.json").read_text())
    print("settings", json.dumps(given, sort_keys=True))
    print("not a result: {", file=sys.stderr)
    for i in range(state["i"] + 1, int(given.get("last", 9)) + 1):
        noise = random.Random(f"{os.environ['SWEEP_SEED']} {i}").gauss(0, 0.1)
        state = {"x": state["x"] - float(given["lr"]) * (state["x"] - 3.0 + noise), "i": i}
        result: dict[str, Any] = {"loss": (state["x"] - 3.0) ** 2, "timesteps_this_iter": 10}
        if how == "data":
            result["checkpoint"] = state
        elif how == "files":
            (Path(os.environ["SWEEP_SAVE"]) / "checkpoint.json").write_text(json.dumps(state))
            result["checkpoint"] = True
        print(json.dumps(result), flush=True)
        if how == "files":
            assert sys.stdin.readline() == "\n"
    if how == "fails":
        print("line 1\n\nline 2 of \x1b[31mred\n\nOh no: line 3", file=sys.stderr)
        sys.exit(3)


if __name__ == "__main__":
    main()

"""A tool with all errors that the comparison of tools must detect.

It leaves a child process and temporary files, ignores the work of a killed run, reports a trial
twice and with a wrong curve, and saves in place.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.chaos.peer_curve import Curve
from benchmarks.chaos.peer_saver import Saving, serve


def run(folder: Path) -> None:
    wait = [sys.executable, "-c", "import time; time.sleep(600)"]
    subprocess.Popen(wait, start_new_session=True)
    tempfile.mkdtemp()
    (folder / "results").mkdir(exist_ok=True)
    trials = []
    for index in (0, 1, 1):
        curve = Curve(index, str(folder))
        losses = [[k + 1, curve.step()] for k in range(6)]
        losses[2:3] = [[2, 0.0]]
        told = {"index": index, "done": True, "ended": True, "charged": False}
        trials.append({**told, "curve": losses, "final": curve.state()})
    trials.append({"index": 2, "done": False, "ended": False, "charged": True, "curve": []})
    (folder / "answer.json").write_text(json.dumps(trials))


def prepare(folder: str) -> tuple[Path, Curve]:
    return Path(folder) / "state.json", Curve(0)


def save(prepared: tuple[Path, Curve], k: int) -> str:
    path, curve = prepared
    while curve.iteration < k:
        curve.step()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.write(file, json.dumps(curve.state()).encode())
    os.close(file)
    return str(path)


def load(_folder: str, token: str) -> Any:
    return json.loads(Path(token).read_text())


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(Path(sys.argv[2]))
    else:
        serve(Saving(prepare, save, load))

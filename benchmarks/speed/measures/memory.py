"""Most memory of a process, MB: ``python -m … import-torch|driver|worker``.

The driver's and a worker's are those of a short sweep of PPO, whose trainer learns without torch.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from benchmarks.speed.measures import clock, sweep_ours

STEPS = 10_240


def peak(process: psutil.Process) -> float:
    """The most that a process has had in memory so far; 0: it is gone."""
    try:
        text = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0.0
    kilobytes = [line.split()[1] for line in text.splitlines() if line.startswith("VmHWM")]
    return float(kilobytes[0]) / 1024 if kilobytes else 0.0


def of_a_sweep(what: str) -> float:
    """That of its driver, or of its larger worker, looked at until it ends."""
    most = 0.0
    with tempfile.TemporaryDirectory() as folder:
        command = sweep_ours.command(Path(folder), STEPS, slots=2)
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL) as running:  # noqa: S603 our own command
            driver = psutil.Process(running.pid)
            while running.poll() is None:
                looked_at = [driver] if what == "driver" else _workers(driver)
                most = max([most, *map(peak, looked_at)])
                time.sleep(0.05)
    if running.returncode:
        raise SystemExit(f"the sweep ended with {running.returncode}")
    return most


def _workers(driver: psutil.Process) -> list[psutil.Process]:
    found = []
    for child in driver.children(recursive=True):
        try:
            if "popen_loky_posix" in " ".join(child.cmdline()):
                found.append(child)
        except psutil.Error:
            continue
    return found


def main() -> None:
    """Tell it."""
    what = sys.argv[1]
    if what == "import-torch":
        import torch  # noqa: F401 what it weighs is asked for

        clock.tell(peak(psutil.Process()))
    else:
        clock.tell(of_a_sweep(what))


if __name__ == "__main__":
    main()

"""Peak memory of a process in MB.

    python -m benchmarks.speed.measures.memory import-torch|driver|worker

Driver and worker are those of a short sweep of PPO, whose trainer learns without torch.
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
    """Return the peak memory of a process until now in MB, or 0 if the process has ended."""
    try:
        text = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0.0
    kilobytes = [line.split()[1] for line in text.splitlines() if line.startswith("VmHWM")]
    return float(kilobytes[0]) / 1024 if kilobytes else 0.0


def peak_in_sweep(role: str) -> float:
    """Run a sweep and return the peak memory in MB of its ``driver`` or its largest ``worker``."""
    largest = 0.0
    with tempfile.TemporaryDirectory() as folder:
        command = sweep_ours.command(Path(folder), STEPS, slots=2)
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL) as command_process:  # noqa: S603 our own command
            driver = psutil.Process(command_process.pid)
            while command_process.poll() is None:
                processes = [driver] if role == "driver" else _workers(driver)
                largest = max([largest, *map(peak, processes)])
                time.sleep(0.05)
    if command_process.returncode:
        raise SystemExit(f"the sweep ended with exit code {command_process.returncode}")
    return largest


def _workers(driver: psutil.Process) -> list[psutil.Process]:
    workers = []
    for child in driver.children(recursive=True):
        try:
            if "popen_loky_posix" in " ".join(child.cmdline()):
                workers.append(child)
        except psutil.Error:
            continue
    return workers


def main() -> None:
    """Measure one process."""
    role = sys.argv[1]
    if role == "import-torch":
        import torch  # noqa: F401 its memory is measured

        clock.print_figure(peak(psutil.Process()))
    else:
        clock.print_figure(peak_in_sweep(role))


if __name__ == "__main__":
    main()

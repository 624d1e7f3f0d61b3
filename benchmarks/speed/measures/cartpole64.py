"""Wall seconds of ``sweep run cartpole_ppo --trials 64 --jobs 2``, from the shell.

Further arguments of the program are added to the command.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.speed.measures import clock

#: The command; with one seed per trial, both sides train about as much.
COMMAND = ("run", "cartpole_ppo", "--trials", "64", "--jobs", "2", "--set", "seeds=1")


def main() -> None:
    """Run the sweep in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        sweep = str(Path(sys.executable).with_name("sweep"))
        began = time.perf_counter()
        subprocess.run(  # noqa: S603 our own command
            [sweep, *COMMAND, *sys.argv[1:]], cwd=folder, check=True, stdout=subprocess.DEVNULL
        )
        clock.print_figure(time.perf_counter() - began)


if __name__ == "__main__":
    main()

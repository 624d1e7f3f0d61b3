"""Python environments for the libraries that sweep is compared with.

These libraries are not dependencies: they are installed under ``build/`` and nowhere else.
"""

import subprocess
import sys
import venv
from pathlib import Path

FOLDER = Path("build") / "peers"
#: Name of a group → packages that its measures import.
PINS = {
    "sb3": (
        "torch==2.13.0",
        "gymnasium==1.4.0",
        "stable-baselines3==2.9.2",
        "sb3-contrib==2.9.2",
        "optuna==5.0.0",
    ),
    "sb3-simulators": (
        "torch==2.13.0",
        "gymnasium==1.4.0",
        "ale-py==0.12.1",
        "box2d==2.3.10",
        "imageio==2.38.1",
        "mujoco==4.0.0",
        "opencv-python-headless==5.0.0.93",
        "packaging==26.3",
        "pygame-ce==2.5.8",
        "stable-baselines3==2.9.2",
    ),
    "sbx": ("torch==2.13.0", "gymnasium==1.4.0", "sbx-rl==0.28.0", "jax==0.10.2"),
    "rejax": ("rejax==0.1.3", "gymnax==0.0.9", "jax==0.10.2", "flax==0.12.8"),
    "ray": ("torch==2.13.0", "ray[tune,rllib]==2.60.0"),
}


def interpreter_of(group: str) -> Path:
    """Return an interpreter with the libraries of a group; install them if they are missing.

    Raises RuntimeError if pip could not install them; the message is pip's last line.
    """
    folder = FOLDER / group
    interpreter, ready = folder / "bin" / "python", folder / "ready"
    pins = "\n".join(PINS[group])
    if ready.exists() and ready.read_text(encoding="utf-8") == pins:
        return interpreter.absolute()
    sys.stderr.write(f"installing {', '.join(PINS[group])} in {folder}\n")
    venv.create(folder, with_pip=True, clear=True)
    process = subprocess.run(  # noqa: S603 pip of the environment that was just made
        [interpreter, "-m", "pip", "install", "--quiet", *PINS[group]],
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode:
        raise RuntimeError(
            f"{folder}: {(process.stderr.strip().splitlines() or ['pip failed'])[-1]}"
        )
    ready.write_text(pins, encoding="utf-8")
    return interpreter.absolute()

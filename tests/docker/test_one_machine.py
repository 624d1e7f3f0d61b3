"""The setup of one machine: its commands work, run here.

No container engine is asked for: each service's command is run as a process, with its folders and
addresses replaced by ours.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.support.command_line import REPOSITORY, environment
from tests.support.ports import free_port

DOCKER = REPOSITORY / "docker"
COMPOSE: Mapping[str, Any] = YAML(typ="safe").load(DOCKER / "one-machine.yaml")
SERVICES: Mapping[str, Mapping[str, Any]] = COMPOSE["services"]
#: Seconds for a server to answer on a busy machine.
PATIENCE_S = 240.0


def here(words: Sequence[str], port: int, data: Path) -> list[str]:
    """A command of a container as it is outside: other folders, other addresses."""
    changes = [
        ("--host=0.0.0.0", "--host=127.0.0.1"),
        ("--port=5000", f"--port={port}"),
        ("mlflow:5000", f"127.0.0.1:{port}"),
        ("127.0.0.1:5000", f"127.0.0.1:{port}"),
        ("/data", str(data)),
    ]
    changed = []
    for word in words:
        for old, new in changes:
            word = word.replace(old, new)  # noqa: PLW2901 one word, changed again and again
        changed.append(word)
    return changed


def run(command: Sequence[str], cwd: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    words = [sys.executable, *command]
    env = {**environment(), **variables}
    return subprocess.run(
        words, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=600
    )


@contextmanager
def served(port: int, data: Path) -> Iterator[None]:
    service = SERVICES["mlflow"]
    assert service["entrypoint"] == ["mlflow"]
    server = subprocess.Popen(
        [sys.executable, "-m", "mlflow", *here(service["command"], port, data)],
        cwd=data,
        env={**environment(), **service["environment"]},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0,
    )
    try:
        yield
    finally:
        os.killpg(server.pid, 9)
        server.wait()


@pytest.mark.proof
def test_the_commands_of_the_file_work_together(tmp_path: Path) -> None:
    port, data, work = free_port(), tmp_path / "data", tmp_path / "work"
    data.mkdir()
    work.mkdir()
    healthy = SERVICES["mlflow"]["healthcheck"]["test"]
    assert healthy[1] == "python"
    probe = here(healthy[2:], port, data)
    assert run(probe, tmp_path).returncode != 0  # before it is there
    with served(port, data):
        deadline = time.monotonic() + PATIENCE_S
        while run(probe, tmp_path).returncode != 0:
            assert time.monotonic() < deadline, "the server does not get healthy"
        sweep = SERVICES["sweep"]
        named = sweep["environment"]
        environment = dict(zip(named, here(named.values(), port, data), strict=True))
        few = ["--trials=2", "--jobs=2", "--set=scheduler=fifo", "--set=stop.timesteps_total=2560"]
        command = ["-m", "sweep.cli.main", *sweep["command"], *few]
        done = run(command, work, **environment)
        assert (done.returncode, "2 of 2 trials" in done.stdout) == (0, True), done.stderr
        resume = ["-m", "sweep.cli.main", "resume", "quickstart", "--trials", "3"]
        assert run(resume, work, **environment).returncode == 0
        runs = _runs(environment["SWEEP_TRACKING_URI"])
    assert runs == 4  # the sweep's own, and one for each trial
    assert not (work / "sweeps" / "mlflow.db").exists()
    assert sweep["healthcheck"]["test"][1:] == ["sweep", "ls"]
    assert run(["-m", "sweep.cli.main", "ls"], work).returncode == 0


def _runs(uri: str) -> int:
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("quickstart")
    assert experiment is not None
    return len(client.search_runs([experiment.experiment_id]))

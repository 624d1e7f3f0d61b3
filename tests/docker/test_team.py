"""The team's setup: what its files lock, and that its services' commands work together, run here.

No container engine is asked for. The services' commands are run as processes, in the order and with
the variables of the compose file; addresses and folders are ours, PostgreSQL is the tests' own and
moto stands where the storage does.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import boto3
import psycopg
import pytest
from mlflow import MlflowClient
from ruamel.yaml import YAML

from sweep.ledger.folder import Folder
from tests.support import postgres, sweeps
from tests.support.command_line import REPOSITORY, environment
from tests.support.ports import free_port
from tests.support.waiting import wait_until

DOCKER = REPOSITORY / "docker"
COMPOSE: Mapping[str, Any] = YAML(typ="safe").load(DOCKER / "compose.yaml")
SERVICES: Mapping[str, Mapping[str, Any]] = COMPOSE["services"]
#: A program of an image, and how it is started here.
PROGRAMS = {
    "python": [sys.executable],
    "mlflow": [sys.executable, "-m", "mlflow"],
    "dask": [sys.executable, "-m", "dask"],
    "sweep": [sys.executable, "-m", "sweep.cli.main"],
}
#: Seconds for a service to be healthy on a busy machine; MLflow makes its tables first.
PATIENCE_S = 300.0
#: Everything of the example sweep but its size.
FEW = ("--trials=2", "--set=scheduler=fifo", "--set=stop.timesteps_total=2560")


def in_order() -> list[str]:
    """The services, each after those that it depends on."""
    order: list[str] = []

    def add(name: str) -> None:
        for earlier in SERVICES[name].get("depends_on", {}):
            add(earlier)
        if name not in order:
            order.append(name)

    for name in SERVICES:
        add(name)
    return order


class Outside:
    """Services as processes of this machine, in `folder` instead of volumes."""

    def __init__(self, folder: Path, server: postgres.Server, storage: int) -> None:
        self.folder = folder
        self.work = folder / "work"
        self.work.mkdir()
        self.mlflow = f"http://127.0.0.1:{(page := free_port())}"
        scheduler = free_port()
        self._changes = {
            r"^PGHOST=postgres$": "PGHOST=127.0.0.1",
            r"^PGPORT=5432$": f"PGPORT={server.port}",
            r"\bpostgres:5432\b": f"127.0.0.1:{server.port}",
            r"\bstorage:9000\b": f"127.0.0.1:{storage}",
            r"\b(mlflow|127\.0\.0\.1):5000\b": f"127.0.0.1:{page}",
            r"^--port=5000$": f"--port={page}",
            r"^--host=0\.0\.0\.0$": "--host=127.0.0.1",
            r"\bscheduler:8786\b": f"127.0.0.1:{scheduler}",
            r"^--port=8786$": f"--port={scheduler}",
            r"\b127\.0\.0\.1:8787\b": f"127.0.0.1:{free_port()}",
            r"/secrets\b": str(folder / "secrets"),
            r"=/tmp$": f"={folder}/scratch",
            r"^/opt/": f"{DOCKER}/",
        }
        self._health = [free_port() for _ in range(SERVICES["worker"]["deploy"]["replicas"])]
        self._ended = contextlib.ExitStack()
        self.finished: set[str] = set()
        self.started: set[str] = set()

    def here(self, word: str, number: int = 0) -> str:
        """A word of the file as it is outside; each replica has a port of its own."""
        word = word.replace(":8788", f":{self._health[number]}")
        for old, new in self._changes.items():
            word = re.sub(old, new, word)
        return word

    def start(
        self, name: str, words: Sequence[str] = (), number: int = 0
    ) -> "subprocess.Popen[bytes]":
        """Start a service, or `words` in its place."""
        service = SERVICES[name]
        command = words or [*service.get("entrypoint", ["sweep"]), *service["command"]]
        program, *rest = (self.here(word, number) for word in command)
        given = (f"{name}={value}" for name, value in service.get("environment", {}).items())
        variables = dict(self.here(one).split("=", 1) for one in given)
        if program == "dask":  # it listens everywhere in its container
            rest.append("--host=127.0.0.1")
        own = ("AWS_", "PG", "SWEEP_", "DASK_", "MLFLOW_")
        bare = {k: v for k, v in environment().items() if not k.startswith(own)}
        self.started.add(name)
        with (self.folder / f"{name}.txt").open("ab") as out:
            process = subprocess.Popen(
                [*PROGRAMS[program], *rest],
                cwd=self.work,
                env={**bare, "HOME": str(self.work), **variables},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._ended.callback(_end, process)
        return process

    def said(self, name: str) -> str:
        """What a service wrote."""
        return (self.folder / f"{name}.txt").read_text()

    def finish(self, name: str, words: Sequence[str] = ()) -> str:
        """Run it to its end, which is a good one; returns what it wrote."""
        code = self.start(name, words).wait(300)
        assert code == 0, self.said(name)
        self.finished.add(name)
        return self.said(name)

    def serve(self, name: str) -> None:
        """Start all replicas of a service, and wait until its own check is content."""
        for number in range(SERVICES[name].get("deploy", {}).get("replicas", 1)):
            self._await_health(name, number, self.start(name, number=number))

    def _await_health(self, name: str, number: int, process: "subprocess.Popen[bytes]") -> None:
        def is_healthy() -> bool:
            assert process.poll() is None, self.said(name)
            program, *words = (
                self.here(word, number) for word in SERVICES[name]["healthcheck"]["test"][1:]
            )
            probe = [*PROGRAMS[program], *words]
            return subprocess.run(probe, capture_output=True, check=False).returncode == 0

        wait_until(is_healthy, PATIENCE_S)

    def close(self) -> None:
        self._ended.close()


def _end(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture
def outside(tmp_path: Path, server: postgres.Server, s3_server: int) -> Iterator[Outside]:
    with contextlib.closing(Outside(tmp_path, server, s3_server)) as made:
        yield made
    with server.admin() as connection:
        for command in (
            *(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)" for name in ("mlflow", "sweeps")),
            *(f"DROP ROLE IF EXISTS {name}" for name in ("mlflow", "sweep", "postgres")),
        ):
            connection.execute(command.encode())


def secrets_of(folder: Path) -> list[str]:
    """Everything that must stand in its own file alone."""
    files = [*folder.glob("secrets/*/password"), folder / "secrets/storage/user"]
    return [file.read_text() for file in files]


@pytest.mark.proof
def test_the_services_commands_lead_the_example_sweep_to_its_end(
    outside: Outside, server: postgres.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert in_order()[0] == "keys"
    for name in in_order():
        for earlier, how in SERVICES[name].get("depends_on", {}).items():
            assert (earlier in outside.finished) == (
                how["condition"] == "service_completed_successfully"
            )
        if name == "postgres":  # the image makes its administrator of this file
            password = outside.here(SERVICES[name]["environment"]["POSTGRES_PASSWORD_FILE"])
            create = psycopg.sql.SQL("CREATE ROLE postgres SUPERUSER LOGIN PASSWORD {}")
            with server.admin() as connection:
                connection.execute(create.format(psycopg.sql.Literal(Path(password).read_text())))
        elif name in ("keys", "stores"):
            outside.finish(name)
            outside.finish(name)  # at the next start: what is there stays
        elif name == "sweep":
            command = SERVICES[name]["command"]
            assert "2 of 2 trials" in outside.finish(name, ["sweep", *command, *FEW])
        elif name != "storage":  # moto answers already
            outside.serve(name)
    monkeypatch.setenv("HOME", str(outside.work))  # with the key that signed where the ledger lies
    for variable in ("PGSERVICE", "PGSERVICEFILE"):
        monkeypatch.setenv(variable, outside.here(SERVICES["sweep"]["environment"][variable]))
    past = sweeps.history(Folder(outside.work / "sweeps", "first"))
    assert past.pool.startswith("dask@tls://")
    assert (outside.work / "sweeps/first/sweep.postgresql").exists()
    assert not (outside.work / "sweeps/mlflow.db").exists()
    kept = boto3.client("s3").list_objects_v2(Bucket="checkpoints", Prefix="team/first-")
    assert any("/trials/" in key["Key"] for key in kept["Contents"])
    artifacts = boto3.client("s3").list_objects_v2(Bucket="mlflow")
    assert artifacts["KeyCount"] > 0
    client = MlflowClient(outside.mlflow)
    experiment = client.get_experiment_by_name("first")
    assert experiment is not None
    assert len(client.search_runs([experiment.experiment_id])) == 3  # the sweep, and two trials
    written = "".join(outside.said(name) for name in outside.started)
    assert not [secret for secret in secrets_of(outside.folder) if secret in written]

"""`sweep doctor`: what is well, what is not, and what to do, of real parts."""

import contextlib
import json
import os
import re
import socket
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from sweep.cli.main import main
from sweep.operations.doctor import finding, machine
from sweep.operations.doctor.finding import Check, Finding
from sweep.pools._shared import cluster as cluster_pool
from tests.support import mlflow_server, postgres, s3, sweeps
from tests.support.cluster import running
from tests.support.ports import free_port
from tests.support.ray_cluster import RayCluster
from tests.support.waiting import wait_until
from trainables.checkpoint import signing
from trainables.checkpoint.remote import Remote

Rows = Mapping[str, list[dict[str, str]]]
#: Seconds that each part may take on a busy machine, where a test is not about that.
PATIENCE_S = 120


class Doctor:
    """Runs the command in this process; its rows by part."""

    def __init__(self, captured: pytest.CaptureFixture[str], root: Path) -> None:
        self.captured = captured
        self.root = root
        self.text = ""

    def __call__(self, *words: object, code: int = 0) -> Rows:
        self.captured.readouterr()
        patience = () if "--wait" in words else ("--wait", PATIENCE_S)
        given = ["doctor", *map(str, (*words, *patience)), "--root", str(self.root), "--json"]
        ended = main(given)
        out, err = self.captured.readouterr()
        self.text = out + err
        assert ended == code, self.text
        rows: dict[str, list[dict[str, str]]] = {}
        for row in json.loads(out):
            rows.setdefault(row["part"], []).append(row)
        return rows


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Doctor:
    return Doctor(capsys, tmp_path / "sweeps")


@contextlib.contextmanager
def mute() -> Iterator[int]:
    """The port of a server that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


def levels(rows: Rows) -> set[str]:
    return {row["level"] for part in rows.values() for row in part}


def test_this_machine_is_well_and_nothing_is_left_in_it(doctor: Doctor) -> None:
    rows = doctor()
    assert {"packages", "root", "disk", "key", "memory"} == rows.keys()
    assert "problem" not in levels(rows)
    assert "torch" in rows["packages"][0]["seen"]
    assert list(doctor.root.parent.iterdir()) == []


def test_a_person_reads_one_line_for_each_check(
    doctor: Doctor, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--root", str(doctor.root)]) == 0
    out, _ = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines()[1:3]] == ["packages", "root"]


def test_a_root_that_takes_nothing_is_a_problem(doctor: Doctor) -> None:
    doctor.root = Path("/proc")
    (row,) = doctor(code=2)["root"]
    assert row["level"] == "problem"
    assert "/proc: nothing can be written there" in row["seen"]
    assert "--root" in row["todo"]


def test_a_full_disk_and_a_small_container_are_warnings(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LOW_DISK", "LOW_SHARED", "LOW_MEMORY"):
        monkeypatch.setattr(machine, name, 10**18)
    rows = doctor()
    assert [row["level"] for row in (*rows["disk"], *rows["memory"])] == ["warning"] * 3
    assert "sweep gc" in rows["disk"][0]["todo"]
    assert "--jobs 1" in rows["memory"][0]["todo"]


def test_shared_memory_that_cannot_be_written_is_a_problem(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.access

    def read_only(path: Path, mode: int) -> bool:
        return path != machine._SHARED and real(path, mode)

    monkeypatch.setattr(os, "access", read_only)
    row = doctor(code=2)["memory"][-1]
    assert row["level"] == "problem"
    assert "cannot be written" in row["seen"]
    assert "--pool inline" in row["todo"]


def test_a_key_that_others_can_read_is_a_problem(
    doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "config/sweep/key"
    key.parent.mkdir(parents=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (row,) = doctor()["key"]
    assert "you have no signing key yet" in row["seen"]
    assert not key.exists()
    key.write_bytes(os.urandom(32))
    key.chmod(0o644)
    (row,) = doctor(code=2)["key"]
    assert (row["level"], row["todo"]) == ("problem", f"chmod 600 {key}, if it is yours")


def test_packages_that_do_not_fit_are_named() -> None:
    required = ["numpy<1", "no-such-thing>=1", "torch>=2", "absent-extra>=1; extra == 'x'"]
    wrong, missing = machine.unmet_requirements(required)
    assert wrong.startswith("numpy is ")
    assert wrong.endswith(", but <1 is required")
    assert missing == "no-such-thing is not installed"


def test_a_part_that_hangs_costs_its_patience_and_no_more() -> None:
    release = threading.Event()

    def hang() -> list[Finding]:
        release.wait()
        return []

    (slow,) = finding.run_checks([Check("slow", hang, "wait")], 0.2)
    release.set()
    assert (slow.level, slow.seen) == ("problem", "no answer within 0.2 s")
    assert "--wait" in slow.todo


def test_an_error_of_any_kind_is_one_line_without_a_secret() -> None:
    def fail() -> list[Finding]:
        raise RuntimeError("https://me:hunter2@host/?token=hunter2\nrefused\x1b[31m")

    (row,) = finding.run_checks([Check("it", fail, "see it")], 10)
    assert row == Finding("it", "problem", "https://***@host/?token=*** refused\\x1b[31m", "see it")


@pytest.mark.parametrize(("ahead_s", "level"), [(0.5, "ok"), (-90.0, "warning"), (9.0, "warning")])
def test_a_clock_that_differs_is_said(ahead_s: float, level: str) -> None:
    row = finding.clock("dask", "worker a", ahead_s)
    assert row.level == level
    if level == "warning":
        direction = "ahead of" if ahead_s > 0 else "behind"
        assert f"{abs(ahead_s):.0f} s {direction} this machine's" in row.seen
        assert "NTP" in row.todo


# ---- the database -------------------------------------------------------------------------------


def test_a_database_in_which_a_sweep_can_lie_is_well_and_stays_empty(
    doctor: Doctor, server: postgres.Server, storage_url: str
) -> None:
    rows = doctor("--storage", storage_url)
    reached, clock, careless = rows["database"]
    assert (reached["level"], clock["level"], careless["level"]) == ("ok", "ok", "warning")
    assert "fsync = off, full_page_writes = off" in careless["seen"]  # as the tests start theirs
    assert "postgresql.conf" in careless["todo"]
    assert reached["seen"].startswith("PostgreSQL ")
    assert postgres.PASSWORD not in doctor.text
    with server.admin(storage_url.rpartition("/")[2]) as connection:
        query = "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'sweep%'"
        assert connection.execute(query).fetchall() == []


def test_a_database_without_the_right_to_make_schemas_is_a_problem(
    doctor: Doctor, server: postgres.Server, storage_url: str, tmp_path: Path
) -> None:
    with server.admin() as connection:
        connection.execute(f"CREATE ROLE guest LOGIN PASSWORD '{postgres.PASSWORD}'".encode())
    passfile = tmp_path / "pgpass"
    passfile.write_text(f"127.0.0.1:{server.port}:*:guest:{postgres.PASSWORD}\n")
    passfile.chmod(0o600)
    url = f"{storage_url.replace('sweeper', 'guest')}?passfile={passfile}"
    (row,) = doctor("--storage", url, code=2)["database"]
    assert row["level"] == "problem"
    assert "permission denied" in row["seen"]
    assert "GRANT CREATE ON DATABASE" in row["todo"]
    assert postgres.PASSWORD not in doctor.text


def test_a_database_that_is_not_there_or_says_nothing_is_one_line(doctor: Doctor) -> None:
    nobody = f"postgresql+psycopg://me@127.0.0.1:{free_port()}/sweeps"
    (row,) = doctor("--storage", nobody, code=2)["database"]
    assert "refused" in row["seen"]
    assert "***@127.0.0.1" in row["seen"]
    assert ", schema" not in row["seen"]
    with mute() as port:
        url = f"postgresql+psycopg://127.0.0.1:{port}/sweeps"
        (row,) = doctor("--storage", url, "--wait", 1, code=2)["database"]
    assert row["seen"] == "no answer within 1 s"


def test_a_password_in_a_url_is_refused_and_not_shown(doctor: Doctor) -> None:
    (row,) = doctor("--storage", "postgresql+psycopg://me:hunter2@host/db", code=2)["database"]
    assert "the URL contains a password" in row["seen"]
    assert "hunter2" not in doctor.text


# ---- object storage -----------------------------------------------------------------------------


def test_storage_that_takes_a_small_file_is_well_and_stays_empty(
    doctor: Doctor, s3_url: str
) -> None:
    rows = doctor("--checkpoints", s3_url)
    assert [row["level"] for row in rows["checkpoints"]] == ["ok", "ok"]
    assert Remote(s3_url).sizes() == {}
    assert s3.SECRET not in doctor.text


def test_storage_on_a_disk_makes_no_folder(doctor: Doctor, tmp_path: Path) -> None:
    url = (tmp_path / "far/below").as_uri()
    assert levels({"it": doctor("--checkpoints", url)["checkpoints"]}) == {"ok"}
    assert list(tmp_path.iterdir()) == []


def test_a_bucket_that_is_not_there_is_a_problem(doctor: Doctor, s3_server: int) -> None:
    given = ("--checkpoints", "s3://no-such-bucket/x")
    (row,) = doctor(*given, code=2)["checkpoints"]
    assert row["seen"].startswith("nothing can be written: s3://no-such-bucket/x")
    assert "bucket" in row["todo"]
    assert s3.SECRET not in doctor.text


# ---- Dask ---------------------------------------------------------------------------------------


def test_a_cluster_is_asked_for_workers_versions_keys_and_clocks(
    doctor: Doctor, tmp_path: Path
) -> None:
    signing.user_trust()
    (tmp_path / "cluster").mkdir()
    with running(tmp_path / "cluster", 0) as cluster:
        doctor.root = tmp_path / "sweeps"
        (row,) = doctor("--address", cluster.address)["dask"]
        assert row["level"] == "warning"
        assert "has no worker yet" in row["seen"]
        cluster.add("a")
        cluster.add("keyless", XDG_CONFIG_HOME=str(tmp_path / "cluster/none"))
        wait_until(lambda: cluster.joined == 2)
        rows = doctor("--address", cluster.address)["dask"]
        assert "2 workers with the same versions and access" in rows[0]["seen"]
        clocks = {row["seen"].split(":")[0] for row in rows[1:3]}
        assert clocks == {"worker a", "worker keyless"}
        assert [row["level"] for row in rows] == ["ok", "ok", "ok", "warning"]
        assert "lacks your signing key" in rows[3]["seen"]
        assert rows[3]["todo"] == "copy ~/.config/sweep/key to it"
    assert [path.name for path in tmp_path.iterdir()] == ["cluster"]


@pytest.mark.slow
def test_a_ray_cluster_is_asked_for_the_same(
    doctor: Doctor, ray_cluster: RayCluster, tmp_path: Path
) -> None:
    signing.user_trust()
    given = ("--pool", "ray", "--address", ray_cluster.address)
    first, *clocks = doctor(*given)["ray"]
    assert re.fullmatch(
        rf"{ray_cluster.address}, with a token: \d workers? with the same versions and access .*",
        first["seen"],
    )
    assert clocks
    assert {row["seen"].split("/")[0] for row in clocks} == {"worker head"}
    assert {first["level"], *(row["level"] for row in clocks)} == {"ok"}, clocks
    assert list(tmp_path.iterdir()) == []


def test_an_address_of_another_engine_or_for_a_local_pool_is_refused(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0" * 64)
    (row,) = doctor("--pool", "ray", "--address", "tls://192.0.2.1:8786", code=2)["ray"]
    assert "is not an address of a Ray head" in row["seen"]
    (row,) = doctor("--pool", "ray", code=2)["ray"]
    assert row["seen"] == "--address: the pool ray needs the address of a cluster"
    assert "the head's host and port" in row["todo"]
    (row,) = doctor("--pool", "loky")["loky"]
    assert row["seen"] == "it runs on this machine, without a cluster"


def test_a_cluster_that_is_open_is_away_or_says_nothing_is_one_line(
    doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (row,) = doctor("--address", "192.0.2.1:8786", code=2)["dask"]
    assert "can run code there" in row["seen"]
    monkeypatch.setattr(cluster_pool, "CONNECT_S", 0.2)
    with mute() as port:
        (row,) = doctor("--address", f"127.0.0.1:{port}", code=2)["dask"]
    assert f"no usable Dask scheduler at tcp://127.0.0.1:{port}" in row["seen"]
    assert list(tmp_path.iterdir()) == []


# ---- MLflow -------------------------------------------------------------------------------------


@pytest.mark.proof
def test_a_tracking_server_is_only_read(doctor: Doctor, tmp_path: Path) -> None:
    port = free_port()
    with mlflow_server.serving(f"sqlite:///{tmp_path}/mlflow.db", port):
        (row,) = doctor("--tracking-uri", f"http://127.0.0.1:{port}")["mlflow"]
    assert row["level"] == "ok"
    assert "its experiments can be read" in row["seen"]


class _Answers(BaseHTTPRequestHandler):
    """Has nothing for anybody: the code stands in the path."""

    def do_GET(self) -> None:
        self.send_response(int(self.path.split("/")[1]))
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.mark.parametrize(
    ("code", "seen", "todo"),
    [
        (401, "refuses access (status 401)", "set MLFLOW_TRACKING_USERNAME"),
        (
            404,
            "is not an MLflow server (status 404)",
            "check that `mlflow server` is running there",
        ),
    ],
)
def test_a_server_that_refuses_or_is_another_is_a_problem(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch, code: int, seen: str, todo: str
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "me")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "hunter2")
    with ThreadingHTTPServer(("127.0.0.1", 0), _Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        uri = f"http://127.0.0.1:{server.server_port}/{code}"
        (row,) = doctor("--tracking-uri", uri, code=2)["mlflow"]
        server.shutdown()
    assert seen in row["seen"]
    assert row["todo"].startswith(todo)
    assert "hunter2" not in doctor.text


def test_a_tracking_server_that_is_away_or_none_is_one_line(doctor: Doctor) -> None:
    uri = f"http://me:hunter2@127.0.0.1:{free_port()}"
    (row,) = doctor("--tracking-uri", uri, code=2)["mlflow"]
    assert "mlflow server" in row["todo"]
    (wrong,) = doctor("--tracking-uri", "ftp://me:hunter2@host", code=2)["mlflow"]
    assert wrong["todo"].startswith("expected a URI that begins with http")
    (unasked,) = doctor("--tracking-uri", "postgresql://me:hunter2@host/db")["mlflow"]
    assert unasked["level"] == "warning"
    assert "hunter2" not in doctor.text


# ---- of a sweep ---------------------------------------------------------------------------------


def test_with_a_name_the_parts_of_that_sweep_are_examined(
    doctor: Doctor, storage_url: str, s3_url: str
) -> None:
    folder = sweeps.make(doctor.root.parent, storage=storage_url, checkpoints=s3_url)
    doctor.root = folder.root
    rows = doctor(folder.name)
    assert {"database", "checkpoints"} <= rows.keys()
    assert "problem" not in levels(rows)
    assert {"mlflow", "dask"}.isdisjoint(rows)
    assert "database" not in doctor()


def test_a_sweep_of_somebody_else_is_not_asked_with_ones_own_credentials(
    doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = sweeps.make(tmp_path)
    said: dict[str, Any] = {"uri": "http://127.0.0.1:1/", "url": "s3://elsewhere/x"}
    for path in (folder.tracking_uri, folder.checkpoints):
        path.write_text(json.dumps(said))
    doctor.root = folder.root
    rows = doctor(folder.name, code=2)
    assert "was written by another user" in rows["mlflow"][0]["seen"]
    assert "another user chose" in rows["checkpoints"][0]["seen"]
    assert rows["checkpoints"][0]["todo"].startswith("to accept their choice, run `sweep trust")

"""The ground on which every test stands: signals of a terminal arrive, a key of the tests' own.

A background job of a shell and nohup ignore SIGINT and SIGHUP, and children inherit that. A machine
that only tests a GPU has few packages: servers and clusters are imported by the fixtures that start
them.
"""

import contextlib
import gc
import importlib.util
import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support import processes

if TYPE_CHECKING:
    from tests.support.postgres import Server
    from tests.support.ray_cluster import RayCluster

GPU = "gpu"
_FAILED = pytest.StashKey[bool]()

signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

with contextlib.suppress(ImportError):  # a machine that only tests a GPU has none
    from hypothesis import HealthCheck, settings

    # Tests hold on a slow machine: a property fails by what it finds, never by how long it takes.
    settings.register_profile("sweep", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("sweep")


def pytest_addoption(parser: pytest.Parser) -> None:
    if importlib.util.find_spec("pytest_timeout") is None:
        parser.addini("timeout", "of pytest-timeout, which is not installed: no test is cut off")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect once what later costs less: files of compiled modules, and objects that stay.

    Where PYTHONDONTWRITEBYTECODE is set, each process that a test starts would compile our modules
    anew, and each worker the tests. What is there after the collection stays until the end, so
    Python's collector of garbage need not look at it again and again.
    """
    keeps_none, sys.dont_write_bytecode = sys.dont_write_bytecode, False
    gc.disable()
    try:
        return (yield)
    finally:
        sys.dont_write_bytecode = keeps_none
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker(GPU)]
    why = _without_gpu() if marked else ""
    for item in marked:
        item.user_properties.append((GPU, True))  # a report has no markers, but these
        if why:
            item.add_marker(pytest.mark.skip(reason=why))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    told = [one for some in terminalreporter.stats.values() for one in some]
    reports = [one for one in told if isinstance(one, pytest.TestReport)]
    marked = [one for one in reports if (GPU, True) in one.user_properties]
    skipped = {one.nodeid for one in marked if one.skipped}
    if marked:
        ran = {one.nodeid for one in marked if one.when == "call"} - skipped
        terminalreporter.write_line(f"tests on a GPU: {len(ran)} ran, {len(skipped)} skipped")


def _without_gpu() -> str:
    """Return the reason for which no test can use a GPU; empty if one can."""
    import torch

    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if version < (2, 11):
        return f"torch {torch.__version__} is older than 2.11"
    return "" if torch.cuda.is_available() else "torch sees no GPU"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[_FAILED] = item.stash.get(_FAILED, False) or report.failed
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let what a failed test leaves open be closed here: reported later, it would fail another."""
    done = yield
    if item.stash.get(_FAILED, False):
        for name in ("last_type", "last_value", "last_traceback", "last_exc"):
            if hasattr(sys, name):  # pytest keeps the failure, and with it the test's variables
                delattr(sys, name)
        reported, sys.unraisablehook = sys.unraisablehook, lambda _: None
        gc.collect()
        sys.unraisablehook = reported
    return done


@pytest.fixture(autouse=True)
def processes_end_with_their_test() -> Iterator[None]:
    with processes.ended():
        yield


@pytest.fixture(autouse=True, scope="session")
def nothing_detached() -> Iterator[None]:
    """No command leaves a process behind, unless a test says so, and waits for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SWEEP_ATTACH", "later")
        yield


@pytest.fixture(autouse=True, scope="session")
def own_configuration(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the key that signs checkpoints; nobody's real one is touched."""
    folder = tmp_path_factory.mktemp("configuration")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "XDG_CONFIG_HOME", str(folder))
        yield folder


@pytest.fixture(scope="session")
def s3_server() -> Iterator[int]:
    """The port of an S3 server, which every process of these tests finds by its environment."""
    from tests.support import s3

    with s3.serving() as port, pytest.MonkeyPatch.context() as patch:
        for name, value in s3.environment(port).items():
            patch.setenv(name, value)
        yield port


@pytest.fixture
def s3_url(s3_server: int, tmp_path: Path) -> str:
    """A folder in the server's storage that no other test has."""
    from tests.support import s3

    return f"s3://{s3.BUCKET}{tmp_path}"


@pytest.fixture(scope="session")
def server() -> "Iterator[Server]":
    """A PostgreSQL server, where one is installed."""
    from tests.support import postgres

    if postgres.binaries() is None:
        if "SWEEP_TESTS_NEED_POSTGRES" in os.environ:
            pytest.fail("no PostgreSQL server is installed, and SWEEP_TESTS_NEED_POSTGRES is set")
        pytest.skip("no PostgreSQL server is installed; Debian's package is postgresql")
    with contextlib.closing(postgres.Server()) as made:
        made.start()
        yield made


@pytest.fixture
def storage_url(server: "Server", monkeypatch: pytest.MonkeyPatch) -> str:
    """What `--storage` is given: a new database, whose password stands in a file."""
    monkeypatch.setenv("PGPASSFILE", str(server.passfile))
    return server.database()


@pytest.fixture(scope="session")
def ray_cluster() -> "Iterator[RayCluster]":
    """A Ray cluster whose head has four slots, and its token, where Ray is installed."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed; pip install 'sweep-rl[ray]'")
    from tests.support.ray_cluster import TOKEN, running

    with pytest.MonkeyPatch.context() as patch, running(4, "--num-gpus", "1") as cluster:
        patch.setenv("RAY_AUTH_TOKEN", TOKEN)
        yield cluster


@pytest.fixture(params=["sqlite", "postgresql"])
def either_database(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The test is run twice: with ledgers in files, and on a server."""
    if request.param == "postgresql":
        from sweep.ledger import storage

        url, made = request.getfixturevalue("storage_url"), storage.create_database
        monkeypatch.setenv("SWEEP_STORAGE", url)
        monkeypatch.setattr(
            storage, "create_database", lambda path, _, sweep_id: made(path, url, sweep_id)
        )
    return str(request.param)

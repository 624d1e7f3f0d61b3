"""The services that a sweep is run with: database, object storage, cluster, MLflow server."""

import contextlib
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path

from sweep import pools
from sweep.driver import sync
from sweep.driver.capacity import UNBOUNDED
from sweep.errors import BadConfig, StorageError, place_of, without_password
from sweep.ledger import storage
from sweep.operations.doctor.finding import Finding, Look, clock
from sweep.pools._shared.cluster import ClusterPool
from sweep.slices import store
from sweep.trackers._shared import mlflow_store
from sweep.views.formatting import plural

#: Part of the patience with a part after which its own client gives up, and says why.
SHARE = 0.8


def database(url: str) -> Look:
    """The PostgreSQL server of ``--storage``."""

    def look() -> list[Finding]:
        storage.check(url)  # says what to install, too
        from sweep.ledger import postgres

        server = postgres.examine(url)
        seen = f"PostgreSQL {server.version} at {place_of(url)}: a schema was made and taken back"
        found = [Finding("database", "ok", seen), clock("database", "its server", server.ahead_s)]
        if server.careless:
            off = ", ".join(f"{name} = off" for name in server.careless)
            risk = f"its server runs with {off}: a crash of its machine may damage all that it has"
            todo = "turn it on in postgresql.conf and reload the server"
            found.append(Finding("database", "warning", risk, todo))
        return found

    return Look("database", look, "see that the server runs and that a firewall lets you through")


def checkpoints(url: str, patience_s: float) -> Look:
    """The object storage of ``--checkpoints``."""

    def look() -> list[Finding]:
        ahead_s = store.examine(url, patience_s * SHARE / 2)
        seen = f"{url}: a small file was written, listed, read and deleted"
        found = [Finding("checkpoints", "ok", seen)]
        return found if ahead_s is None else [*found, clock("checkpoints", "its storage", ahead_s)]

    todo = "see the endpoint (AWS_ENDPOINT_URL), the bucket, the credentials and their rights"
    return Look("checkpoints", look, f"{todo}: to list, read, write and delete below {url}")


def cluster(chosen: str, root: Path, patience_s: float) -> Look:
    """The cluster of ``--address``: its workers share `root` and have our versions."""
    name, _, address = chosen.partition("@")

    def look() -> list[Finding]:
        if not pools.KIND.is_shipped(name):
            seen = f"the pool {name} at {address} is no shipped one, and its code is not run"
            return [Finding("pool", "warning", seen, "ask its author whether it can be reached")]
        said: list[str] = []
        with contextlib.closing(pools.find(chosen)(UNBOUNDED)) as pool:
            if not isinstance(pool, ClusterPool):
                return [Finding(name, "ok", "it runs on this machine, and has no cluster")]
            pool.say = said.append
            pool.connect(root, patience_s * SHARE)
            where = f"{address}, {pool.closed_by}"
            return [*_workers(name, where, pool.clocks), *(_remark(name, one) for one in said)]

    return Look(name, look, "see that its scheduler and its workers run, and can be reached")


def _workers(part: str, where: str, clocks: Mapping[str, float]) -> Iterator[Finding]:
    """Those that fit."""
    if clocks:
        seen = f"{where}: {plural(len(clocks), 'worker')} with our versions and folder"
        yield Finding(part, "ok", seen)
    for name, ahead_s in clocks.items():
        yield clock(part, f"worker {name}", ahead_s)


def _remark(part: str, said: str) -> Finding:
    """Return the pool's remark on a worker that is left out or lacks the key, as a finding."""
    seen, _, todo = said.rpartition("; ")
    return Finding(part, "warning", seen or todo, todo if seen else "")


def tracking(uri: str) -> Look:
    """The MLflow server of ``--tracking-uri``: it is only read."""

    def look() -> list[Finding]:
        scheme = uri.partition(":")[0].partition("+")[0]
        if scheme not in sync.SCHEMES:
            allowed = f"a URI of {', '.join(sync.SCHEMES)}"
            raise BadConfig("--tracking-uri", without_password(uri), allowed)
        if not scheme.startswith("http"):
            seen = f"{without_password(uri)}: is no server of MLflow's, and not looked at"
            return [Finding("mlflow", "warning", seen, f"mlflow server --backend-store-uri {uri}")]
        return _server(uri)

    todo = "see that `mlflow server` runs there, and MLFLOW_TRACKING_USERNAME and _PASSWORD"
    return Look("mlflow", look, todo)


def _server(uri: str) -> list[Finding]:
    client = mlflow_store.client_of(uri)
    import mlflow
    from mlflow.utils.credentials import get_default_host_creds
    from mlflow.utils.rest_utils import http_request

    answer = http_request(get_default_host_creds(uri), "/version", "GET", timeout=5)
    if answer.status_code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        todo = "set MLFLOW_TRACKING_USERNAME and _PASSWORD, or MLFLOW_TRACKING_TOKEN"
        raise StorageError(f"{uri}: refuses access (status {answer.status_code}); {todo}")
    if answer.status_code != HTTPStatus.OK:
        raise StorageError(f"{uri}: is not an MLflow server (status {answer.status_code})")
    client.search_experiments(max_results=1)
    theirs, ours = answer.text.strip()[:40], mlflow.__version__
    seen = f"MLflow {theirs} at {uri}: its experiments can be read"
    if theirs.split(".")[0] == ours.split(".")[0]:
        return [Finding("mlflow", "ok", seen)]
    todo = f"run a server of MLflow {ours.split('.')[0]}"
    return [Finding("mlflow", "warning", f"{seen}; here it is {ours}", todo)]

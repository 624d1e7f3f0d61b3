"""Check the services of a sweep: database, object storage, cluster, MLflow server."""

import contextlib
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path

from sweep import pools
from sweep.core.errors import BadConfig, StorageError, place_of, without_password
from sweep.driver.capacity import UNBOUNDED
from sweep.driver.tracking import sync
from sweep.ledger import storage
from sweep.operations.doctor.finding import Check, Finding, clock
from sweep.pools._shared.cluster import ClusterPool
from sweep.slices import store
from sweep.trackers._shared import mlflow_store
from sweep.views.formatting import plural

#: Share of a check's time limit after which the service's client gives up and reports why.
CLIENT_SHARE = 0.8


def database(url: str) -> Check:
    """Return a check that connects to a PostgreSQL server and creates a schema, and drops it again.

    It also warns of a clock that differs and of settings that risk data in a crash.
    """

    def check() -> list[Finding]:
        """Return findings about the PostgreSQL server and its clock."""
        storage.check(url)  # its error names missing packages
        from sweep.ledger import postgres

        server = postgres.examine(url)
        seen = f"PostgreSQL {server.version} at {place_of(url)}: creating a schema works"
        findings = [
            Finding("database", "ok", seen),
            clock("database", "its server", server.ahead_s),
        ]
        if server.unsafe_settings:
            off = ", ".join(f"{name} = off" for name in server.unsafe_settings)
            risk = f"its server runs with {off}: a crash of its machine may damage all databases"
            todo = "turn it on in postgresql.conf and reload the server"
            findings.append(Finding("database", "warning", risk, todo))
        return findings

    return Check("database", check, "check that the server runs and that no firewall blocks it")


def checkpoints(url: str, patience_s: float) -> Check:
    """Return a check that writes, lists, reads and deletes a small file in an object storage.

    Its client gives up before `patience_s` seconds have passed. The check also compares the clocks
    if the storage tells its time.
    """

    def check() -> list[Finding]:
        """Return findings about the object storage and its clock."""
        ahead_s = store.examine(url, patience_s * CLIENT_SHARE / 2)
        seen = f"{url}: a small file was written, listed, read and deleted"
        found = [Finding("checkpoints", "ok", seen)]
        return found if ahead_s is None else [*found, clock("checkpoints", "its storage", ahead_s)]

    todo = "check the endpoint (AWS_ENDPOINT_URL), the bucket, the credentials and their rights"
    return Check("checkpoints", check, f"{todo} to list, read, write and delete below {url}")


def cluster(chosen: str, root: Path, patience_s: float) -> Check:
    """Return a check that asks a cluster's workers for versions, clocks, and the folder `root`.

    `chosen` is the pool as the user names it, such as ``dask@ADDRESS``. `patience_s` is the longest
    time to wait, in seconds. A pool that is not part of sweep is not run, which is a warning; one
    without a cluster is ok. The check may create the user's signing key.
    """
    name, _, address = chosen.partition("@")

    def check() -> list[Finding]:
        """Return findings about the cluster and its workers."""
        if not pools.KIND.is_shipped(name):
            seen = f"the pool {name} at {address} is not part of sweep, so its code is not run"
            return [Finding("pool", "warning", seen, "ask its author how to check the pool")]
        said: list[str] = []
        with contextlib.closing(pools.find(chosen)(UNBOUNDED)) as pool:
            if not isinstance(pool, ClusterPool):
                return [Finding(name, "ok", "it runs on this machine, without a cluster")]
            pool.say = said.append
            pool.connect(root, patience_s * CLIENT_SHARE)
            where = f"{address}, {pool.closed_by}"
            return [*_workers(name, where, pool.clocks), *(_remark(name, one) for one in said)]

    return Check(name, check, "check that its scheduler and workers run and are reachable")


def _workers(part: str, place: str, clocks: Mapping[str, float]) -> Iterator[Finding]:
    """Yield a finding with the number of usable workers, and one about the clock of each.

    `part` is the name of the pool, `place` the cluster's address. `clocks` maps each worker to the
    seconds by which its clock is ahead of ours. Nothing is yielded if it is empty.
    """
    if clocks:
        seen = (
            f"{place}: {plural(len(clocks), 'worker')} with the same versions and access to the "
            "root folder"
        )
        yield Finding(part, "ok", seen)
    for name, ahead_s in clocks.items():
        yield clock(part, f"worker {name}", ahead_s)


def _remark(part: str, remark: str) -> Finding:
    """Return a pool's `remark` about an unusable worker as a warning about `part`.

    The text after its last semicolon is the advice; without a semicolon there is none.
    """
    seen, _, todo = remark.rpartition("; ")
    return Finding(part, "warning", seen or todo, todo if seen else "")


def tracking(uri: str) -> Check:
    """Return a check that reads an MLflow server's version and an experiment; it writes nothing.

    A URI that is not of a server, such as a file, is only a warning; one of an unknown scheme is a
    problem.
    """

    def check() -> list[Finding]:
        """Return findings about MLflow's server."""
        scheme = uri.partition(":")[0].partition("+")[0]
        if scheme not in sync.SCHEMES:
            allowed = f"a URI that begins with {', '.join(sync.SCHEMES)}"
            raise BadConfig("--tracking-uri", without_password(uri), allowed)
        if not scheme.startswith("http"):
            seen = (
                f"{without_password(uri)}: is not the URI of an MLflow server, so it was not "
                "checked"
            )
            return [
                Finding(
                    "mlflow",
                    "warning",
                    seen,
                    f"start a server for it with `mlflow server --backend-store-uri {uri}`",
                )
            ]
        return _server(uri)

    todo = (
        "check that `mlflow server` is running there, and check MLFLOW_TRACKING_USERNAME and "
        "_PASSWORD"
    )
    return Check("mlflow", check, todo)


def _server(uri: str) -> list[Finding]:
    """Ask an MLflow server for its version and an experiment; return one finding.

    It is a warning if the server's major version is not ours, else ok. Raises StorageError if the
    server refuses access or does not answer as MLflow does.
    """
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

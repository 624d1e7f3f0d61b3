"""Slots on a Dask cluster: each of its worker processes is a slot, each slice a Dask future.

Everybody who reaches a Dask cluster can run code there. So the cluster must use TLS with
certificates on both sides, or the loopback address.
"""

import asyncio
import contextlib
import ipaddress
import logging
import socket
import warnings
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any, ClassVar

from sweep.core.errors import BadConfig, StorageError, UsageError, WorkerLost
from sweep.pools._shared import cluster
from sweep.pools._shared import worker as there
from sweep.slices.messages import SliceOutcome

#: Example of a scheduler's address, for messages.
_EXAMPLE = "such as tls://node-1:8786"


class Pool(cluster.ClusterPool):
    """Pool on a Dask cluster, by an asynchronous Dask client in the pool's event loop."""

    scheduler: ClassVar[str] = "Dask scheduler"

    def __init__(self, slots: int, address: str = "") -> None:
        checked, self._security = _check_address(address)
        super().__init__(slots, checked)
        self.closed_by = "over TLS" if checked.startswith("tls:") else "on this machine alone"
        self._client: Any = None
        self._connection: Any = None

    async def _connect_to_cluster(self, reach_s: float) -> Collection[str]:
        """Connect to the Dask scheduler within `reach_s` seconds and return its workers' addresses.

        From now on the scheduler reports workers that join or leave.

        Raises:
            StorageError: no scheduler responds, or it is not usable.
            UsageError: the scheduler also listens where others can reach it without TLS.
        """
        distributed = _import_distributed()
        try:
            with warnings.catch_warnings():  # `_differences` reports different versions
                warnings.simplefilter("ignore")
                client = distributed.Client(
                    self._address,
                    asynchronous=True,
                    security=self._security,
                    timeout=reach_s,
                    set_as_default=False,
                    name="sweep",
                )
                try:  # the client itself would wait endlessly for a server that sends nothing
                    self._client = await asyncio.wait_for(client, reach_s + cluster.PAUSE_S)
                except TimeoutError:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(client.close(), cluster.CLOSE_S)
                    raise OSError("it accepts connections but sends nothing") from None
        except (OSError, ImportError) as error:
            raise StorageError(
                f"--address: there is no usable Dask scheduler at {self._address} ({error}); "
                "start one there, or use certificates of the same authority on both sides"
            ) from error
        self._connection = self._client.scheduler_comm
        self._client.subscribe_topic("all", self._handle_event)  # before listing the workers
        identity = await self._client.scheduler.identity(n_workers=-1)
        if not _is_closed_to_others(identity["address"]):
            raise UsageError(
                f"--address: the Dask scheduler at {self._address} also listens at "
                f"{identity['address']}, where anyone can run code; start it with TLS, or with "
                f"--host 127.0.0.1"
            )
        return list(identity["workers"])

    def _handle_event(self, event: tuple[float, Any]) -> None:
        """Use or remove the worker that joined or left, as the Dask scheduler reports.

        `event` is (time, message); messages about anything else are ignored.
        """
        message = event[1] if isinstance(event[1], Mapping) else {}
        if message.get("action") == "add-worker":
            self._add_joined(str(message.get("worker")))
        elif message.get("action") == "remove-worker":
            self._remove_worker(str(message.get("worker")), bool(message.get("expected")))

    def _exposure(self, address: str) -> str:
        """Return a text on why other people can reach the worker at `address`.

        Returns an empty text if they cannot.
        """
        if _is_closed_to_others(address):
            return ""
        return "anyone who can reach it can run code on it; start it with TLS"

    async def _ask_description(self, address: str, probe: Path) -> dict[str, Any]:
        """Return the description that a worker gives of itself, with its ``name`` in Dask."""
        return dict(await self._call_worker(address, _describe_here, probe))

    async def _call_worker(
        self, address: str, function: Callable[..., Any], *arguments: Any
    ) -> Any:
        """Call a function in the worker at `address`, even during a slice.

        Returns its result or raises its error. Raises OSError if the worker does not answer.
        """
        answers = await self._client.run(function, *arguments, workers=[address], on_error="return")
        answer = answers.get(address, OSError("the worker did not answer"))
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def _run_in_worker(self, address: str, key: str, slice_spec: bytes) -> object:
        """Run a pickled slice once in the worker at `address`, and return its outcome.

        `key` is the slice's name in Dask. Raises WorkerLost if the worker was killed, and
        StorageError if the cluster was lost.
        """
        future = self._client.submit(
            _run_here,
            slice_spec,
            key=key,
            workers=[address],
            allow_other_workers=False,
            pure=False,
            retries=0,
        )
        try:
            return await future.result()
        except (
            CancelledError,
            _import_distributed().comm.CommClosedError,
        ):  # perhaps of the outcome
            raise StorageError(self.failed() or self._lost_message()) from None
        except _import_distributed().KilledWorker as error:
            raise WorkerLost(None, None, f"its worker was killed ({error})") from None
        finally:
            future.release()

    async def _ping(self) -> None:
        """Wait until the Dask scheduler answers a small request; raise if the link is lost."""
        await self._client.scheduler.identity(n_workers=0)

    def _describe_loss(self) -> str:
        """Return a message if the connection to the scheduler was lost or made anew.

        Returns an empty text while it stands. A scheduler that was started again has lost its
        slices.
        """
        if self._client is None or self._client.scheduler_comm is self._connection:
            return ""
        return self._lost_message()

    async def _disconnect(self) -> None:
        """Close the Dask client."""
        if self._client is not None:
            await self._client.close()


# ---- the checks of an address -------------------------------------------------------------------


def _import_distributed() -> Any:
    """Import and return Dask's package `distributed`, with its loggers silenced.

    Raises BadConfig if it is not installed.
    """
    try:
        import distributed
    except ImportError as error:
        hint = "install it: pip install 'sweep-rl[dask]'"
        problem = f"Dask is not installed ({error})"
        raise BadConfig("--pool", "dask", "another pool", hint, problem=problem) from None
    for name in list(logging.root.manager.loggerDict):
        if name.split(".")[0] == "distributed":
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    return distributed


def _check_address(address: str) -> tuple[str, Any]:
    """Return the address of a Dask scheduler with its scheme, and Dask's security settings for it.

    Without a scheme it is ``tcp://``. The scheduler is not contacted.

    Raises:
        BadConfig: the address is missing or open to others, or its certificates are not usable.
    """
    distributed = _import_distributed()
    if not address:
        problem = "the pool dask needs the address of a cluster"
        raise BadConfig(
            "--address", "", f"the address of its scheduler, {_EXAMPLE}", problem=problem
        )
    if "://" not in address:
        address = f"tcp://{address}"
    if not _is_closed_to_others(address):
        problem = f"{address} is open: anyone who can reach it can run code there"
        hint = "start the scheduler and the workers with --tls-ca-file, --tls-cert and --tls-key"
        allowed = f"a scheduler with TLS, {_EXAMPLE}, or one on this machine, tcp://127.0.0.1:8786"
        raise BadConfig("--address", address, allowed, hint, problem=problem)
    tls = address.startswith("tls://")
    try:
        security = distributed.Security(require_encryption=tls)
        if tls and not security.get_connection_args("client")["ssl_context"]:
            raise ValueError("no files are named")  # noqa: TRY301 reported below
    except (OSError, ValueError) as error:
        problem = f"the certificates for {address} cannot be used ({error})"
        keys = "distributed.comm.tls.ca-file, .client.cert and .client.key"
        allowed = f"the files of {keys} in Dask's configuration"
        raise BadConfig("--address", address, allowed, problem=problem) from None
    return address, security


def _is_closed_to_others(address: str) -> bool:
    """Return whether connections to a Dask address are over TLS or stay on this machine.

    The host is looked up; one that is unknown counts as open.
    """
    scheme, _, rest = address.partition("://")
    if scheme == "tls":
        return True
    host = rest.rpartition(":")[0].strip("[]")
    try:
        found = {entry[4][0] for entry in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return scheme == "tcp" and all(ipaddress.ip_address(one).is_loopback for one in found)


# ---- in a worker of the cluster -----------------------------------------------------------------


def _describe_here(probe: Path, dask_worker: Any) -> dict[str, Any]:
    """Return the description of the worker in which this function runs, with its ``name`` in Dask.

    Dask passes itself as `dask_worker`.
    """
    name = str(dask_worker.name)
    return {"name": name.partition("://")[2] or name, **there.describe_worker(probe)}


def _run_here(sent: bytes) -> SliceOutcome:
    """Run a pickled slice in the worker in which this function runs, and return its outcome.

    Blocks until it has ended. Its process is killed, and WorkerLost raised, if Dask cancels the
    task or closes the worker.
    """
    from distributed import get_worker

    worker = get_worker()
    key = str(worker.get_current_task())

    def is_wanted() -> bool:
        """Return whether the worker stays in the cluster and its task was not cancelled."""
        task = worker.state.tasks.get(key)
        stays = worker.status.name in ("running", "paused")
        return stays and task is not None and task.state != "cancelled"

    return there.run(key, sent, is_wanted)

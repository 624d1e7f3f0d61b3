"""Resources of one trial, and the limits and variables of its processes.

Memory is in bytes. A child's quota is a limit of its data segment, so that the allocation which
would exceed it fails, in that child alone; nothing is polled. The trainer's own process may hold
other trials before and after, so its quota is compared with what it holds, once per iteration.
"""

import functools
import os
import resource
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from trainables.core.settings import Section, Settings, WrongKey
from trainables.errors import TrainableError, shorten

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

#: Largest number of workers. More are surely a typing error: each is a process with environments.
MOST_WORKERS = 1024


def _check_worker_count(count: int) -> int:
    """Return the number of workers, or raise WrongKey if it exceeds `MOST_WORKERS`."""
    if count > MOST_WORKERS:
        problem = f"{count} is too many, since each is a separate process"
        hint = "raise num_envs_per_worker for more environments"
        raise WrongKey((), count, f"at most {MOST_WORKERS}", hint, problem)
    return count


WorkerCount: TypeAlias = Annotated[int, Field(ge=0), AfterValidator(_check_worker_count)]


def _check_zero(value: int) -> int:
    """Return `value`, or raise WrongKey unless it is 0; for settings without an effect here."""
    if value:
        hint = "remove it; memory_per_worker limits a worker"
        raise WrongKey((), value, hint=hint, problem="has no effect: there is no object store")
    return value


def _check_empty(names: dict[str, float]) -> dict[str, float]:
    """Return `names`, or raise WrongKey unless it is empty: no custom resources exist here."""
    if names:
        problem = (
            f"{', '.join(sorted(names))} cannot be requested, because trials can reserve only "
            "CPUs, GPUs and memory"
        )
        hint = "remove it; use num_cpus_per_worker, num_gpus_per_worker or memory_per_worker"
        raise WrongKey((), names, hint=hint, problem=problem)
    return names


#: Environment variables: name → value.
Variables: TypeAlias = dict[str, str | int | float | bool]


def _check_variables(variables: Variables) -> Variables:
    """Return environment variables, or raise WrongKey for a name or value that none can have."""
    for name, value in variables.items():
        if not name or "=" in name or "\0" in f"{name}{value}":
            problem = f"{shorten(name)}: {shorten(value)} cannot be an environment variable"
            allowed = "a name that is not empty and has no =, and no NUL in name or value"
            raise WrongKey((), variables, allowed, problem=problem)
    return variables


#: RLlib's default session arguments that only TensorFlow reads.
_TENSORFLOW_DEFAULTS: Mapping[str, Any] = {
    "gpu_options": {"allow_growth": True},
    "log_device_placement": False,
    "device_count": {"CPU": 1},
    "allow_soft_placement": True,
}


class ThreadCounts(Settings):
    """The numbers of threads of torch and numpy, under TensorFlow's names for them."""

    # The schema allows further keys: those in `_TENSORFLOW_DEFAULTS` are accepted and left out.
    model_config = ConfigDict(json_schema_extra={"additionalProperties": True})

    @model_validator(mode="before")
    @classmethod
    def _without_defaults(cls, settings: Any) -> Any:
        """Remove keys that only TensorFlow reads and that have RLlib's default values."""
        if not isinstance(settings, Mapping):
            return settings
        return {
            key: value
            for key, value in settings.items()
            if key not in _TENSORFLOW_DEFAULTS or value != _TENSORFLOW_DEFAULTS[key]
        }

    intra_op_parallelism_threads: int | None = Field(
        default=None,
        gt=0,
        description="Number of threads of one operation of torch or numpy; null: 1.",
    )
    inter_op_parallelism_threads: int | None = Field(
        default=None,
        gt=0,
        description="Number of operations that torch runs in parallel; null: torch's default.",
    )


class LocalThreadCounts(ThreadCounts):
    """The numbers of threads of the trainer's own process, where they differ."""

    intra_op_parallelism_threads: int | None = Field(
        default=None,
        gt=0,
        description="As in tf_session_args, but only for the trainer's own process; null: the "
        "value in tf_session_args.",
    )
    inter_op_parallelism_threads: int | None = Field(
        default=None,
        gt=0,
        description="As in tf_session_args, but only for the trainer's own process; null: the "
        "value in tf_session_args.",
    )


class ResourcesConfig(Section):
    """Resources of one trial."""

    num_cpus_for_driver: int = Field(
        default=1, ge=1, description="CPUs of the trainer's own process."
    )
    num_cpus_per_worker: int = Field(
        default=1, ge=1, description="CPUs of each child process that collects."
    )
    num_gpus: float = Field(
        default=0,
        ge=0,
        le=1,
        description="Fraction of a GPU for learning, up to 1, and the largest share of its memory "
        "that a trial may use; 0: learn on the CPU. In a sweep also set resources: {gpu: 1}, "
        "which reserves a GPU for each trial (docs/gpu.md).",
    )
    num_gpus_per_worker: float = Field(
        default=0,
        ge=0,
        description="GPUs of each child process, for its environments; policies in child "
        "processes act on the CPU.",
    )
    custom_resources_per_worker: Annotated[dict[str, float], AfterValidator(_check_empty)] = Field(
        default_factory=dict,
        description="Must be {}, since no custom resources are provided.",
    )
    memory: int = Field(
        default=0,
        ge=0,
        description="Maximum memory of the trainer's own process, in bytes; a trial that exceeds "
        "it fails; 0: no limit.",
    )
    memory_per_worker: int = Field(
        default=0,
        ge=0,
        description="Maximum memory of each child process, in bytes; a child that exceeds it "
        "fails; 0: no limit.",
    )
    object_store_memory: Annotated[int, AfterValidator(_check_zero)] = Field(
        default=0, description="Must be 0, since there is no object store."
    )
    object_store_memory_per_worker: Annotated[int, AfterValidator(_check_zero)] = Field(
        default=0,
        description="Must be 0, since there is no object store.",
    )
    tf_session_args: ThreadCounts = Field(
        default=ThreadCounts(),
        description="Thread counts for torch and numpy; other entries are ignored.",
    )
    local_tf_session_args: LocalThreadCounts = Field(
        default=LocalThreadCounts(),
        description="Thread counts of the trainer's own process, if they differ.",
    )
    extra_python_environs: Annotated[Variables, AfterValidator(_check_variables)] = Field(
        default_factory=dict,
        description="Environment variables of every process that collects experience, set before "
        "its imports.",
    )

    @property
    def threads(self) -> tuple[int, int | None]:
        """Intra-op and inter-op thread counts of the trainer's own process.

        Only that process uses torch. ``local_tf_session_args`` precedes ``tf_session_args``;
        without both, they are 1 and None (torch's default).
        """
        own, common = self.local_tf_session_args, self.tf_session_args
        return (
            own.intra_op_parallelism_threads or common.intra_op_parallelism_threads or 1,
            own.inter_op_parallelism_threads or common.inter_op_parallelism_threads,
        )

    @property
    def environs(self) -> dict[str, str]:
        """Environment variables of `extra_python_environs`, with values as strings."""
        return {name: str(value) for name, value in self.extra_python_environs.items()}

    def request(self, children: int) -> dict[str, float]:
        """Return the resources that a trial with `children` child processes needs.

        Keys are ``cpu``, ``gpu`` and ``memory`` (bytes) of the trainer itself, and ``extra_cpu``,
        ``extra_gpu`` and ``extra_memory`` of all its children together.
        """
        asked = {
            "cpu": self.num_cpus_for_driver,
            "gpu": self.num_gpus,
            "memory": self.memory,
            "extra_cpu": self.num_cpus_per_worker * children,
            "extra_gpu": self.num_gpus_per_worker * children,
            "extra_memory": self.memory_per_worker * children,
        }
        return {name: float(value) for name, value in asked.items()}


def blas_threads(count: int) -> AbstractContextManager[object]:
    """Return a context manager that limits matrix products of numpy and scipy to `count` threads.

    The limit begins with this call, and ends with the block. It holds for the BLAS libraries that
    are loaded now. It does nothing if threadpoolctl is not installed, as on a machine that only
    tests a GPU.
    """
    blas = _blas(len(sys.modules))
    limited: AbstractContextManager[object] = (
        nullcontext() if blas is None else blas.limit(limits=count)
    )
    return limited


@functools.lru_cache(maxsize=1)
def _blas(_modules: int) -> "ThreadpoolController | None":
    """Return threadpoolctl's controller of the BLAS libraries that are loaded.

    Cached for the number of imported modules, `_modules`, since scipy loads a library of its own
    and a search for libraries takes some milliseconds. Returns None if threadpoolctl is not
    installed.
    """
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController().select(user_api="blas")


def limit_child(config: ResourcesConfig | None) -> None:
    """Limit the memory that this process may allocate to `memory_per_worker`.

    Does nothing if that is 0, or `config` None. The limit is on the data segment: heap and
    anonymous memory, not mapped files or reserved addresses, of which libraries take gigabytes.
    """
    if config and (quota := config.memory_per_worker):
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (quota, hard))


def check_quota(quota: int) -> None:
    """Raise TrainableError if this process holds over `quota` bytes of resident memory.

    A quota of 0 is no limit.
    """
    if not quota:
        return
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    if (held := int(pages) * resource.getpagesize()) > quota:
        raise TrainableError(
            f"the trainer's process holds {held} bytes, more than memory: {quota}; raise "
            f"memory, or lower train_batch_size or num_envs_per_worker"
        )


class EnvironmentVariables:
    """Environment variables that are set in this process from construction until `undo`."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)

    def undo(self) -> None:
        """Restore the former values of the variables; a second call does nothing."""
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._before = {}

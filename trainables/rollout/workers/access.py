"""A rollout worker's policy, environments and global variables, for callers from outside.

The same calls work on a worker in this process and, through `WorkerSet.foreach_worker`, in a child.
There is one policy, with the name that multi-agent trainers give a single policy.
"""

import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import cloudpickle

from trainables.envs.vector.base import VectorEnv
from trainables.errors import ConfigError, TrainableError
from trainables.policies import filters as filters_
from trainables.policies.actor import Actor, Weights
from trainables.policies.filters import Filter

DEFAULT_POLICY_ID = "default_policy"
T = TypeVar("T")


def require_policy(pid: str) -> None:
    """ConfigError for a policy that does not exist."""
    if pid != DEFAULT_POLICY_ID:
        raise ConfigError("policy_id", pid, DEFAULT_POLICY_ID, "there is one policy")


class WorkerAccess:
    """A rollout worker's policy, filters, environments and global variables."""

    envs: VectorEnv
    _actor: Actor
    _filters: dict[str, Filter]
    _weights: Weights
    _global_vars: Mapping[str, Any]

    def apply(self, function: Callable[[Any], T]) -> T:
        """``function(worker)``."""
        return function(self)

    def foreach_env(self, function: Callable[[Any], T]) -> list[T]:
        """``function`` of each unwrapped environment, or of the vector where it has none."""
        sub_envs = getattr(self.envs, "sub_envs", None) or [self.envs]
        return [function(getattr(sub_env, "unwrapped", sub_env)) for sub_env in sub_envs]

    def get_policy(self, policy_id: str = DEFAULT_POLICY_ID) -> Actor | None:
        """The policy with this name, which acts and does not learn; None if there is none."""
        return self._actor if policy_id == DEFAULT_POLICY_ID else None

    def for_policy(self, function: Callable[[Actor], T], policy_id: str = DEFAULT_POLICY_ID) -> T:
        """``function(policy)`` of one policy."""
        require_policy(policy_id)
        return function(self._actor)

    def foreach_policy(self, function: Callable[[Actor, str], T]) -> list[T]:
        """``function(policy, name)`` of each policy."""
        return [function(self._actor, DEFAULT_POLICY_ID)]

    def foreach_trainable_policy(self, function: Callable[[Actor, str], T]) -> list[T]:
        """``function(policy, name)`` of each policy that learns, which all do."""
        return self.foreach_policy(function)

    def get_weights(self, policies: Sequence[str] | None = None) -> dict[str, Weights]:
        """Policy → weights, of these policies or of all."""
        for pid in policies or ():
            require_policy(pid)
        wanted = policies is None or DEFAULT_POLICY_ID in policies
        return {DEFAULT_POLICY_ID: dict(self._weights)} if wanted else {}

    def set_weights(
        self, weights: Mapping[str, Weights], global_vars: Mapping[str, Any] | None = None
    ) -> None:
        """Adopt policy → weights, and the global variables if given."""
        for pid, one in weights.items():
            require_policy(pid)
            self._weights = one
            self._actor.load(one)
        if global_vars is not None:
            self.set_global_vars(global_vars)

    def set_global_vars(self, global_vars: Mapping[str, Any]) -> None:
        """Adopt the trainer's variables, such as ``timestep``, and pass them on to the policy."""
        self._global_vars = dict(global_vars)
        self._actor.on_global_var_update(self._global_vars)

    def get_global_vars(self) -> dict[str, Any]:
        """What `set_global_vars` was last given."""
        return dict(self._global_vars)

    def save(self) -> dict[str, Any]:
        """Entries ``filters`` and ``state`` (policy → weights), as plain data; flushes nothing."""
        return {"filters": filters_.get_state(self._filters), "state": self.get_weights()}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take back what `save` gave: filters and policies."""
        filters_.set_state(self._filters, saved["filters"])
        self.set_weights(saved["state"])


def pack(function: Callable[..., Any]) -> bytes:
    """A function, nested or not, as bytes for a child."""
    try:
        packed: bytes = cloudpickle.dumps(function)
    except Exception as error:
        raise TrainableError(
            f"{function!r} cannot be sent to a child process: {error}; pass a function that holds "
            f"no open files, locks, processes or trainers"
        ) from error
    return packed


def apply_packed(worker: Any, packed: bytes) -> bytes:
    """In the child: the function's answer or what it raised, as bytes for the parent.

    Its error is no failure of the worker, which is neither replaced nor left out for it.
    """
    try:
        answer = cloudpickle.loads(packed)(worker)
    except Exception as error:  # noqa: BLE001 whatever it is, the caller gets it
        raised = f"{type(error).__name__}: {error}\n\n{traceback.format_exc()}"
        return _as_bytes(f"the function raised {raised}", False)
    try:
        return _as_bytes(answer, True)
    except Exception as error:  # noqa: BLE001 likewise
        text = (
            f"the function returned a {type(answer).__name__}, which cannot be sent back: {error}"
        )
        return _as_bytes(f"{text}; return plain values", False)


def unpack(index: int, returned: bytes) -> Any:
    """The answer of the child with this index; TrainableError for its error."""
    succeeded, answer = cloudpickle.loads(returned)
    if not succeeded:
        raise TrainableError(f"in rollout worker {index}: {answer}")
    return answer


def _as_bytes(answer: Any, succeeded: bool) -> bytes:
    packed: bytes = cloudpickle.dumps((succeeded, answer))
    return packed

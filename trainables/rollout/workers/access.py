"""Functions of a worker that are sent to a child and whose result is sent back; policy names."""

import traceback
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import cloudpickle

from trainables.errors import ConfigError, TrainableError, shorten, type_of

P = TypeVar("P")
DEFAULT_POLICY_ID = "default_policy"
"""Name of the only policy of a trainer without several policies."""


def named_policy(policies: Mapping[str, P], policy_id: str) -> P | None:
    """Return the policy with this name, or for an empty name the only one.

    Returns None if there is no such policy.
    """
    if not policy_id and len(policies) == 1:
        return next(iter(policies.values()))
    return policies.get(policy_id)


def name_of_policy(policies: Mapping[str, Any], policy_id: str) -> str:
    """Return the name of a policy; an empty `policy_id` stands for the only policy.

    Raises ConfigError if there is no such policy, or the name is empty and there are several.
    """
    if not policy_id and len(policies) == 1:
        return next(iter(policies))
    if policy_id not in policies:
        problem = f"there is no policy {shorten(policy_id)}"
        raise ConfigError("policy_id", policy_id, f"one of {', '.join(policies)}", problem=problem)
    return policy_id


def pack(function: Callable[..., Any]) -> bytes:
    """Pickle a function, nested or not, with cloudpickle, to call it in a child process.

    Raises TrainableError if it cannot be pickled.
    """
    try:
        packed: bytes = cloudpickle.dumps(function)
    except Exception as error:
        raise TrainableError(
            f"{function!r} cannot be sent to a child process: {error}; pass a function that holds "
            f"no open files, locks, processes or trainers"
        ) from error
    return packed


def apply_packed(worker: Any, packed: bytes) -> bytes:
    """Call ``function(worker)`` of a pickled function; return result or error for `unpack`.

    Called in the child. An error of the function is not a failure of the worker, which is neither
    replaced nor left out.
    """
    try:
        answer = cloudpickle.loads(packed)(worker)
    except Exception as error:  # noqa: BLE001 whatever it is, the caller gets it
        raised = f"{type(error).__name__}: {error}\n\n{traceback.format_exc()}"
        return _as_bytes(f"the function raised {raised}", False)
    try:
        return _as_bytes(answer, True)
    except Exception as error:  # noqa: BLE001 likewise
        text = f"the function returned {type_of(answer)}, which cannot be sent back: {error}"
        return _as_bytes(f"{text}; return plain values", False)


def unpack(index: int, returned: bytes) -> Any:
    """Return the result that `apply_packed` returned in the worker `index`.

    Raises TrainableError if the function raised there, or its result could not be sent.
    """
    succeeded, answer = cloudpickle.loads(returned)
    if not succeeded:
        raise TrainableError(f"in rollout worker {index}: {answer}")
    return answer


def _as_bytes(answer: Any, succeeded: bool) -> bytes:
    """Return a pickle of (`succeeded`, `answer`); `answer` is a result or an error's text.

    Raises the pickler's exception if `answer` cannot be pickled.
    """
    packed: bytes = cloudpickle.dumps((succeeded, answer))
    return packed

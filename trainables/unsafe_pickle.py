"""Pickles of anything, for trainables that cannot return plain data; they run code when loaded.

A class opts in with ``unsafe_pickle = True``. Its checkpoints are signed, and `unpack` is reached
only with bytes whose signature was verified when the checkpoint was read
(`trainables.checkpoint_file`), for a class that has opted in as well.
"""

from typing import Any

from trainables.errors import StateError, printable
from trainables.signing import Opaque


def pack(data: object, name: str, allowed: bool) -> Any:
    """What stands in the state for what `save_checkpoint` of the class `name` returned.

    Args:
        data: a mapping; anything if `allowed`.
        name: of the class.
        allowed: whether it has opted in.

    Raises:
        StateError: it cannot be pickled.
    """
    if not allowed:
        return data
    import cloudpickle

    try:
        return Opaque(cloudpickle.dumps(data))
    except Exception as error:  # a class's own __reduce__ fails in any way
        found = printable(f"what cannot be pickled ({type(error).__name__}: {error})")
        raise StateError(name, found, "leave it out of what save_checkpoint() returns") from error


def unpack(kept: Any, name: str, allowed: bool) -> Any:
    """What `pack` was given; raises StateError for a pickle unless the class has opted in."""
    if not isinstance(kept, Opaque):
        return kept
    if not allowed:
        remedy = f"set {name}.unsafe_pickle = True if the class is to load it"
        raise StateError(name, "a pickle in the place of plain data", remedy)
    import cloudpickle

    return cloudpickle.loads(kept.data)

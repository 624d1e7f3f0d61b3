"""Pickles of anything, for trainables that cannot return plain data; they run code when loaded.

A class opts in with ``unsafe_pickle = True``. Its checkpoints are signed, and `load` is reached
only with bytes whose signature was verified when the checkpoint was read
(`trainables.checkpoint_file`), for a class that has opted in as well.
"""

from typing import Any

import cloudpickle

from trainables.errors import StateError, printable
from trainables.signing import Opaque


def dump(value: object, name: str) -> Opaque:
    """`value` as cloudpickle writes it; raises StateError, with `name` for its place."""
    try:
        return Opaque(cloudpickle.dumps(value))
    except Exception as error:  # a class's own __reduce__ fails in any way
        found = printable(f"what cannot be pickled ({type(error).__name__}: {error})")
        raise StateError(name, found, "leave it out of what save_checkpoint() returns") from error


def load(pickled: Opaque, name: str, allowed: bool) -> Any:
    """What `dump` was given; raises StateError unless the class called `name` has opted in."""
    if not allowed:
        remedy = f"set {name}.unsafe_pickle = True if the class is to load it"
        raise StateError(name, "a pickle in the place of plain data", remedy)
    return cloudpickle.loads(pickled.data)

"""Named random streams derived from one seed, and the only access to the three global streams.

Every source of randomness is a stream derived from a seed and a path of names, for example
``generator(seed, "env", worker, index)``. Two different paths give independent streams; the same
path gives the same stream on every machine. Streams are state: each getter has a setter.

This package never draws from the global streams of `random`, `numpy.random` and `torch`. Other code
does (``nn.Linear()``, user environments), so `seed_global`, `capture_global` and `restore_global`
make those three part of a trial's state as well.
"""

import contextlib
import hashlib
import random
import struct
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from trainables.core.torch_import import when_torch_imported

if TYPE_CHECKING:
    import numpy as np
    import torch

#: Part of the name of a random stream.
Name = str | int
#: Layout of the 625 words of Python's own generator.
_WORDS = struct.Struct("<625I")


def derive(seed: int, *path: Name) -> "np.random.SeedSequence":
    """Return numpy's seed sequence of the random stream that `path` names, for the trial's `seed`.

    The path is hashed (SHA-256 over its parts, their types and lengths), so that ``("a", "bc")``
    and ``("ab", "c")``, ``1`` and ``"1"`` name different streams.
    """
    import numpy as np

    digest = hashlib.sha256()
    for part in path:
        text = f"{type(part).__name__}:{part}".encode()
        digest.update(len(text).to_bytes(4, "little") + text)
    words = np.frombuffer(digest.digest(), dtype=np.uint32)
    return np.random.SeedSequence(entropy=seed, spawn_key=tuple(int(w) for w in words))


def integer(seed: int, *path: Name) -> int:
    """Return a seed in [0, 2**63) for the stream `path`, for a library that takes an int."""
    import numpy as np

    return int(derive(seed, *path).generate_state(1, np.uint64)[0] >> np.uint64(1))


def generator(seed: int, *path: Name) -> "np.random.Generator":
    """Return a numpy generator (PCG64) at the start of the stream `path` of `seed`."""
    import numpy as np

    return np.random.Generator(np.random.PCG64(derive(seed, *path)))


def torch_generator(seed: int, *path: Name) -> "torch.Generator":
    """Return a torch generator on the CPU at the start of the stream `path` of `seed`."""
    import torch

    return torch.Generator().manual_seed(integer(seed, *path))


def get_generator_state(stream: "np.random.Generator") -> dict[str, Any]:
    """Return the state of `stream` as plain data."""
    return dict(stream.bit_generator.state)


def set_generator_state(stream: "np.random.Generator", state: Mapping[str, Any]) -> None:
    """Set `stream` to a state that `get_generator_state` returned."""
    stream.bit_generator.state = dict(state)


def seed_global(seed: int, *path: Name) -> None:
    """Set the global streams of `random`, numpy and torch to the start of the stream `path`.

    Torch is not imported for this: its stream is set once it is imported.
    """
    import numpy as np

    random.seed(integer(seed, *path, "python"))  # noqa: TID251 the one door
    words = derive(seed, *path, "numpy").generate_state(8)
    np.random.seed(words)  # noqa: NPY002, TID251 likewise
    _set_torch_when_imported({"seed": integer(seed, *path, "torch")})


def capture_global() -> dict[str, Any]:
    """Return the states of the global streams of `random`, numpy and torch.

    The entries are ``python``, ``numpy`` and ``torch`` (on the CPU). Torch is not imported for
    this: its entry is then the state that it will get once it is imported.
    """
    import numpy as np

    version, internal, gauss = random.getstate()
    torch = sys.modules.get("torch")
    return {
        "python": [version, _WORDS.pack(*internal), gauss],
        "numpy": dict(np.random.get_state(legacy=False)),  # noqa: NPY002
        "torch": {"state": torch.get_rng_state().numpy().copy()} if torch else dict(_pending),
    }


def restore_global(state: Mapping[str, Any]) -> None:
    """Set the global streams of `random`, numpy and torch to what `capture_global` returned.

    Torch is not imported for this: its stream is set once it is imported.
    """
    import numpy as np

    version, internal, gauss = state["python"]
    if isinstance(internal, bytes):  # checkpoints once held a list, which takes longer to check
        internal = _WORDS.unpack(internal)
    random.setstate((version, tuple(internal), gauss))
    np.random.set_state(dict(state["numpy"]))  # noqa: NPY002
    _set_torch_when_imported(state["torch"])


@contextlib.contextmanager
def preserve_global() -> Iterator[None]:
    """Restore the global streams of `random`, numpy and torch when the block ends."""
    state = capture_global()
    try:
        yield
    finally:
        restore_global(state)


def equal_global(before: Any, after: Any) -> bool:
    """Return whether two results of `capture_global`, or parts of them, are equal.

    If so, nothing was drawn from the global streams in between.
    """
    import numpy as np

    if isinstance(before, Mapping):
        return all(equal_global(value, after[key]) for key, value in before.items())
    return bool(np.all(before == after))


@contextlib.contextmanager
def seed_torch_from(stream: "np.random.Generator") -> Iterator[None]:
    """Seed torch's global streams from `stream` inside the block; restore the CPU's afterwards.

    One number is drawn from `stream`.
    """
    import torch

    state = torch.get_rng_state()
    torch.manual_seed(int(stream.integers(2**63)))  # noqa: TID251 the one door
    try:
        yield
    finally:
        torch.set_rng_state(state)


# As long as nobody has imported torch, its stream stands at `_pending`, which is put into it the
# moment somebody does.
_pending: dict[str, Any] = {"seed": 0}


def _set_torch_when_imported(state: Mapping[str, Any]) -> None:
    """Set torch's global stream to `state`, now or as soon as torch is imported."""
    _pending.clear()
    _pending.update(state)
    when_torch_imported("stream", lambda torch: _set_torch(torch, state))


def _set_torch(torch: Any, state: Mapping[str, Any]) -> None:
    """Set the global stream of the imported `torch` module to `state`."""
    if "state" in state:
        import numpy as np

        torch.set_rng_state(torch.from_numpy(np.array(state["state"], dtype=np.uint8)))
    else:
        torch.manual_seed(state["seed"])

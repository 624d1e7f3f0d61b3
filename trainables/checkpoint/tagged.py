"""Values that are data but not plain containers, as *tagged* dicts ``{TAG: kind, ...}``, and back.

`encode` goes one level down: the fields that it returns may contain such values themselves, and its
caller continues with those. `decode` gets fields whose values are decoded already. Both directions
of a kind stand together. The kinds and their fields:

    array     numpy array, small          dtype, shape, data (bytes); large arrays are not tagged
    fortran   numpy array, Fortran order  data (its transpose)
    scalar    numpy scalar                dtype, data (bytes)
    bytes     long bytes                  data (uint8 array)
    tensor    torch tensor                data (array)
    bfloat16  torch tensor                data (int16 array of the same bits)
    deque     collections.deque           items (list), maxlen
    object    a registered class          name, version, data
    opaque    bytes that may run code     data (uint8 array); see `trainables.checkpoint.signing`
"""

import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from trainables.checkpoint.signing import Opaque
from trainables.errors import type_of

#: Key of every tagged dict; states that use it themselves are refused.
TAG: Final = "\0type"
#: Kind of the bytes that are decoded only if they are trusted.
OPAQUE: Final = "opaque"
#: Largest array or bytes that stay in the pickle, bytes: a section of their own costs more.
INLINE_BYTES: Final = 512
#: Array dtypes that a checkpoint may contain: little-endian, fixed width.
DTYPES: Final = frozenset(
    {"|b1", "|i1", "|u1"}
    | {f"<{kind}{size}" for kind in "iu" for size in (2, 4, 8)}
    | {"<f2", "<f4", "<f8", "<c8", "<c16"}
)

#: Rule for the types of arrays, for messages.
_ALLOWED_DTYPES = (
    "bool, int8-64, uint8-64, float16-64, complex64 or complex128, in native byte order"
)
#: Advice if a state is not plain data.
_REMEDY = (
    "return plain data (dict, list, tuple, set, str, bytes, numbers, numpy arrays) in its place, "
    "or register the class with @state_type of trainables.checkpoint.state"
)
#: Advice for objects of torch in a state.
_STATE_DICT = "pass its state_dict(), and give that back to load_state_dict()"


class NotData(ValueError):
    """A value that cannot be stored in a checkpoint.

    `found` describes it, and `remedy` says what to do.
    """

    def __init__(self, description: str, remedy: str) -> None:
        super().__init__(description)
        self.found = description
        self.remedy = remedy


class UnknownType(ValueError):
    """A stored object whose class this program has not registered, or only in an older version."""


# ---- users' classes ---------------------------------------------------------------------------


class StateType(Protocol):
    """Protocol of a class whose objects can be stored in a checkpoint."""

    def to_state(self) -> Any:
        """Return everything that the object consists of, as data that a checkpoint can store."""

    @classmethod
    def from_state(cls, state: Any, version: int) -> Self:
        """Make the object from data that `to_state` of the class's `version` returned."""


_Class = TypeVar("_Class", bound=type[StateType])


class _Registered(NamedTuple):
    """A class registered with `state_type`, whose objects can be stored."""

    name: str
    """Name in checkpoints."""
    version: int
    """Version of the state's format, stored with the state."""
    cls: type[StateType]
    """The class itself."""


#: Registered classes by name.
_by_name: dict[str, _Registered] = {}
#: Registered classes by class.
_by_class: dict[type, _Registered] = {}


def state_type(name: str, version: int = 1) -> Callable[[_Class], _Class]:
    """Decorate a class so that its objects can be stored in checkpoints.

    A checkpoint holds the name, the version and what `to_state` returned. The class is looked up
    among those registered in the running program, never by anything that a file says.

    Args:
        name: name of the class in checkpoints; never reuse one for another class.
        version: version of the data that `to_state` returns; `from_state` gets the version of
            its data.

    Raises:
        ValueError: the name belongs to another class.
    """

    def register(cls: _Class) -> _Class:
        """Register the class and return it; raise ValueError if the name is taken."""
        known = _by_name.get(name)
        if known is not None and _full_name(known.cls) != _full_name(cls):
            raise ValueError(
                f"state type {name!r} is already registered by {_full_name(known.cls)}"
            )
        _by_name[name] = _by_class[cls] = _Registered(name, version, cls)
        return cls

    return register


def _decode_object(name: str, version: int, data: Any) -> StateType:
    """Make the object of a registered class from its stored `data`.

    Raises UnknownType if no class of this `name`, or only an older `version`, is registered.
    """
    known = _by_name.get(name)
    if known is None:
        raise UnknownType(f"needs the state type {name!r}: import the module that registers it")
    if version > known.version:
        raise UnknownType(
            f"holds version {version} of state type {name!r}; this program knows {known.version}"
        )
    return known.cls.from_state(data, version)


# ---- arrays -----------------------------------------------------------------------------------


def encode_array(value: NDArray[Any]) -> NDArray[Any] | dict[str, Any]:
    """Return an array as it is stored, so that C or Fortran order is kept.

    One in Fortran order becomes a tagged dict, in which the caller still has to encode ``data``.
    Any other one is returned in C order if it has more than `INLINE_BYTES`, and otherwise as a
    tagged dict with its bytes. Raises NotData if its dtype is not allowed.
    """
    if value.dtype.str not in DTYPES:
        raise NotData(f"an array of dtype {value.dtype}", f"use {_ALLOWED_DTYPES}")
    if value.flags.f_contiguous and not value.flags.c_contiguous:
        return {TAG: "fortran", "data": value.T}
    if value.nbytes > INLINE_BYTES:
        return np.asarray(value, order="C")
    data = value.tobytes()
    return {TAG: "array", "dtype": value.dtype.str, "shape": value.shape, "data": data}


def array_of(buffer: bytes | memoryview, dtype: str, shape: Sequence[int]) -> NDArray[Any]:
    """Return an array that is a view of `buffer`.

    Raises ValueError for a dtype that is not allowed, or bytes that do not fit the shape.
    """
    if dtype not in DTYPES:
        raise ValueError(f"dtype {dtype!r} is not allowed")
    for length in shape:
        if type(length) is not int or length < 0:  # numpy fills in a -1
            raise ValueError(f"shape {shape} is not one of an array")
    return np.frombuffer(buffer, dtype=dtype).reshape(tuple(shape))


# ---- torch ------------------------------------------------------------------------------------


def _is_tensor(value: object) -> bool:
    """Return whether `value` is a torch tensor or parameter; does not import torch."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and type(value) in (torch.Tensor, torch.nn.Parameter)


def _encode_tensor(value: Any) -> dict[str, Any]:
    """Return a torch tensor as a tagged dict, with a numpy array as ``data``.

    Raises NotData for a layout or dtype that is not allowed.
    """
    import torch

    if value.layout is not torch.strided or value.is_quantized:
        raise NotData(f"a tensor of layout {value.layout}", "use a dense tensor")
    plain = value.detach().cpu().resolve_conj().resolve_neg()
    if plain.dtype is torch.bfloat16:
        return {TAG: "bfloat16", "data": plain.view(torch.int16).numpy()}
    try:
        return {TAG: "tensor", "data": plain.numpy()}
    except TypeError:
        raise NotData(
            f"a tensor of dtype {plain.dtype}", f"use bfloat16, {_ALLOWED_DTYPES}"
        ) from None


def _decode_tensor(data: NDArray[Any]) -> Any:
    """Return a torch tensor that shares the memory of the array `data`."""
    import torch

    return torch.from_numpy(data)


def _decode_deque(items: Any, maxlen: Any) -> deque[Any]:
    """Return a deque of a list's items; raise ValueError if `items` is no list."""
    if type(items) is not list:
        raise ValueError(f"the items of a deque are {type_of(items)}, not a list")
    return deque(items, maxlen=maxlen)


# ---- all kinds --------------------------------------------------------------------------------


def encode(value: Any) -> dict[str, Any]:
    """Return a scalar, tensor, deque, bytes, `Opaque` or registered object as a tagged dict.

    The scalar is one of numpy; a registered object's ``data`` is what its `to_state` returns. The
    fields may contain values that have to be encoded themselves. Raises NotData if the type cannot
    be stored.
    """
    kind = type(value)
    if isinstance(value, np.generic):
        if value.dtype.str not in DTYPES:
            raise NotData(f"a numpy scalar of dtype {value.dtype}", f"use {_ALLOWED_DTYPES}")
        return {TAG: "scalar", "dtype": value.dtype.str, "data": value.tobytes()}
    if kind in _by_class:
        name, version, _ = _by_class[kind]
        return {TAG: "object", "name": name, "version": version, "data": value.to_state()}
    if kind is deque:
        return {TAG: "deque", "items": list(value), "maxlen": value.maxlen}
    if kind is bytes:
        return {TAG: "bytes", "data": np.frombuffer(value, dtype=np.uint8)}
    if kind is Opaque:
        return {TAG: OPAQUE, "data": np.frombuffer(value.data, dtype=np.uint8)}
    if _is_tensor(value):
        return _encode_tensor(value)
    has_state = callable(getattr(value, "state_dict", None))  # a module, an optimizer, a schedule
    raise NotData(f"a value of type {_full_name(kind)}", _STATE_DICT if has_state else _REMEDY)


def decode(tagged: dict[str, Any]) -> Any:
    """Return the value from which `encode` made a tagged dict, whose fields are decoded already.

    Raises UnknownType for an unknown class, and any error for damaged fields.
    """
    fields = dict(tagged)
    return _DECODERS[fields.pop(TAG)](**fields)


#: Kind → function that makes the value from its fields.
_DECODERS: Final[dict[str, Callable[..., Any]]] = {
    "array": lambda dtype, shape, data: array_of(data, dtype, shape).copy(),
    "fortran": lambda data: data.T,
    "scalar": lambda dtype, data: array_of(data, dtype, (1,))[0],
    "bytes": lambda data: data.tobytes(),
    OPAQUE: lambda data: Opaque(data.tobytes()),
    "tensor": _decode_tensor,
    "bfloat16": lambda data: _decode_tensor(data).view(sys.modules["torch"].bfloat16),
    "deque": _decode_deque,
    "object": _decode_object,
}


def _full_name(cls: type) -> str:
    """Return a class's module and name; the name alone for built-in ones."""
    own = cls.__qualname__
    return own if cls.__module__ == "builtins" else f"{cls.__module__}.{own}"

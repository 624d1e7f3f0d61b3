"""The trainable of a script or notebook, which other processes cannot import, as a signed file.

    ROOT/NAME/trainable/ckpt-….swck     cloudpickle's bytes, signed with the key of the author

Its name in a spec is ``__main__:name``. The file is a checkpoint with opaque bytes, so it is read
like one: other users must run ``sweep trust FILE`` before it is loaded. Its header contains the
sweep, the versions of libraries and the script; commands that only display a sweep read nothing
else. A changed trainable is written to a new file with the next number; the newest file is used.
"""

import copyreg
import importlib.metadata
import platform
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

from sweep.core.errors import BadConfig, UsageError
from sweep.core.version import __version__
from trainables.checkpoint import file, signing
from trainables.checkpoint.signing import Opaque, Trust
from trainables.errors import CheckpointError, CorruptCheckpoint, printable
from trainables.function import FunctionTrainable, TrainingFunction, forms, names_in, wrap
from trainables.function import name_of as name_of_function
from trainables.trainable import Trainable

#: Module name of a script that Python runs.
SCRIPT = "__main__"
#: Distributions whose versions must be equal when the bytes are loaded.
LIBRARIES = ("cloudpickle", "torch", "numpy", "gymnasium")
#: A trainable in a script: a function, or a subclass of `Trainable`.
ScriptTrainable = TrainingFunction | type[Trainable]


@dataclass(frozen=True)
class PickledTrainable:
    """File with the pickled trainable of a script or notebook."""

    file: str
    """Path of the file, which is a checkpoint file."""
    sweep_id: str
    """ID of the sweep to which the file must belong."""
    trust: Trust | None = None
    """Key with the accepted signers; None for those of the current user."""


def is_of_script(name: str) -> bool:
    """Return whether a trainable's name in a spec is that of a script's: ``__main__:name``."""
    return name.startswith(f"{SCRIPT}:")


def name_of(trainable: object) -> str:
    """Return the name of a trainable for a spec.

    It is ``package.module:Name``, or ``__main__:name`` if other processes cannot import it by such
    a path. Characters that no identifier has are left out of that name, which is ``trainable`` if
    the rest is no identifier.
    """
    name = name_of_function(trainable)
    if (
        importable(trainable)
        and re.fullmatch(r"[A-Za-z_]\w*", name)
        and name == _qualname(trainable)
    ):
        return f"{getattr(trainable, '__module__')}:{name}"  # noqa: B009 any object
    word = re.sub(r"\W", "", name)
    return f"{SCRIPT}:{word if re.match('[A-Za-z_]', word) else 'trainable'}"


def class_of(trainable: object, saves: bool | None = None) -> type[Trainable]:
    """Return the class of a trainable: itself, or one that wraps a function.

    `saves` is True or False if it is known whether the function's reports have checkpoints; None to
    find out from its source. Raises BadConfig for other objects and for the base class `Trainable`,
    and UsageError for a function that cannot be a trainable.
    """
    if isinstance(trainable, type):
        if issubclass(trainable, Trainable) and trainable is not Trainable:
            return trainable
    elif callable(trainable):
        if problem := forms.signature_problem(trainable):
            raise UsageError(f"trainable: {problem}")
        return wrap(trainable, saves)
    allowed = "a function of one argument, a subclass of trainables.Trainable, or a name"
    raise BadConfig("trainable", trainable, allowed)


def importable(value: object) -> bool:
    """Return whether other processes can import an object by its module and name.

    The module must be imported here already, and hold this very object under that name.
    """
    module, found = getattr(value, "__module__", None), None
    if isinstance(module, str) and module != SCRIPT:
        found = sys.modules.get(module)
        for part in _qualname(value).split("."):
            found = getattr(found, part, None)
    return found is not None and found is value


def _qualname(value: object) -> str:
    """Return the qualified name of an object; empty if it has none."""
    return str(getattr(value, "__qualname__", ""))


# ---- the file -----------------------------------------------------------------------------------


def newest(folder: Path, sweep_id: str) -> PickledTrainable | None:
    """Return the file with the highest number in the folder of a sweep's pickled trainables.

    `sweep_id` is put into the result, to be checked when that is loaded. Returns None if there is
    no file.
    """
    files = [path for path in folder.glob("ckpt-*") if file.parse_name(path.name)]
    return PickledTrainable(str(max(files, key=_step)), sweep_id) if files else None


def _step(path: Path) -> int:
    """Return the number in the name of a checkpoint file; 0 for other names."""
    parsed = file.parse_name(path.name)
    return parsed[0] if parsed else 0


def write(folder: Path, trainable: type[Trainable], sweep_id: str) -> PickledTrainable:
    """Pickle a trainable into a new signed file in `folder`, and return the file's description.

    Its number is one higher than that of the newest file, or 0. Of a wrapped function, the function
    is pickled.

    Raises:
        UsageError: it cannot be pickled.
        SigningError: there is no key to sign it with.
    """
    import cloudpickle

    before, held = newest(folder, sweep_id), pickled_object(trainable)
    try:
        data = cloudpickle.dumps(held)
    except Exception as error:  # what it names has a __reduce__ of its own, which fails in any way
        raise UsageError(
            f"trainable: {trainable.__name__} cannot be sent to another process "
            f"({type(error).__name__}: {error}); create what it needs inside the function"
        ) from error
    header = {
        "sweep": sweep_id,
        "trainable": trainable.__name__,
        "source": digest(held),
        "saves": trainable.can_save(),
        "libraries": libraries(),
        "script": _script(),
    }
    step = _step(Path(before.file)) + 1 if before else 0
    saved = file.write(folder, step, header, {"pickle": Opaque(data)})
    return PickledTrainable(str(saved.path), sweep_id)


def source_of(stored: PickledTrainable) -> str:
    """Return the digest of the code in the header of a trainable's file, without loading code.

    It is empty if the header has none; the signature is not checked. Raises CheckpointError if the
    file is missing, damaged, of another format, or unreadable.
    """
    return str(file.identify(Path(stored.file))[1].get("source", ""))


def is_usable(stored: PickledTrainable | None, source: str) -> bool:
    """Return whether a trainable's file need not be written again.

    It must have the digest `source` of the code, the present versions of libraries and this user's
    signature; the user gets a key for signatures if there is none. Returns False for None and for a
    damaged file. Raises SigningError if the key cannot be read or made.
    """
    if stored is None:
        return False
    try:
        header = file.identify(Path(stored.file))[1]
    except CheckpointError:  # it is damaged
        return False
    own = {"source": source, "libraries": libraries(), "key": signing.user_trust().name}
    return all(header.get(key) == value for key, value in own.items())


def load(name: str, stored: PickledTrainable | None) -> type[Trainable]:
    """Load the pickled trainable of a script, named `name` in the spec, and return its class.

    This runs code of the script.

    Raises:
        UsageError: there is no file, other versions of libraries wrote it, or unpickling fails.
        CheckpointError: the file is not usable; UntrustedCheckpoint if another user signed it.
    """
    if stored is None:
        raise UsageError(
            f"trainable: '{printable(name)}' is a function or class of a script or notebook, "
            "and this sweep has no copy of it; call sweep.run() or sweep.resume(…, "
            "trainable=…) in that script or notebook, or write the path package.module:Name"
        )
    path = Path(stored.file)
    loaded = file.read(path, trust=stored.trust)
    header, pickle = loaded.header, loaded.state.get("pickle")
    if not isinstance(pickle, Opaque) or header.get("sweep") != stored.sweep_id:
        raise CorruptCheckpoint(path, "this file does not contain the trainable of this sweep")
    made, now = dict(header.get("libraries", {})), libraries()
    if changed := [key for key, version in now.items() if made.get(key) != version]:
        others = ", ".join(
            f"{key} {made.get(key)}, but {now[key]} is installed here" for key in changed
        )
        raise UsageError(_script_needed_message(stored, header, f"was saved with {others}"))
    import cloudpickle

    try:
        held = cloudpickle.loads(pickle.data)
    except Exception as error:  # modules that are gone, and whatever code of theirs raises
        problem = f"cannot be loaded ({type(error).__name__}: {error})"
        raise UsageError(_script_needed_message(stored, header, problem)) from error
    return class_of(held, bool(header["saves"]))


def _script_needed_message(
    stored: PickledTrainable, header: Mapping[str, Any], problem: str
) -> str:
    """Return the message that a trainable can only be resumed from its script.

    `header` is that of its file, and `problem` says why the file does not suffice.
    """
    name, script = header.get("trainable"), header.get("script")
    where = f"the script {script}" if script else "the notebook"
    call = f"sweep.resume({Path(stored.file).parents[1].name!r}, trainable={name})"
    return printable(f"trainable: {name} {problem}; resume from {where} that defines it: {call}")


def pickled_object(trainable: type[Trainable]) -> object:
    """Return the object that is pickled for a trainable: its function, or the class itself."""
    return trainable.function if issubclass(trainable, FunctionTrainable) else trainable


def libraries() -> dict[str, str]:
    """Return the versions of Python, `LIBRARIES` and sweep: name → version.

    They must be equal in processes that exchange pickles.
    """
    found = {name: importlib.metadata.version(name) for name in LIBRARIES}
    return {"python": platform.python_version(), **found, "sweep": __version__}


def _script() -> str:
    """Return the absolute path of the running script; empty in a notebook."""
    path = getattr(sys.modules.get(SCRIPT), "__file__", None)
    return "" if path is None else str(Path(path).resolve())


# ---- comparing trainables -----------------------------------------------------------------------


def digest(value: object) -> str:
    """Return the SHA-256 of a function or class: of its code and of all values that it uses.

    Line numbers do not count. Of importable objects only the names count.
    """
    return sha256("\n".join(_Walk().describe(value)).encode("utf-8", "surrogatepass")).hexdigest()


def digest_of(trainable: type[Trainable]) -> str:
    """Return the SHA-256 of a trainable's code: that of its function, or of the class."""
    return digest(pickled_object(trainable))


class _Walk:
    """Description of everything that determines a value's behaviour, as lines of text.

    Each object is described once.
    """

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, object]] = {}  # keeps objects alive, so ids stay unique

    def describe(self, value: object) -> Iterator[str]:
        """Yield the lines that describe `value` and, recursively, everything that it uses.

        An object that this walk has described before gets one line, ``again NUMBER``. Of importable
        objects only the names are described.
        """
        if value is None or isinstance(value, bool | int | float | complex | str | bytes):
            yield f"{type(value).__name__} {value!r}"
            return
        if id(value) in self._seen:
            yield f"again {self._seen[id(value)][0]}"
            return
        self._seen[id(value)] = len(self._seen), value
        yield type(value).__name__
        if isinstance(value, ModuleType):
            yield value.__name__
        elif isinstance(value, type | FunctionType | BuiltinFunctionType) and importable(value):
            yield f"{value.__module__}:{_qualname(value)}"
        elif isinstance(value, set | frozenset):
            yield from sorted("\n".join(_Walk().describe(item)) for item in value)
        else:
            for part in _parts(value):
                yield from self.describe(part)
        yield "end"


#: Attributes that Python adds to every class.
_OF_PYTHON = frozenset({"__dict__", "__weakref__", "__module__", "__doc__", "__firstlineno__"})


def _parts(value: Any) -> list[Any]:
    """Return the values that a value consists of, in a fixed order.

    For types without a rule of their own, these are what pickle would write; empty if it refuses.
    """
    match value:
        case CodeType():
            sizes = (value.co_argcount, value.co_posonlyargcount, value.co_kwonlyargcount)
            names = (value.co_names, value.co_varnames, value.co_freevars, value.co_cellvars)
            flow = (value.co_flags, value.co_code, value.co_exceptiontable)
            return [*sizes, *map(list, names), *flow, *value.co_consts]
        case FunctionType():
            cells = [_content(cell) for cell in value.__closure__ or ()]
            known = sorted(names_in(value) & value.__globals__.keys())
            named = [part for name in known for part in (name, value.__globals__[name])]
            return [value.__code__, value.__defaults__, value.__kwdefaults__, *cells, *named]
        case type():
            own = sorted(vars(value).keys() - _OF_PYTHON)
            return [*value.__bases__, *(part for name in own for part in (name, vars(value)[name]))]
        case staticmethod() | classmethod():
            return [value.__func__]
        case property():
            return [value.fget, value.fset, value.fdel]
        case dict():
            return [part for item in value.items() for part in item]
        case list() | tuple():
            return list(value)
    return _reduced(value)


def _content(cell: Any) -> object:
    """Return the value in a closure's cell; None if it is empty."""
    try:
        return cell.cell_contents
    except ValueError:  # nothing is in it yet
        return None


def _reduced(value: Any) -> list[Any]:
    """Return the parts of pickle's reduction of a value; the list is empty if pickle refuses it.

    They are the function that makes it again, its arguments, its state and so on, with iterators as
    lists. Of an object that pickle writes by name, they are the name and the object that it wraps.
    """
    reduce = copyreg.dispatch_table.get(type(value))
    try:
        reduced: Any = value.__reduce_ex__(4) if reduce is None else reduce(value)
    except Exception:  # noqa: BLE001 methods of any class; cloudpickle may still pickle it
        return []
    if isinstance(reduced, str):
        return [reduced, getattr(value, "__wrapped__", None)]  # as functools.cache leaves it
    return [list(part) if isinstance(part, Iterator) else part for part in reduced]

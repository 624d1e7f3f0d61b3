"""The steps of PPO and A2C in a compiled kernel, if one is built: faster, with other rounding.

    python -m trainables.learners.fused.compiled

builds it next to its source with the system's C compiler; nothing else requires a compiler. The
kernel sums numbers in the same order on every processor with AVX2, so that its results depend only
on its version. Checkpoints store that version as `name`; results of another kernel, or of numpy,
are equal up to rounding.
"""

import ctypes
import logging
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trainables.envs.spaces.actions import ActionLayout
from trainables.errors import NotFiniteError
from trainables.learners.fused.flat import Betas
from trainables.learners.fused.ppo import FusedLearner, Loss
from trainables.learners.standardizing import LEAST_ROWS
from trainables.policies.architecture import Architecture

if TYPE_CHECKING:
    from trainables.learners.fused.policy import FlatPolicy
    from trainables.policies.learning.torch_policy import ActorCriticPolicy

logger = logging.getLogger(__name__)
Array = NDArray[Any]
#: Source of the kernel.
SOURCE = Path(__file__).with_name("kernel.c")
#: The kernel's built library.
BUILT = SOURCE.with_suffix(".so")
#: Options of the C compiler.
_FLAGS = (
    *("-O2", "-ftree-vectorize", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"),
    *("-Wall", "-Wextra", "-Werror", "-Wno-psabi", "-fno-asynchronous-unwind-tables"),
    *("-fPIC", "-shared", "-s", "-Wl,-z,noseparate-code"),
)
#: Largest numbers of hidden layers and of columns of choices in kernel.c's `Problem`.
MOST_LAYERS, MOST_COLUMNS = 16, 64


class Problem(ctypes.Structure):
    """The C struct that describes a gradient step to the kernel, with kernel.c's fields."""

    _fields_ = (
        *((name, ctypes.c_long) for name in ("bits", "features", "layers", "head", "choices")),
        *((name, ctypes.c_long) for name in ("most", "reals", "parameters")),
        ("hidden", ctypes.c_long * MOST_LAYERS),
        ("sizes", ctypes.c_long * MOST_COLUMNS),
        *((name, ctypes.c_long) for name in ("relu", "normalize", "plain", "clip_values")),
        *((n, ctypes.c_double) for n in ("clip", "clip_by", "value_weight", "entropy_weight")),
        *((n, ctypes.c_void_p) for n in ("weights", "gradient", "first", "second", "work")),
    )


class Kernel:
    """The shared library of the compiled kernel, loaded into this process.

    Args:
        bits: width of the vector registers to use; by default the widest of this processor.

    Raises:
        OSError: the file cannot be loaded, is built from another kernel.c, or this processor has no
            registers of that width.
    """

    def __init__(self, path: Path, bits: int | None = None) -> None:
        library = ctypes.CDLL(str(path))
        library.kernel_name.restype = ctypes.c_char_p
        for name in ("gradient", "norm"):
            getattr(library, f"kernel_{name}").restype = ctypes.c_double
        for name in ("work", "bits", "problem"):
            getattr(library, f"kernel_{name}").restype = ctypes.c_long
        self.name = str(library.kernel_name().decode())
        widest = int(library.kernel_bits())
        if not widest or (bits or 0) > widest:
            raise OSError(f"{path}: this processor lacks the instructions that this kernel needs")
        if library.kernel_problem() != ctypes.sizeof(Problem):
            raise OSError(f"{path}: was built from another kernel.c; rebuild it with make kernels")
        self.bits = bits or widest
        self.library = library


def build(path: Path = BUILT, *options: str) -> Path:
    """Compile kernel.c to the shared library `path` with these compiler `options`; return `path`.

    Raises:
        RuntimeError: there is no compiler, or it failed; the message is the compiler's.
        OSError: ``$CC`` cannot be run, or the file cannot be written.
    """
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise RuntimeError("no C compiler is installed (cc, gcc, or $CC)")
    draft = path.with_suffix(f".{os.getpid()}")  # processes that use the old file keep it
    command = [compiler, *_FLAGS, *options, "-o", str(draft), str(SOURCE), "-lm"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if ran.returncode:
        raise RuntimeError(f"{compiler}: {ran.stderr.strip()}")
    draft.replace(path)
    return path


@cache
def built() -> Kernel | None:
    """Load this installation's kernel; None if it is not built or cannot be used. Cached.

    A warning is logged if it is built but cannot be used.
    """
    try:
        return Kernel(BUILT)
    except OSError as error:
        if BUILT.exists():
            logger.warning("the compiled kernel is not used: %s", error)
        return None


def find_reason_for_numpy(layout: ActionLayout, architecture: Architecture) -> str:
    """Return the reason why the compiled kernel cannot learn a policy, so that numpy must; else "".

    The policy is one that numpy's `FusedLearner` supports.
    """
    if len(architecture.hidden) > MOST_LAYERS:
        return f"model.hidden has more than {MOST_LAYERS} layers"
    if len(layout.choice_columns) > MOST_COLUMNS:
        return f"actions have more than {MOST_COLUMNS} columns"
    return "action_mask is set" if architecture.masks else ""


class CompiledLearner(FusedLearner):
    """A `FusedLearner` whose gradients and Adam steps are computed in compiled C, not in numpy."""

    def __init__(
        self,
        policy: "FlatPolicy | ActorCriticPolicy",
        loss: Loss,
        stats: tuple[str, ...],
        threads: int = 1,
        *,
        kernel: Kernel,
    ) -> None:
        super().__init__(policy, loss, stats, threads)
        layout, architecture = policy.layout, policy.architecture
        sizes = [layout.sizes[column] for column in layout.choice_columns]
        vectors = self.adam.vectors
        self._library = kernel.library
        self._problem = Problem(
            bits=kernel.bits,
            features=architecture.features,
            layers=len(architecture.hidden),
            head=layout.head_size,
            choices=len(sizes),
            most=max(sizes, default=0),
            reals=len(layout.real_columns),
            parameters=vectors.shape[1],
            hidden=_longs(architecture.hidden, MOST_LAYERS),
            sizes=_longs(sizes, MOST_COLUMNS),
            relu=architecture.activation == "relu",
            **{n: v.ctypes.data for n, v in zip(_VECTORS, vectors, strict=False)},
        )
        self._problem_pointer = ctypes.byref(self._problem)
        self._set_loss(loss)
        self._work: Array = np.empty(0, dtype=self._kind)
        self.adam.kernel = self

    def gradient(self, columns: Array) -> Array:
        """Compute the gradient of one minibatch's loss; return the parts of the loss (S,).

        The gradient is written to the gradient vector. `columns` are packed as for
        `FusedLearner.gradient`. Raises NotFiniteError if the loss is NaN or infinite.
        """
        rows, item = columns.shape[1], columns.itemsize
        if self.loss is not self._current_loss:
            self._set_loss(self.loss)
        self._problem.normalize = self.loss.normalize_advantages and rows >= LEAST_ROWS
        if columns.strides[1] != item:
            columns = np.ascontiguousarray(columns)
        needed = int(self._library.kernel_work(self._problem_pointer, ctypes.c_long(rows)))
        if len(self._work) < needed:
            self._work = np.empty(needed, dtype=self._kind)
            self._problem.work = self._work.ctypes.data
        parts = np.empty(5)
        loss = self._library.kernel_gradient(
            self._problem_pointer,
            ctypes.c_void_p(columns.ctypes.data),
            ctypes.c_long(columns.strides[0] // item),
            ctypes.c_long(rows),
            ctypes.c_void_p(parts.ctypes.data),
        )
        if not math.isfinite(loss):
            raise NotFiniteError.of_learning(f"the loss is {loss}")
        return parts[: len(self.stats)].astype(self._kind)

    def _set_loss(self, loss: Loss) -> None:
        """Write a loss's options into the struct that the kernel reads."""
        problem, self._current_loss = self._problem, loss
        problem.plain = loss.clip_param is None
        problem.clip, problem.clip_by = loss.clip_param or 0.0, loss.vf_clip_param or 0.0
        problem.clip_values = loss.vf_clip_param is not None
        problem.value_weight, problem.entropy_weight = loss.vf_loss_coeff, loss.entropy_coeff

    def norm(self) -> float:
        """Return the Euclidean norm of the gradient vector."""
        return float(self._library.kernel_norm(self._problem_pointer))

    def move(self, scale: float, betas: Betas, eps: float, decay: float, rate: float) -> None:
        """Make one step of Adam on the weight vector with the gradient times `scale`.

        Both moments are updated first.

        Args:
            scale: factor of the gradient, from clipping.
            betas: decay of the two moments.
            eps: number added to the root of the second moment, times its bias correction.
            decay: weight decay.
            rate: learning rate, times the bias corrections.
        """
        numbers = (scale, *betas, eps, decay, rate)
        self._library.kernel_adam(self._problem_pointer, *map(ctypes.c_double, numbers))


#: Names of the vectors that a gradient step reads and writes.
_VECTORS = ("weights", "gradient", "first", "second")


def _longs(numbers: Sequence[int], room: int) -> Any:
    """Return numbers as a C array of `room` longs; the rest are 0."""
    return (ctypes.c_long * room)(*numbers)


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{build()}\n")
    except RuntimeError as error:
        sys.exit(str(error))

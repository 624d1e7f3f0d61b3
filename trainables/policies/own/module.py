"""A user's torch module in place of actor and critic: checked, trained and used to act.

    Net(shape, outputs, **custom_model_config)
    forward(observations (B, *S)) -> head (B, outputs), values (B,)

B or N rows, *S the shape of a preprocessed and filtered observation, float32; that of an image is
(H, W, C), with pixels from 0 to 1. The module is in training mode while it learns, and in
evaluation mode while it acts.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from trainables.core import rng
from trainables.core.importing import load_callable
from trainables.envs.spaces.actions import ActionLayout
from trainables.errors import ConfigError, shorten, type_of
from trainables.policies.acting.actor import Actor, Weights
from trainables.policies.acting.dense import Array
from trainables.policies.architecture import Architecture, OwnModule
from trainables.policies.exploration.actions import StochasticSampling
from trainables.policies.learning.layers import as_float32, unit_pixels
from trainables.policies.learning.networks import (
    Evaluated,
    Networks,
    SequenceLayout,
    Stochastic,
    mask_logits,
    split,
)

#: Setting that names the class.
PLACE = "model.custom_model"
#: Number of rows of the batch with which a module is checked; unlikely to equal another dimension.
ROWS = 3
#: Largest difference, by rounding, between outputs of a row alone and of the same row among others.
CLOSE = 1e-3


class OwnActorCritic(Stochastic):
    """The networks of a policy that are a user's module, with log standard deviations (G,).

    Args:
        architecture: options; `custom_model` names the module.
        seed: seed of the trial; a stream of it draws the weights.
    """

    def __init__(self, layout: ActionLayout, architecture: Architecture, seed: int) -> None:
        super().__init__(layout, architecture)
        self.module = make_module(architecture, architecture.count_outputs(layout), seed)
        self.log_std = self._free_log_std()

    def saved_tensors(self) -> dict[str, Tensor]:
        """Return name → tensor of the parameters and buffers that torch saves."""
        return dict(self.state_dict())

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Return the actor's outputs (B, P) and values (B,) of filtered observations (B, *S)."""
        rows, valid = split(observations, self.architecture.masks)
        head, values = outputs_of(self.module, unit_pixels(rows, self.architecture))
        return mask_logits(as_float32(head), valid), as_float32(values)

    def value(self, observations: Tensor) -> Tensor:
        """Return the values (B,) of filtered observations (B, *S)."""
        return self(observations)[1]  # type: ignore[no-any-return]

    def evaluate(
        self, observations: Tensor, actions: Tensor, sequences: SequenceLayout | None = None
    ) -> Evaluated:
        """Return log-probabilities and entropies of actions, and values, with gradients.

        Each is (B,); entropies are one number () if all are equal. `sequences` is ignored, since
        the module has no memory.
        """
        head, values = self(observations)
        return Evaluated(*self._logp_entropy(head, actions, head), values)


def outputs_of(module: nn.Module, rows: Tensor) -> Any:
    """Return the outputs of a module for rows (B, *S), in its current mode.

    In training mode BatchNorm raises ValueError for a single row, which has no deviation. Such
    layers then run in evaluation mode, and no statistics change.
    """
    if len(rows) != 1 or not module.training:
        return module(rows)
    before = {buffer: buffer.clone() for buffer in module.buffers()}
    try:
        return module(rows)
    except ValueError:
        layers = [one for one in module.modules() if isinstance(one, _BatchNorm) and one.training]
        if not layers:
            raise
        for buffer, value in before.items():  # layers before the one that raised have counted it
            buffer.copy_(value)
        with in_acting_mode(*layers):
            return module(rows)


@contextmanager
def in_acting_mode(*modules: nn.Module) -> Iterator[None]:
    """Set modules to evaluation mode inside the block; restore the mode of each part after it."""
    each = {part: part.training for module in modules for part in module.modules()}
    for module in modules:
        module.eval()
    try:
        yield
    finally:
        for part, training in each.items():
            part.training = training


class TorchActor(Actor):
    """Base class of actors that run networks in torch on the CPU."""

    _constructor_arguments: tuple[Any, ...]
    """Arguments with which the actor was made, for pickling."""
    _networks: Networks
    """Networks of the actor."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the weights as arrays; torch would put them into shared memory."""
        state = {k: v for k, v in vars(self).items() if k != "_networks"}
        return _rebuild_actor, (
            type(self),
            self._constructor_arguments,
            self._networks.weights(),
            state,
        )

    def load(self, weights: Weights) -> None:
        """Copy weights, name → array, as `Networks.weights` returns them."""
        self._networks.load_weights(weights)
        self._log_std = np.array(weights.get("log_std", self._log_std))

    def weights(self) -> dict[str, Array]:
        """Return a copy of the weights: name → array."""
        return self._networks.weights()

    def _run(self, observations: NDArray[Any]) -> Any:
        """Return the networks' outputs for filtered observations (N, *S), as tensors."""
        rows = torch.from_numpy(np.require(observations, requirements=["C", "W"]))
        with torch.inference_mode():
            return self._networks(rows)


class OwnActor(TorchActor):
    """An `Actor` that runs a user's module in place of actor and critic."""

    def __init__(
        self,
        layout: ActionLayout,
        architecture: Architecture,
        exploration: StochasticSampling | None = None,
    ) -> None:
        super().__init__(layout, architecture, exploration)
        self._constructor_arguments = layout, architecture
        self._networks = OwnActorCritic(layout, architecture, 0).eval()

    def forward(self, observations: NDArray[Any]) -> tuple[Array, Array]:
        """Return the actor's outputs (N, P) and values (N,) of filtered observations (N, *S)."""
        head, values = self._run(observations)
        return head.numpy(), values.numpy()

    def _heads_each(self, observations: NDArray[Any], memory: Array) -> tuple[Array, Array]:
        """Return the actor's outputs (N, P), each row computed alone, and `memory` unchanged."""
        return np.concatenate([self.forward(one[None])[0] for one in observations]), memory


def _rebuild_actor(
    kind: type[TorchActor],
    constructor_arguments: tuple[Any, ...],
    weights: Weights,
    state: dict[str, Any],
) -> TorchActor:
    """Return an unpickled actor with these weights and attributes."""
    made = kind(*constructor_arguments)
    made.load(weights)
    vars(made).update(state)
    return made


def make_module(architecture: Architecture, outputs: int, seed: int) -> nn.Module:
    """Create a user's module, ``Net(shape, outputs, **arguments)``; `seed` decides its weights.

    The global random streams are restored afterwards.

    Args:
        architecture: options; `custom_model` names the module.
        outputs: number of outputs of its head.

    Raises:
        ConfigError: the module cannot be made, is not a torch module, has nothing to train, has
            other parameters than float32, or has state other than tensors.
    """
    settings = _require_own_module(architecture)
    make = load_callable(PLACE, settings.path, "a torch module")
    name = settings.path.partition(":")[2]
    with rng.preserve_global():
        rng.seed_global(seed, "init")
        try:
            module = make(architecture.shape, outputs, **settings.arguments)
        except Exception as error:
            call = ", ".join([f"{architecture.shape}, {outputs}", *settings.arguments])
            raised = f"{name}({call}) raised {type(error).__name__}: {error}".splitlines()[0]
            place, hint = f"{PLACE}_config", f"give the arguments of {name}"
            given = dict(settings.arguments)
            raise ConfigError(place, given, hint=hint, problem=raised) from error
    if not isinstance(module, nn.Module):
        raise _refusal(settings, "a torch.nn.Module", f"{name} returned {type_of(module)}")
    parameters = dict(module.named_parameters())
    if not any(one.requires_grad for one in parameters.values()):
        raise _refusal(
            settings, "a module that can learn", f"{name} has no parameter that requires a gradient"
        )
    for key, one in parameters.items():
        if one.dtype != torch.float32 or one.is_meta or isinstance(one, nn.UninitializedParameter):
            hint = f"{key} of {name} is {'lazy' if one.is_meta else one.dtype}"
            raise _refusal(settings, "a module whose parameters are float32", hint)
    for key, entry in module.state_dict().items():
        if not isinstance(entry, Tensor):
            hint = f"{key} is {type_of(entry)}: register_buffer() keeps tensors"
            raise _refusal(settings, "a module whose state is made of tensors", hint)
    return module


def check(architecture: Architecture, outputs: int, *columns: str) -> nn.Module:
    """Create a user's module and try it; raises ConfigError if it breaks its contract.

    Its first output must be (B, outputs), the others, named `columns`, (B,) each. Outputs must be
    finite float32 with gradients, and depend on their row alone. Returns the module, in evaluation
    mode.
    """
    module, settings = make_module(architecture, outputs, 0), _require_own_module(architecture)
    rows = torch.rand((ROWS, *architecture.shape), generator=rng.torch_generator(0, "tried"))
    expected = {"head": (ROWS, outputs), **dict.fromkeys(columns, (ROWS,))}
    learning = _try_module(settings, module, rows, expected)
    if bare := [name for name, one in learning.items() if not one.requires_grad]:
        hint = f"its {bare[0]} has no gradient: is it detached, or made under no_grad()?"
        raise _refusal(settings, "a module that can learn", hint)
    acting = _try_module(settings, module.eval(), rows, expected)
    alone = [_call_module(settings, module, row[None]) for row in rows]
    for together, *parts in zip(acting.values(), *alone, strict=True):
        if not torch.allclose(together, torch.cat(parts), CLOSE, CLOSE):
            hint = "the result for a row changes with the other rows, or from call to call"
            raise _refusal(settings, "a module whose outputs depend on their row alone", hint)
    return module


def check_learning_rows(architecture: Architecture, module: nn.Module, key: str, rows: int) -> None:
    """Raise ConfigError if batches have one row and the module cannot be trained on one row.

    `rows` is the number of rows of a batch, `key` the setting that determines it. With more than
    one row nothing is done. With one the module is set to training mode and called.
    """
    if rows > 1:
        return
    row = torch.rand((1, *architecture.shape), generator=rng.torch_generator(0, "tried"))
    module.train()
    try:
        module(row)
    except ValueError as error:
        path = _require_own_module(architecture).path
        why = f"it cannot learn from one row: {error}".splitlines()[0]
        raise ConfigError.of_conflict(key, rows, path, "2 or more", why) from error


def _require_own_module(architecture: Architecture) -> OwnModule:
    """Return the user's module of an architecture; raises ValueError if it has none."""
    if architecture.custom_model is None:
        raise ValueError("an architecture without custom_model")
    return architecture.custom_model


def _try_module(
    settings: OwnModule, module: nn.Module, rows: Tensor, expected: Mapping[str, tuple[int, ...]]
) -> dict[str, Tensor]:
    """Call a user's module; return name → output (B, …), with the names and shapes `expected`.

    Raises ConfigError if the call fails, and for wrong shapes, dtypes, NaN or infinity.
    """
    given = _call_module(settings, module, rows)
    shapes = [tuple(one.shape) for one in given]
    if shapes != list(expected.values()):
        allowed = f"a module whose outputs have the shapes {_join_shapes(expected.values())}"
        hint = f"for observations {tuple(rows.shape)} it gave {_join_shapes(shapes)}"
        raise _refusal(settings, allowed, hint)
    named = dict(zip(expected, given, strict=True))
    for name, one in named.items():
        if one.dtype != torch.float32:
            raise _refusal(settings, "a module that returns float32", f"its {name} is {one.dtype}")
        if not torch.isfinite(one).all():
            hint = f"its {name} holds NaN or infinity for observations from 0 to 1"
            raise _refusal(settings, "a module that returns finite numbers", hint)
    return named


def _call_module(settings: OwnModule, module: nn.Module, rows: Tensor) -> tuple[Tensor, ...]:
    """Return a user's module's outputs for rows (B, *S), as a tuple.

    Raises ConfigError if the call fails, draws from a global random stream, or returns no tensors.
    The global streams are restored afterwards.
    """
    with rng.preserve_global():
        before = rng.capture_global()
        try:
            given: Any = module(rows)
        except Exception as error:
            hint = f"for observations {tuple(rows.shape)} it raised {type(error).__name__}: {error}"
            raise _refusal(
                settings, "a module that can be called with observations", hint
            ) from error
        if not rng.equal_global(before, rng.capture_global()):
            hint = "it uses random numbers, as dropout does, so two runs would differ"
            raise _refusal(settings, "a module without random numbers", hint)
    found = given if isinstance(given, tuple) else (given,)
    if not all(isinstance(one, Tensor) for one in found):
        allowed = "a module that returns a tensor, or a tuple of them"
        raise _refusal(settings, allowed, f"it returned {shorten(given)}")
    return found


def _join_shapes(shapes: Iterable[tuple[int, ...]]) -> str:
    """Return shapes joined with "and"."""
    return " and ".join(str(shape) for shape in shapes)


def _refusal(settings: OwnModule, allowed: str, seen: str) -> ConfigError:
    """Return an error which says that the user's module is not what is `allowed`.

    The first line of `seen` says what is wrong with it.
    """
    problem = f"{settings.path}: {seen.splitlines()[0]}"
    return ConfigError(PLACE, settings.path, allowed, problem=problem)

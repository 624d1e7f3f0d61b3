"""A torch module of a person's own: made, tried before anything is trained, learnt and acted with.

    Net(shape, outputs, **custom_model_config)
    forward(observations (B, *S)) -> head (B, outputs), values (B,)

B or N rows, *S the shape of a preprocessed and filtered observation, float32; of an image
(H, W, C), with pixels from 0 to 1. It learns in its training mode and acts in the other one.
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
from trainables.core.importing import load
from trainables.envs.spaces.actions import ActionLayout
from trainables.errors import ConfigError, shorten
from trainables.policies.acting.actor import Actor, Weights
from trainables.policies.acting.dense import Array
from trainables.policies.architecture import Architecture, OwnModule
from trainables.policies.exploration.actions import StochasticSampling
from trainables.policies.layers import unit_pixels
from trainables.policies.networks import Evaluated, Networks, Replay, Stochastic, allowed, split

PLACE = "model.custom_model"
#: Rows of the batch on which a module is tried: no other number of its shapes should be the same.
ROWS = 3
#: How far a row's outputs may depend on the rows beside it, by rounding.
CLOSE = 1e-3


class OwnActorCritic(Stochastic):
    """The module, and beside it log standard deviations (G,) of the real action columns."""

    def __init__(self, layout: ActionLayout, architecture: Architecture, seed: int) -> None:
        super().__init__(layout, architecture)
        self.module = made(architecture, architecture.head(layout), seed)
        self.log_std = self._free_log_std()

    def kept(self) -> dict[str, Tensor]:
        """Parameters and buffers by name, as far as torch saves them."""
        return dict(self.state_dict())

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Heads and values (B,) of filtered observations."""
        rows, valid = split(observations, self.architecture.masks)
        head, values = outputs_of(self.module, unit_pixels(rows, self.architecture))
        return allowed(head, valid), values

    def value(self, observations: Tensor) -> Tensor:
        """(B,) values of filtered observations."""
        return self(observations)[1]  # type: ignore[no-any-return]

    def evaluate(
        self, observations: Tensor, actions: Tensor, replay: Replay | None = None
    ) -> Evaluated:
        """As `Stochastic.evaluate`; there is no memory."""
        head, values = self(observations)
        return Evaluated(*self._logp_entropy(head, actions, head), values)


def outputs_of(module: nn.Module, rows: Tensor) -> Any:
    """Return what a module gives for rows (B, *S), in whichever mode it is.

    A single row has no deviation to normalise by: a layer that refuses to learn from one, such as
    BatchNorm, takes the statistics that it acts with, and does not move them.
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
        for buffer, value in before.items():  # layers before the one that refuses have counted it
            buffer.copy_(value)
        with in_acting_mode(*layers):
            return module(rows)


@contextmanager
def in_acting_mode(*modules: nn.Module) -> Iterator[None]:
    """Let modules compute as they act: what they give moves no statistics; then put them back."""
    each = {part: part.training for module in modules for part in module.modules()}
    for module in modules:
        module.eval()
    try:
        yield
    finally:
        for part, training in each.items():
            part.training = training


class InTorch(Actor):
    """Acts with networks in torch, made from `_made_from`; how actions are chosen is as ever."""

    _made_from: tuple[Any, ...]
    _networks: Networks

    def __reduce__(self) -> tuple[Any, ...]:
        """It crosses to another process as arrays, not as memory that is shared."""
        state = {k: v for k, v in vars(self).items() if k != "_networks"}
        return _remade, (type(self), self._made_from, self._networks.weights(), state)

    def load(self, weights: Weights) -> None:
        """Adopt weights named as the networks name them; they are copied."""
        self._networks.load_weights(weights)
        self._log_std = np.array(weights.get("log_std", self._log_std))

    def weights(self) -> dict[str, Array]:
        """Return the weights given to `load`."""
        return self._networks.weights()

    def _run(self, observations: NDArray[Any]) -> Any:
        """Return the networks' outputs for filtered observations (N, *S), as tensors."""
        rows = torch.from_numpy(np.require(observations, requirements=["C", "W"]))
        with torch.inference_mode():
            return self._networks(rows)


class OwnActor(InTorch):
    """Acts with the module."""

    def __init__(
        self,
        layout: ActionLayout,
        architecture: Architecture,
        exploration: StochasticSampling | None = None,
    ) -> None:
        super().__init__(layout, architecture, exploration)
        self._made_from = layout, architecture
        self._networks = OwnActorCritic(layout, architecture, 0).eval()

    def forward(self, observations: NDArray[Any]) -> tuple[Array, Array]:
        """Heads and values (N,) of filtered observations."""
        head, values = self._run(observations)
        return head.numpy(), values.numpy()

    def _heads_each(self, observations: NDArray[Any], memory: Array) -> tuple[Array, Array]:
        return np.concatenate([self.forward(one[None])[0] for one in observations]), memory


def _remade(
    kind: type[InTorch], made_from: tuple[Any, ...], weights: Weights, state: dict[str, Any]
) -> InTorch:
    made = kind(*made_from)
    made.load(weights)
    vars(made).update(state)
    return made


def made(architecture: Architecture, outputs: int, seed: int) -> nn.Module:
    """A module with the initial weights of the trial with this seed.

    Raises:
        ConfigError: it cannot be made, or what is made is no such module.
    """
    own = _own(architecture)
    make = load(PLACE, own.path, "a torch module")
    name = own.path.partition(":")[2]
    with rng.preserve_global():
        rng.seed_global(seed, "init")
        try:
            module = make(architecture.shape, outputs, **own.arguments)
        except Exception as error:
            call = ", ".join([f"{architecture.shape}, {outputs}", *own.arguments])
            hint = f"{name}({call}) raised {type(error).__name__}: {error}".splitlines()[0]
            place, allowed = f"{PLACE}_config", f"what {name} can be made from"
            raise ConfigError(place, dict(own.arguments), allowed, hint) from error
    if not isinstance(module, nn.Module):
        raise _refusal(own, "a torch.nn.Module", f"{name} made a {type(module).__name__}")
    parameters = dict(module.named_parameters())
    if not any(one.requires_grad for one in parameters.values()):
        raise _refusal(own, "a module with parameters that learn", f"{name} has none")
    for key, one in parameters.items():
        if one.dtype != torch.float32 or one.is_meta or isinstance(one, nn.UninitializedParameter):
            hint = f"{key} of {name} is {'lazy' if one.is_meta else one.dtype}"
            raise _refusal(own, "a module whose parameters are float32", hint)
    for key, entry in module.state_dict().items():
        if not isinstance(entry, Tensor):
            hint = f"{key} is a {type(entry).__name__}: register_buffer() keeps tensors"
            raise _refusal(own, "a module whose state is made of tensors", hint)
    return module


def check(architecture: Architecture, outputs: int, *others: str) -> nn.Module:
    """Try the module on rows that are drawn; ConfigError if it breaks the contract.

    Args:
        architecture: what it is made from.
        outputs: columns of its first output, (B, outputs).
        others: names of what it gives beside that, (B,) each.

    Returns:
        What was tried.
    """
    module, own = made(architecture, outputs, 0), _own(architecture)
    rows = torch.rand((ROWS, *architecture.shape), generator=rng.torch_generator(0, "tried"))
    expected = {"head": (ROWS, outputs), **dict.fromkeys(others, (ROWS,))}
    learning = _tried(own, module, rows, expected)
    if bare := [name for name, one in learning.items() if not one.requires_grad]:
        hint = f"its {bare[0]} has no gradient: is it detached, or made under no_grad()?"
        raise _refusal(own, "a module that can learn", hint)
    acting = _tried(own, module.eval(), rows, expected)
    alone = [_given(own, module, row[None]) for row in rows]
    for together, *parts in zip(acting.values(), *alone, strict=True):
        if not torch.allclose(together, torch.cat(parts), CLOSE, CLOSE):
            hint = "a row alone gives other numbers than among others, or the second time"
            raise _refusal(own, "a module whose outputs depend on their row alone", hint)
    return module


def check_learning_rows(architecture: Architecture, module: nn.Module, key: str, rows: int) -> None:
    """Raise ConfigError where every gradient is one of so few rows that the module refuses them.

    `key` is the setting that says how many.
    """
    if rows > 1:
        return
    row = torch.rand((1, *architecture.shape), generator=rng.torch_generator(0, "tried"))
    module.train()
    try:
        module(row)
    except ValueError as error:
        allowed = f"at least 2 with {_own(architecture).path}"
        hint = f"it cannot learn from one row: {error}".splitlines()[0]
        raise ConfigError(key, rows, allowed, hint) from error


def _own(architecture: Architecture) -> OwnModule:
    if architecture.own is None:
        raise ValueError("an architecture without a module of one's own")
    return architecture.own


def _tried(
    own: OwnModule, module: nn.Module, rows: Tensor, expected: Mapping[str, tuple[int, ...]]
) -> dict[str, Tensor]:
    """Return a module's outputs by name, if they have the expected shapes."""
    given = _given(own, module, rows)
    shapes = [tuple(one.shape) for one in given]
    if shapes != list(expected.values()):
        allowed = f"a module whose outputs have the shapes {_listed(expected.values())}"
        hint = f"for observations {tuple(rows.shape)} it gave {_listed(shapes)}"
        raise _refusal(own, allowed, hint)
    named = dict(zip(expected, given, strict=True))
    for name, one in named.items():
        if one.dtype != torch.float32:
            raise _refusal(own, "a module that gives float32", f"its {name} is {one.dtype}")
        if not torch.isfinite(one).all():
            hint = f"its {name} holds NaN or infinity for observations from 0 to 1"
            raise _refusal(own, "a module that gives finite numbers", hint)
    return named


def _given(own: OwnModule, module: nn.Module, rows: Tensor) -> tuple[Tensor, ...]:
    """Return a module's outputs for rows, one tensor or several, as a tuple."""
    with rng.preserve_global():
        before = rng.capture_global()
        try:
            given: Any = module(rows)
        except Exception as error:
            hint = f"for observations {tuple(rows.shape)} it raised {type(error).__name__}: {error}"
            raise _refusal(own, "a module that can be called with observations", hint) from error
        if not rng.equal_global(before, rng.capture_global()):
            hint = "it draws from a global stream, as dropout does, and two runs would differ"
            raise _refusal(own, "a module without chance of its own", hint)
    found = given if isinstance(given, tuple) else (given,)
    if not all(isinstance(one, Tensor) for one in found):
        allowed = "a module that returns a tensor, or a tuple of them"
        raise _refusal(own, allowed, f"it returned {shorten(given)}")
    return found


def _listed(shapes: Iterable[tuple[int, ...]]) -> str:
    return " and ".join(str(shape) for shape in shapes)


def _refusal(own: OwnModule, allowed: str, hint: str) -> ConfigError:
    return ConfigError(PLACE, own.path, allowed, hint.splitlines()[0])

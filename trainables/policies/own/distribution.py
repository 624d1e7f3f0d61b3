"""A distribution of actions of a person's own: how a head says what is done, in torch.

    Dist.num_inputs(action_space) -> P
    Dist(inputs (B, P), action_space)
    sample() -> (B, K); greedy() -> (B, K); logp(actions) -> (B,); entropy() -> (B,)

B rows, K columns of an action as `ActionLayout` has them (choices count from 0); a Discrete action
is (B,). `sample` draws from torch's global stream, which is a named one of the trial's meanwhile.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from gymnasium import spaces

from trainables.core import rng
from trainables.core.importing import load
from trainables.envs.spaces.actions import ActionLayout
from trainables.errors import ConfigError
from trainables.policies.distributions import Actions, Array
from trainables.policies.exploration.actions import StochasticSampling

if TYPE_CHECKING:
    from torch import Tensor

PLACE = "model.custom_action_dist"
#: Rows of the batch on which a distribution is tried.
ROWS = 3


class Distribution(Protocol):
    """Of the actions for B rows."""

    def sample(self) -> "Tensor":
        """Actions that are drawn."""

    def greedy(self) -> "Tensor":
        """The actions of an evaluation."""

    def logp(self, actions: "Tensor") -> "Tensor":
        """(B,) log-probabilities."""

    def entropy(self) -> "Tensor":
        """(B,)."""


@dataclass(frozen=True)
class OwnDistribution:
    """A distribution class by its path, with the space and the number of inputs it is made for."""

    path: str
    space: spaces.Space[Any]
    inputs: int
    """P."""

    @classmethod
    def of(cls, path: str, space: spaces.Space[Any]) -> "OwnDistribution":
        """With as many inputs as the class asks for; ConfigError if it says no number."""
        found: Any = load(PLACE, path, "a class of distributions")
        allowed = "a class whose num_inputs(action_space) gives how many numbers it is made from"
        try:
            inputs = found.num_inputs(space)
        except Exception as error:
            raise _refusal(path, allowed, f"{type(error).__name__}: {error}") from error
        if not isinstance(inputs, int) or inputs < 1:
            raise _refusal(path, allowed, f"for {space} it gave {inputs!r}")
        return cls(path, space, inputs)

    def loaded(self) -> "Callable[[Tensor], Distribution]":
        """Return a function that makes distributions of inputs (B, P)."""
        make = load(PLACE, self.path, "a class of distributions")
        return lambda inputs: make(inputs, self.space)


class OwnSampling(StochasticSampling):
    """Draws from the distribution."""

    def __init__(self, layout: ActionLayout, distribution: OwnDistribution) -> None:
        super().__init__(layout)
        self._distribution = distribution
        self._make = distribution.loaded()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the loaded class, which stays in this process."""
        return OwnSampling, (self._layout, self._distribution)

    def draw(
        self, head: Array, log_std: Array, stream: np.random.Generator | None
    ) -> tuple[Actions, Array]:
        """Actions and log-probabilities (N,) for heads (N, P); greedy without a stream."""
        if stream is None and len(head) > 1:  # each as if it were the only one, to the bit
            rows = [self.draw(row[None], log_std, None) for row in head]
            actions, logps = zip(*rows, strict=True)
            return np.concatenate(actions), np.concatenate(logps)
        import torch

        with torch.inference_mode():
            made = self._make(torch.from_numpy(np.require(head, requirements="W")))
            if stream is None:
                drawn = made.greedy()
            else:
                with rng.seed_torch_from(stream):
                    drawn = made.sample()
            logp = made.logp(drawn)
        return drawn.numpy().astype(self._layout.dtype), logp.numpy().astype(np.float32)


def check(distribution: OwnDistribution, layout: ActionLayout) -> None:
    """Try the distribution on heads that are drawn; ConfigError if it breaks the contract."""
    import torch

    path = distribution.path
    shape = (ROWS, distribution.inputs)
    heads = torch.randn(shape, generator=rng.torch_generator(0, "tried")).requires_grad_()
    rows = (ROWS, *layout.shape)
    before = rng.capture_global()
    try:
        made = distribution.loaded()(heads)
        taken, again = (_sampled(made) for _ in range(2))
        expected = {"sample()": (taken, rows), "greedy()": (made.greedy(), rows)}
        expected["logp(actions)"] = (made.logp(taken), (ROWS,))
        expected["entropy()"] = (made.entropy(), (ROWS,))
    except Exception as error:
        why = f"for inputs {shape} it raised {type(error).__name__}: {error}"
        raise _refusal(path, "a class with sample, greedy, logp and entropy", why) from error
    for name, (given, wanted) in expected.items():
        if tuple(given.shape) != wanted:
            allowed = f"a {name} of shape {wanted}"
            raise _refusal(path, allowed, f"for inputs {shape} it gave {tuple(given.shape)}")
        if not torch.isfinite(given).all():
            raise _refusal(path, "a distribution of finite numbers", f"its {name} has others")
    sizes = torch.tensor(layout.sizes[0] if layout.scalar else layout.sizes)
    if ((sizes > 0) & ((taken < 0) | (taken >= sizes))).any():
        why = f"its sample() gave {taken.tolist()}"
        raise _refusal(path, f"choices from 0 to below {sizes.tolist()}", why)
    if not expected["logp(actions)"][0].requires_grad:
        raise _refusal(path, "a distribution that can learn", "its logp(actions) has no gradient")
    same = rng.equal_global(before, rng.capture_global()) and torch.equal(taken, again)
    if not same:
        rng.restore_global(before)
        why = "sample() drew from another stream than torch's own, so two runs would differ"
        raise _refusal(path, "a distribution that draws in torch", why)


def _sampled(made: Distribution) -> "Tensor":
    with rng.seed_torch_from(rng.generator(0, "tried")):
        return made.sample().detach()


def _refusal(path: str, allowed: str, hint: str) -> ConfigError:
    return ConfigError(PLACE, path, allowed, hint.splitlines()[0])

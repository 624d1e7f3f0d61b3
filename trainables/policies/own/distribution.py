"""A user's distribution of actions in torch, made from the actor's outputs.

    Dist.num_inputs(action_space) -> P
    Dist(inputs (B, P), action_space)
    sample() -> (B, K); greedy() -> (B, K); logp(actions) -> (B,); entropy() -> (B,)

B rows, K columns of an action as `ActionLayout` has them (choices count from 0); a Discrete action
is (B,). `sample` draws from torch's global stream, which is seeded from a named stream of the trial
during the call.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from gymnasium import spaces

from trainables.core import rng
from trainables.core.importing import load_callable
from trainables.envs.spaces.actions import ActionLayout
from trainables.errors import ConfigError
from trainables.policies.acting.distributions import Actions, Array
from trainables.policies.exploration.actions import StochasticSampling

if TYPE_CHECKING:
    from torch import Tensor

#: Setting that names the class.
PLACE = "model.custom_action_dist"
#: Number of rows of the batch with which a distribution is checked.
ROWS = 3


class Distribution(Protocol):
    """Protocol of a user's distribution of actions, made for B rows of the actor's outputs.

    Actions are rows (B, K), or (B,) if the action space is Discrete; choices count from 0.
    """

    def sample(self) -> "Tensor":
        """Return random actions, drawn from torch's global stream and no other."""

    def greedy(self) -> "Tensor":
        """Return the best actions, which are taken without exploration."""

    def logp(self, actions: "Tensor") -> "Tensor":
        """Return the log-probabilities (B,) of actions."""

    def entropy(self) -> "Tensor":
        """Return the entropies (B,)."""


@dataclass(frozen=True)
class OwnDistribution:
    """A user's distribution class by its path, with its action space and its number of inputs."""

    path: str
    """Path ``package.module:Name`` of the class."""
    space: spaces.Space[Any]
    """Action space of the environment."""
    inputs: int
    """Number of inputs P, the outputs of the actor."""

    @classmethod
    def of(cls, path: str, space: spaces.Space[Any]) -> "OwnDistribution":
        """Return the distribution at `path`; its class says its number of inputs for `space`.

        Raises:
            ConfigError: the class cannot be loaded, or its `num_inputs` returns no positive
                integer.
        """
        found: Any = load_callable(PLACE, path, "a class of distributions")
        allowed = "a whole number of at least 1: the number of inputs that it needs"
        try:
            inputs = found.num_inputs(space)
        except Exception as error:
            seen = f"its num_inputs raised {type(error).__name__}: {error}"
            raise _refusal(path, allowed, seen) from error
        if not isinstance(inputs, int) or inputs < 1:
            raise _refusal(path, allowed, f"its num_inputs({space}) returned {inputs!r}")
        return cls(path, space, inputs)

    def load_class(self) -> "Callable[[Tensor], Distribution]":
        """Load the user's class; return a function that makes a distribution of inputs (B, P).

        Raises ConfigError if the class cannot be loaded.
        """
        make = load_callable(PLACE, self.path, "a class of distributions")
        return lambda inputs: make(inputs, self.space)


class OwnSampling(StochasticSampling):
    """Exploration by sampling actions from a user's distribution."""

    def __init__(self, layout: ActionLayout, distribution: OwnDistribution) -> None:
        super().__init__(layout)
        self._distribution = distribution
        self._make = distribution.load_class()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the loaded class; the other process loads it by its path."""
        return OwnSampling, (self._layout, self._distribution)

    def draw(
        self, head: Array, log_std: Array, stream: np.random.Generator | None
    ) -> tuple[Actions, Array]:
        """Return actions (N, …), drawn with `stream`, and log-probabilities (N,).

        `head` (N, P) are the actor's outputs; `log_std` is not used. Without a stream the actions
        are the greedy ones.
        """
        if stream is None and len(head) > 1:  # each alone, so that no bit depends on other rows
            rows = [self.draw(row[None], log_std, None) for row in head]
            actions, logps = zip(*rows, strict=True)
            return np.concatenate(actions), np.concatenate(logps)
        import torch

        with torch.inference_mode():
            distribution = self._make(torch.from_numpy(np.require(head, requirements="W")))
            if stream is None:
                drawn = distribution.greedy()
            else:
                with rng.seed_torch_from(stream):
                    drawn = distribution.sample()
            logp = distribution.logp(drawn)
        return drawn.numpy().astype(self._layout.dtype), logp.numpy().astype(np.float32)


def check(distribution: OwnDistribution, layout: ActionLayout) -> None:
    """Try a user's distribution with random inputs; raises ConfigError if it breaks its contract.

    Shapes, finite numbers, range of choices, gradients and reproducible draws are checked.
    """
    import torch

    path = distribution.path
    shape = (ROWS, distribution.inputs)
    heads = torch.randn(shape, generator=rng.torch_generator(0, "tried")).requires_grad_()
    rows = (ROWS, *layout.shape)
    before = rng.capture_global()
    try:
        made = distribution.load_class()(heads)
        first, second = (_sample_with_fixed_seed(made) for _ in range(2))
        expected = {"sample()": (first, rows), "greedy()": (made.greedy(), rows)}
        expected["logp(actions)"] = (made.logp(first), (ROWS,))
        expected["entropy()"] = (made.entropy(), (ROWS,))
    except Exception as error:
        why = f"for inputs {shape} it raised {type(error).__name__}: {error}"
        raise _refusal(path, "a class with sample, greedy, logp and entropy", why) from error
    for name, (given, wanted) in expected.items():
        if tuple(given.shape) != wanted:
            seen = f"for inputs {shape} its {name} has the shape {tuple(given.shape)}"
            raise _refusal(path, f"{wanted}", seen)
        if not torch.isfinite(given).all():
            raise _refusal(path, "finite numbers", f"its {name} has NaN or infinity")
    sizes = torch.tensor(layout.sizes[0] if layout.scalar else layout.sizes)
    if ((sizes > 0) & ((first < 0) | (first >= sizes))).any():
        why = f"its sample() gave {first.tolist()}"
        raise _refusal(path, f"choices from 0 to below {sizes.tolist()}", why)
    if not expected["logp(actions)"][0].requires_grad:
        raise _refusal(path, "a distribution that can learn", "its logp(actions) has no gradient")
    same = rng.equal_global(before, rng.capture_global()) and torch.equal(first, second)
    if not same:
        rng.restore_global(before)
        why = "its sample() uses random numbers of another source, so two runs would differ"
        raise _refusal(path, "a distribution that uses torch's random numbers alone", why)


def _sample_with_fixed_seed(distribution: Distribution) -> "Tensor":
    """Return a sample of the distribution, drawn from a fixed seed, without its gradient.

    Torch's global stream is restored afterwards.
    """
    with rng.seed_torch_from(rng.generator(0, "tried")):
        return distribution.sample().detach()


def _refusal(path: str, allowed: str, seen: str) -> ConfigError:
    """Return an error which says that the distribution at `path` is not what is `allowed`.

    The first line of `seen` says what is wrong with it.
    """
    return ConfigError(PLACE, path, allowed, problem=f"{path}: {seen.splitlines()[0]}")

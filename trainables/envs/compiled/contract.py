"""The form in which compiled programs step an environment: functions of one array.

A state is a vector (S,) of 32-bit numbers, so that many states are one array; `jax.vmap` makes
batches. The state does not include the time limit of an episode: the caller counts the steps. D
features, A columns of an action.
"""

from typing import NamedTuple, Protocol

from jax import Array


class StepResult(NamedTuple):
    """The outcome of one step of an environment that is a function of arrays."""

    state: Array
    """Next state, (S,); the last state of the episode if it ended."""
    reward: Array
    """Reward of the step, ()."""
    terminated: Array
    """True if the episode ended by itself, ()."""


class Environment(Protocol):
    """An environment as pure functions of JAX arrays, for compiled programs.

    Its object has no state: the state of an episode is one vector (S,), with the random key if its
    steps draw numbers.
    """

    @property
    def limit(self) -> int:
        """Steps after which an episode is truncated, if no horizon is set."""

    @property
    def choices(self) -> int:
        """Number of actions; 0 for real-valued actions."""

    @property
    def bounds(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Lower and upper bounds of real-valued actions, each (A,); empty for choices."""

    @property
    def features(self) -> int:
        """Size of an observation, D."""

    def begin(self, key: Array) -> Array:
        """Return the first state (S,) of an episode, drawn with this random key."""

    def observe(self, state: Array) -> Array:
        """Return the observation (D,) of a state."""

    def step(self, state: Array, action: Array) -> StepResult:
        """Apply an action to a state (S,): a choice (), or real numbers (A,) within the bounds.

        Returns next state, reward, and whether the episode was terminated. The time limit is not
        applied, and no new episode is begun.
        """


def outputs(env: Environment) -> int:
    """Return the number of outputs of an actor's network: one per choice or real number."""
    return env.choices or len(env.bounds[0])

"""One environment in its slot: made, stepped and reset under the contract, replaced in place.

The contract is checked on what the environment returns; then the connector's first step makes an
array of the observation. The connector's last step makes the action of what was sent.
"""

from collections.abc import Callable, Mapping
from typing import Any

from trainables.envs.calls.contract import EnvChecker, Outcome, refused_seed
from trainables.envs.calls.rendering import draw
from trainables.envs.make import Env, EnvironmentConfig, make_connector
from trainables.envs.spaces.connectors import EnvConnector
from trainables.envs.state.capture import capture, restore, seed_spaces, unsaved_attributes


class EnvSlot:
    """One environment in this process, with its checks and conversions; `make` makes it."""

    def __init__(self, make: Callable[[], Env], config: EnvironmentConfig) -> None:
        self._make = make
        self.env = make()
        both = self.env.observation_space, self.env.action_space
        self.connector: EnvConnector = make_connector(config, *both)
        observe = self.connector.observe if self.connector.observes else None
        self.contract = EnvChecker(both[0], observe)
        self.check = self.contract.step
        self._action: Any = None

    @property
    def seconds(self) -> Mapping[str, float]:
        """Name of a conversion of observations or actions → total time, seconds."""
        return self.connector.seconds

    def step(self, action: Any) -> Outcome:
        """Make one step, and return its five values; the next one may overwrite the observation.

        Raises EnvContractError for a wrong result, and whatever the environment raises.
        """
        if self.connector.acts:
            action = self.connector.act(action)
        return self.check(self.env.step(action))

    def send_step(self, action: Any) -> None:
        """Store the action for the step that `receive_step` makes."""
        self._action = action

    def receive_step(self) -> Outcome:
        """Make the step whose action `send_step` has stored, and return its five values."""
        return self.step(self._action)

    def reset(self, seed: int | None) -> Any:
        """Start an episode; return its first observation (*O).

        A `seed` of None continues the streams. The info is dropped. Raises EnvContractError for a
        wrong result or a `reset` without a seed, and whatever the environment raises.
        """
        try:
            given: Any = self.env.reset(seed=seed)
        except TypeError as error:
            breach = refused_seed(error)
            if breach is None:
                raise
            raise breach from error
        return self.contract.reset(given)

    def remake(self, seed: int) -> Any:
        """Replace the environment by a new one.

        The old one is not closed. `seed` is ignored, as this process's streams are shared.
        """
        self.env = self._make()

    def render(self) -> Any:
        """Return what the environment's `render` returns, such as a picture.

        The global random streams are preserved.
        """
        return draw(self.env)

    def seed_spaces(self, seed: int) -> None:
        """Seed the environment's spaces, each with its own stream."""
        seed_spaces(self.env, seed, self.connector.depth)

    def get_state(self) -> dict[str, Any]:
        """Return the environment's state as plain data: the list ``layers``, one for each wrapper.

        Attributes that are not plain data are left out.
        """
        return capture(self.env)

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state that `get_state` returned, in an environment made equally and reset once.

        Raises EnvError if its MuJoCo model is another one, or it lacks a space or simulation.
        """
        restore(self.env, state)

    def unsaved_attributes(self) -> list[str]:
        """Return the names of attributes that `get_state` cannot store."""
        return unsaved_attributes(self.env)

    def close(self) -> None:
        """Close the environment; exceptions are not caught."""
        self.env.close()

"""One environment in its slot: made, stepped and reset under the contract, made anew in place.

What it returns is checked as it is; then the list's first step makes an array of an observation, as
its last step made an action of what was sent.
"""

from collections.abc import Callable, Mapping
from typing import Any

from trainables.envs.contract import EnvChecker, Outcome, refused_seed
from trainables.envs.make import Env, EnvironmentConfig, connect
from trainables.envs.rendering import draw
from trainables.envs.spaces.connectors import EnvConnector
from trainables.envs.state.capture import capture, left_out, restore, seed_spaces


class EnvSlot:
    """An environment in this process.

    Args:
        make: gives a new environment.
        config: what it makes.
    """

    def __init__(self, make: Callable[[], Env], config: EnvironmentConfig) -> None:
        self._make = make
        self.env = make()
        both = self.env.observation_space, self.env.action_space
        self.connector: EnvConnector = connect(config, *both)
        observe = self.connector.observe if self.connector.observes else None
        self.contract = EnvChecker(both[0], observe)
        self.check = self.contract.step
        self._action: Any = None

    @property
    def seconds(self) -> Mapping[str, float]:
        """Seconds that the connector's steps took."""
        return self.connector.seconds

    def step(self, action: Any) -> Outcome:
        """One step; the observation may be written again by the next."""
        if self.connector.acts:
            action = self.connector.act(action)
        return self.check(self.env.step(action))

    def send_step(self, action: Any) -> None:
        """Take the action of the step that `receive_step` makes."""
        self._action = action

    def receive_step(self) -> Outcome:
        """One step with the action that was sent."""
        return self.step(self._action)

    def reset(self, seed: int | None) -> Any:
        """The first observation of the next episode."""
        try:
            given: Any = self.env.reset(seed=seed)
        except TypeError as error:
            breach = refused_seed(error)
            if breach is None:
                raise
            raise breach from error
        return self.contract.reset(given)

    def remake(self, seed: int) -> Any:
        """An environment made anew; the streams of this process are others' as well: no seed."""
        self.env = self._make()

    def render(self) -> Any:
        """Return a picture of the environment."""
        return draw(self.env)

    def seed_spaces(self, seed: int) -> None:
        """Give the spaces streams of their own."""
        seed_spaces(self.env, seed, self.connector.depth)

    def get_state(self) -> dict[str, Any]:
        """The environment's state, as `trainables.envs.state.capture.capture` gives it."""
        return capture(self.env)

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave."""
        restore(self.env, state)

    def left_out(self) -> list[str]:
        """Names of attributes that `get_state` cannot hold."""
        return left_out(self.env)

    def close(self) -> None:
        """Let go of the environment."""
        self.env.close()

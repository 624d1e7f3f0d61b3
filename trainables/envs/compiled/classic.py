"""Gymnasium's classic control as functions of arrays.

Each equals the environment of the same name in gymnasium, step by step, up to the rounding of
float32.
"""

from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array, random

from trainables.envs.compiled.contract import Environment, StepResult


class CartPole:
    """A pole on a cart that is pushed left or right (Barto, Sutton & Anderson 1983)."""

    choices, bounds, features = 2, ((), ()), 4

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def begin(self, key: Array) -> Array:
        """Return a random state (4,) with the pole almost upright.

        It holds the cart's position and speed, the pole's angle and angular velocity.
        """
        return random.uniform(key, (4,), minval=-0.05, maxval=0.05)

    def observe(self, state: Array) -> Array:
        """Return the state (4,) itself."""
        return state

    def step(self, state: Array, action: Array) -> StepResult:
        """Push the cart left (0) or right (1) for 0.02 seconds, in one step of Euler's method.

        The reward is 1; a pole that tilts or a cart that leaves the track terminates the episode.
        """
        x, speed, angle, turning = state
        force = jnp.where(action == 1, 10.0, -10.0)
        cos, sin = jnp.cos(angle), jnp.sin(angle)
        push = (force + 0.05 * turning * turning * sin) / 1.1
        turn = (9.8 * sin - cos * push) / (0.5 * (4.0 / 3.0 - 0.1 * cos * cos / 1.1))
        pull = push - 0.05 * turn * cos / 1.1
        x, speed = x + 0.02 * speed, speed + 0.02 * pull
        angle, turning = angle + 0.02 * turning, turning + 0.02 * turn
        fallen = (jnp.abs(x) > 2.4) | (jnp.abs(angle) > 12 * 2 * jnp.pi / 360)
        return StepResult(jnp.stack([x, speed, angle, turning]), jnp.float32(1.0), fallen)


class Pendulum:
    """A pendulum that is swung up and held there by a weak motor."""

    choices, features = 0, 3
    bounds = ((-2.0,), (2.0,))

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def begin(self, key: Array) -> Array:
        """Return a random state (2,): any angle, and a small angular velocity."""
        high = jnp.array([jnp.pi, 1.0])
        return random.uniform(key, (2,), minval=-high, maxval=high)

    def observe(self, state: Array) -> Array:
        """Return cosine and sine of the angle, and the angular velocity, (3,)."""
        return jnp.stack([jnp.cos(state[0]), jnp.sin(state[0]), state[1]])

    def step(self, state: Array, action: Array) -> StepResult:
        """Apply the torque (1,), clipped to its bounds, for 0.05 seconds.

        The reward is negative: the cost of angle, speed and torque. No step terminates the episode.
        """
        angle, turning = state
        torque = jnp.clip(action[0], -2.0, 2.0)
        off = (angle + jnp.pi) % (2 * jnp.pi) - jnp.pi
        cost = off**2 + 0.1 * turning**2 + 0.001 * torque**2
        turning = jnp.clip(turning + (15.0 * jnp.sin(angle) + 3.0 * torque) * 0.05, -8.0, 8.0)
        return StepResult(jnp.stack([angle + turning * 0.05, turning]), -cost, jnp.array(False))


class MountainCar:
    """A car that must gather momentum to climb a hill (Moore 1990)."""

    choices, bounds, features = 3, ((), ()), 2

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def begin(self, key: Array) -> Array:
        """Return a state (2,) with the car at rest, at a random place in the valley."""
        at = random.uniform(key, (), minval=-0.6, maxval=-0.4)
        return jnp.stack([at, jnp.zeros_like(at)])

    def observe(self, state: Array) -> Array:
        """Return the state itself: position and speed, (2,)."""
        return state

    def step(self, state: Array, action: Array) -> StepResult:
        """Push the car left (0), not at all (1), or right (2).

        The reward is -1; the top of the hill terminates the episode.
        """
        at, speed = state
        speed = speed + (action - 1) * 0.001 + jnp.cos(3 * at) * -0.0025
        speed = jnp.clip(speed, -0.07, 0.07)
        at = jnp.clip(at + speed, -1.2, 0.6)
        speed = jnp.where((at == -1.2) & (speed < 0), 0.0, speed)
        return StepResult(jnp.stack([at, speed]), jnp.float32(-1.0), (at >= 0.5) & (speed >= 0))


class Acrobot:
    """Two links that hang from a bar and are swung up by the joint between them (Sutton 1996)."""

    choices, bounds, features = 3, ((), ()), 6

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def begin(self, key: Array) -> Array:
        """Return a random state (4,), angles and angular velocities, hanging almost at rest."""
        return random.uniform(key, (4,), minval=-0.1, maxval=0.1)

    def observe(self, state: Array) -> Array:
        """Return cosine and sine of both angles, and the angular velocities, (6,)."""
        first, second, *turning = state
        angles = [jnp.cos(first), jnp.sin(first), jnp.cos(second), jnp.sin(second)]
        return jnp.stack([*angles, *turning])

    def step(self, state: Array, action: Array) -> StepResult:
        """Apply a torque of -1, 0 or 1, for action 0, 1 or 2, for 0.2 seconds (Runge-Kutta).

        The reward is -1; with the tip above the line it is 0, and the episode is terminated.
        """
        torque = action.astype(jnp.float32) - 1.0

        def slope(at: Array) -> Array:
            """Return the time derivative of a state under the chosen torque."""
            return _acrobot_slope(at, torque)

        step = 0.2
        k1 = slope(state)
        k2 = slope(state + step / 2.0 * k1)
        k3 = slope(state + step / 2.0 * k2)
        k4 = slope(state + step * k3)
        moved = state + step / 6.0 * (k1 + 2 * k2 + 2 * k3 + k4)
        angles = (moved[:2] + jnp.pi) % (2 * jnp.pi) - jnp.pi
        fastest = jnp.array([4 * jnp.pi, 9 * jnp.pi])
        after = jnp.concatenate([angles, jnp.clip(moved[2:], -fastest, fastest)])
        high = -jnp.cos(after[0]) - jnp.cos(after[1] + after[0]) > 1.0
        return StepResult(after, jnp.where(high, 0.0, -1.0), high)


def _acrobot_slope(state: Array, torque: Array) -> Array:
    """Return the derivative (4,) of Acrobot's state (4,) by time, as in Sutton & Barto's book."""
    first, second, turning1, turning2 = state
    gravity, mass, length, centre, inertia = 9.8, 1.0, 1.0, 0.5, 1.0
    d1 = (
        mass * centre**2
        + mass * (length**2 + centre**2 + 2 * length * centre * jnp.cos(second))
        + 2 * inertia
    )
    d2 = mass * (centre**2 + length * centre * jnp.cos(second)) + inertia
    phi2 = mass * centre * gravity * jnp.cos(first + second - jnp.pi / 2.0)
    phi1 = (
        -mass * length * centre * turning2**2 * jnp.sin(second)
        - 2 * mass * length * centre * turning2 * turning1 * jnp.sin(second)
        + (mass * centre + mass * length) * gravity * jnp.cos(first - jnp.pi / 2)
        + phi2
    )
    bent = d2 / d1 * phi1 - mass * length * centre * turning1**2 * jnp.sin(second) - phi2
    speeding2 = (torque + bent) / (mass * centre**2 + inertia - d2**2 / d1)
    speeding1 = -(d2 * speeding2 + phi1) / d1
    return jnp.stack([turning1, turning2, speeding1, speeding2])


#: Name in gymnasium → environment with gymnasium's time limit.
KNOWN: Mapping[str, Environment] = {
    "CartPole-v0": CartPole(200),
    "CartPole-v1": CartPole(500),
    "Pendulum-v1": Pendulum(200),
    "MountainCar-v0": MountainCar(200),
    "Acrobot-v1": Acrobot(500),
}

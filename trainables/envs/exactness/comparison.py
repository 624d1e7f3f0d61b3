"""Copies of an environment run side by side, with every number compared.

The callers set the global streams and restore them. A failure is a sentence; an empty string means
that there is none. Each call of an environment is announced
(`trainables.envs.exactness.watching.announce_call`).
"""

import copy
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces

from trainables.core import rng
from trainables.envs import make
from trainables.envs.calls.faults import close, closing
from trainables.envs.calls.rendering import draw, with_render_mode
from trainables.envs.exactness import traces
from trainables.envs.exactness.random_actions import RandomActions, actions_for_one
from trainables.envs.exactness.watching import announce_call
from trainables.envs.make import Env, EnvironmentConfig
from trainables.envs.state.capture import seed_spaces
from trainables.envs.state.plain import fingerprint
from trainables.envs.state.replay import ReplayableEnv
from trainables.envs.vector import factory
from trainables.envs.vector.base import VectorEnv
from trainables.envs.vector.config import VectorConfig

#: Seed of all comparisons.
SEED = 20_260_101
#: Steps before the state is captured; a prime, so that equally long episodes do not all end there.
HEAD_STEPS = 53
#: Steps that are compared after the state was restored.
TAIL_STEPS = 100
#: Step of the tail at which the environments are reset.
FORCED_RESET = 60
#: Steps that are compared of an episode.
EPISODE_STEPS = 67
#: Number of episodes that are compared.
EPISODES = 3
#: Size from which observations are probably drawn, which is slow; then fewer steps are compared.
LARGE_OBSERVATION = 10_000
#: Factor by which fewer steps are compared.
SHORTER = 3


# ---- exact state -----------------------------------------------------------------------------


def state_failure(config: EnvironmentConfig, restarts: bool) -> tuple[str, list[str]]:
    """Test whether a copy of two environments, restored from their state, behaves equally.

    Returns the reason if it does not, or why the test raised, else "", and the names of attributes
    that cannot be saved. `restarts` is True if failed environments are replaced. Changes the global
    random streams. Raises ConfigError if the environment cannot be made.
    """
    envs = VectorConfig(restart_failed_sub_environments=restarts)
    announce_call()
    with closing(factory.make_vector_env(config, 2, envs)) as original:
        announce_call()
        with closing(factory.make_vector_env(config, 2, envs)) as restored:
            try:
                return _state_failure(config, original, restored)
            except Exception as error:  # noqa: BLE001 what breaks in any way is not exact; training will say why
                return f"it raised {type(error).__name__}: {error}", []


def _state_failure(
    config: EnvironmentConfig, original: VectorEnv, restored: VectorEnv
) -> tuple[str, list[str]]:
    """Save `original` in the middle of episodes, restore it in `restored`, and compare the two.

    Both are stepped with random actions, and the global streams are set back for the second one.
    Returns the reason why they differ, else "", and the names of attributes that cannot be saved.
    """
    announce_call()
    observations = original.reset(_env_seeds(original, "original"))
    tail = _shortened(original.observation_space, TAIL_STEPS)
    head = _shortened(original.observation_space, HEAD_STEPS)
    _, observations = _run(original, "head", head, observations)
    if unread := sorted(set(original.unsaved_attributes())):
        # What is left out may matter only after more steps than are compared.
        return f"its state cannot be read: {', '.join(unread)}", unread
    captured = copy.deepcopy(original.get_state())
    position = rng.capture_global()
    before = _shared_values(config)
    expected, _ = _run(original, "tail", tail, observations)
    announce_call()
    restored.reset(_env_seeds(restored, "copy"))
    restored.set_state(captured)
    rng.restore_global(position)
    if _run(restored, "tail", tail, observations)[0] != expected:
        return "a restored copy continued differently", []
    return _leak(before, _shared_values(config)), []


def _env_seeds(envs: VectorEnv, name: str) -> list[int]:
    """Return one seed per environment object, derived from `name`."""
    return [_seed(name, i) for i in range(envs.sub_env_count)]


def _run(envs: VectorEnv, name: str, steps: int, current: Any) -> tuple[list[str], Any]:
    """Make steps with random actions, drawn from the stream `name`, in all environments.

    `current` (N, *O) are the observations to begin with. At step `FORCED_RESET` the environments
    are reset. Returns fingerprints of all results, and the last observations.
    """
    drawing = [actions_for_one(envs, _seed(name, "actions", i)) for i in range(envs.count)]
    fingerprints: list[str] = []
    for t in range(steps):
        announce_call()
        if t == FORCED_RESET:
            current = envs.reset(None)
            fingerprints.append(fingerprint(current))
        drawn = [one.draw(current[i]) for i, one in enumerate(drawing)]
        announce_call()
        step = envs.step(np.asarray(drawn))
        ended = np.flatnonzero(step.terminated | step.truncated)
        parts = [step.observations, step.rewards, step.terminated, step.truncated]
        parts += [step.final_observations[env_index] for env_index in ended]
        fingerprints += [fingerprint(part) for part in parts]
        current = step.observations
    return fingerprints, copy.deepcopy(current)


# ---- episodes --------------------------------------------------------------------------------


class Episodes:
    """Tests for level B: whether an episode can be repeated from its seed and actions.

    Each test plays episodes in new environments; `close` closes them.
    """

    def __init__(self, config: EnvironmentConfig) -> None:
        self._config = config
        self._sub_envs: list[ReplayableEnv] = []
        self._random_steps = 0
        self._seeds = [_seed("episode", i) for i in range(EPISODES)]

    def chance_failure(self) -> str:
        """Return the reason if equal seeds and actions do not give equal episodes; else "".

        Also if playing changes values that all copies of the environment share. The other tests
        need this one first: it decides how many steps they make. Changes the global random streams.
        """
        first, second = self._make(), self._make()
        self._random_steps = _shortened(first.observation_space, EPISODE_STEPS)
        expected = {seed: self._play(first, seed)[0] for seed in self._seeds}
        before = _shared_values(self._config)
        for i in range(EPISODES):
            self._play(first, _seed("another episode", i))
        seen = {seed: self._play(second, seed)[0] for seed in reversed(self._seeds)}
        if seen != expected:
            return "a new copy with the same seed and actions behaved differently"
        return _leak(before, _shared_values(self._config))

    def replay_failure(self) -> str:
        """Return the reason if an episode continues differently after its replay; else "".

        Call `chance_failure` first. Changes the global random streams.
        """
        original, replayed = self._make(), self._make()
        _, observations = self._play(original, self._seeds[0])
        saved = copy.deepcopy(original.get_state())
        position = rng.capture_global()
        expected, _ = self._steps_of(original, "tail", observations)
        self._play(replayed, self._seeds[1])
        rng.seed_global(SEED, "elsewhere")
        replayed.set_state(saved)
        rng.restore_global(position)
        if lost := replayed.get_state()["lost"]:
            return f"of an episode: {lost}"
        if self._steps_of(replayed, "tail", observations)[0] != expected:
            return "a replayed episode continued differently"
        return ""

    def memory_failure(self) -> str:
        """Return a description of what an environment carries from one episode to the next, or "".

        A new environment, as level B makes for each episode, would lose it. Call `chance_failure`
        first. Changes the global random streams.
        """
        with _made_env(self._config) as fresh, _made_env(self._config) as used:
            for i in range(EPISODES):
                announce_call()
                seen, _ = used.reset(seed=_seed("earlier", i))
                _random_steps(used, self._random_steps, "earlier", seen)
            carried = traces.changed(self._traces(used), self._traces(fresh))
        if not carried:
            return ""
        return (
            f"it carries {_listed(carried)} from one episode to the next, which an "
            "environment that is made again would forget (set env_level: B if it may)"
        )

    def close(self) -> None:
        """Close all environments that were made; errors are only logged."""
        for sub_env in self._sub_envs:
            close(sub_env)

    def _traces(self, env: Env) -> traces.Traces:
        """Reset an environment with a fixed seed; return fingerprints of the values inside it.

        Its spaces and the global random streams are seeded first.
        """
        rng.seed_global(SEED, "memory")
        seed_spaces(env, SEED)
        announce_call()
        env.reset(seed=self._seeds[0])
        return traces.object_values(env)

    def _make(self) -> ReplayableEnv:
        """Make an environment that records its episodes, and register it to be closed."""

        def make_env() -> Env:
            """Announce the call and return a new environment."""
            announce_call()
            return make.make_env(self._config)

        connect = partial(make.make_connector, self._config)
        made = ReplayableEnv(make_env, 10 * EPISODE_STEPS, connect)
        self._sub_envs.append(made)
        return made

    def _play(self, sub_env: ReplayableEnv, seed: int) -> tuple[list[str], Any]:
        """Reset with this seed, then make as many steps as a comparison needs, with random actions.

        If an episode ends, the next one begins. Seeds the global random streams. Returns
        fingerprints of all results, and the last observation.
        """
        rng.seed_global(seed, "measure")
        sub_env.seed_spaces(seed)
        announce_call()
        observation, _ = sub_env.reset(seed=seed)
        first = fingerprint(sub_env.connector.observe(observation))
        seen, last = self._steps_of(sub_env, str(seed), observation)
        return [first, *seen], last

    def _steps_of(self, sub_env: ReplayableEnv, name: str, current: Any) -> tuple[list[str], Any]:
        """Make the steps of a comparison, with random actions from the stream `name`.

        `current` is the observation before the first step. Returns fingerprints of all results, and
        the last observation.
        """
        return _random_steps(
            sub_env, self._random_steps, name, current, observe=sub_env.connector.observe
        )


# ---- drawing ---------------------------------------------------------------------------------


def rendering_failure(config: EnvironmentConfig) -> str:
    """Return the reason if rendering changes an environment's behaviour; else "".

    Also empty if the environment behaves randomly anyway, or raises. Seeds the global random
    streams.
    """
    try:
        unseen = _play_watched(config, lambda _: None)
        if (
            _play_watched(with_render_mode(config), draw) == unseen
            or _play_watched(config, lambda _: None) != unseen
        ):
            return ""
    except Exception:  # noqa: BLE001 an environment may raise anything; training will say why
        return ""
    return "with the same seed and actions it behaved differently while it was drawn"


def _play_watched(config: EnvironmentConfig, watch: Callable[[Env], object]) -> list[str]:
    """Play with random actions in a new environment, and return fingerprints of all results.

    `watch` is called with the environment before each step, for example to render it. Seeds the
    global random streams; the environment is closed.
    """
    rng.seed_global(SEED, "looked at")
    with _made_env(config) as env:
        seed_spaces(env, SEED)
        announce_call()
        current, _ = env.reset(seed=_seed("looked at"))
        first = fingerprint(current)
        steps = _shortened(env.observation_space, EPISODE_STEPS)
        return [first, *_random_steps(env, steps, "looked at", current, watch)[0]]


def _random_steps(
    env: Env,
    count: int,
    name: str,
    current: Any,
    watch: Callable[[Env], object] = lambda _: None,
    observe: Callable[[Any], Any] = lambda observation: observation,
) -> tuple[list[str], Any]:
    """Make `count` steps with random actions from the stream `name`, through ends of episodes.

    `current` is the observation to begin with. `watch` is called before each step; `observe` is
    applied to observations before they are fingerprinted. Returns fingerprints of all results, and
    the last observation.
    """
    actions = RandomActions(env.observation_space, env.action_space, _seed("actions", name))
    fingerprints: list[str] = []
    observation = current
    for _ in range(count):
        watch(env)
        drawn = actions.draw(observation)
        announce_call()
        observation, reward, terminated, truncated, _ = env.step(drawn)
        fingerprints.append(fingerprint([observe(observation), reward, terminated, truncated]))
        if terminated or truncated:
            announce_call()
            observation, _ = env.reset()
            fingerprints.append(fingerprint(observe(observation)))
    return fingerprints, copy.deepcopy(observation)


# ---- both ------------------------------------------------------------------------------------


def _shared_values(config: EnvironmentConfig) -> traces.Traces:
    """Make an environment, and return fingerprints of values in its classes and modules.

    All copies of the environment in this process share these values.
    """
    with _made_env(config) as env:
        return traces.class_values(env)


def _leak(before: traces.Traces, after: traces.Traces) -> str:
    """Return a sentence on values shared by all copies that playing has changed; empty if none."""
    changed = traces.changed(before, after)
    if not changed:
        return ""
    return f"playing it changes what all its copies share: {_listed(changed)}"


def _listed(paths: Sequence[str]) -> str:
    """Return the first three of these paths as text for a message, and the number of the others."""
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return ", ".join(paths[:3]) + more


def _shortened(space: spaces.Space[Any], steps: int) -> int:
    """Return the number of steps to compare: a third of `steps` if observations are large."""
    return steps // SHORTER if np.prod(space.shape or ()) > LARGE_OBSERVATION else steps


def _made_env(config: EnvironmentConfig) -> AbstractContextManager[Env]:
    """Make an environment; return a context manager that yields it and closes it."""
    announce_call()
    return closing(make.make_env(config))


def _seed(*path: rng.Name) -> int:
    """Return the seed for measurements that `path` names."""
    return rng.integer(SEED, "measure", *path) % 2**31

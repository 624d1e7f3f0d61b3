"""Vector environments of a person's own: RLlib's form and gymnasium's."""

from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

BOX = spaces.Box(-100.0, 100.0, (2,), np.float32)


class Walks:
    """Random walks to ten; RLlib's form. What it knows is plain, so that it comes back exactly."""

    observation_space = BOX
    action_space = spaces.Discrete(2)

    def __init__(self, num_envs: int, wrong: str = "") -> None:
        self.at = np.zeros(num_envs)
        self.age = np.zeros(num_envs)
        self.streams = [np.random.default_rng(0) for _ in range(num_envs)]
        self.wrong = wrong

    def vector_reset(self, *, seeds: Any = None, options: Any = None) -> Any:
        for i, seed in enumerate(seeds or ()):
            if seed is not None:
                self.streams[i] = np.random.default_rng(seed)
        for i in range(len(self.at)):
            self.reset_at(i)
        return self._seen(), [{} for _ in self.at]

    def reset_at(self, index: int, *, seed: Any = None, options: Any = None) -> Any:
        self.at[index], self.age[index] = self.streams[index].normal(), 0
        seen = self._seen()[index]
        return seen[:1] if self.wrong == "first" else seen, {}

    def vector_step(self, actions: Any) -> Any:
        for i, action in enumerate(actions):
            self.at[i] += (2 * int(action) - 1) * self.streams[i].random()
        self.age += 1
        over, late = np.abs(self.at) > 3, self.age >= 10
        given = self._seen(), self.at.tolist(), over.tolist(), (late & ~over).tolist()
        if self.wrong == "rows":
            return *given, [{}]
        if self.wrong == "parts":
            return given
        return *given, [{"age": age} for age in self.age]

    def _seen(self) -> list[Any]:
        rows = np.stack([self.at, self.age], axis=1).astype(np.float32)
        return list(rows[:, :1] if self.wrong == "shape" else rows)


class Gymnasiums(VectorEnv[Any, Any, Any]):
    """The same in gymnasium's form."""

    def __init__(self, num_envs: int) -> None:
        self.walks = Walks(num_envs)
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": AutoresetMode.DISABLED}
        self.single_observation_space, self.single_action_space = BOX, spaces.Discrete(2)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        mask = np.ones(self.num_envs, bool) if options is None else options["reset_mask"]
        if options is None:
            seeds = None if seed is None else [seed + i for i in range(self.num_envs)]
            self.walks.vector_reset(seeds=seeds)
        for i in np.flatnonzero(mask).tolist() if options is not None else ():
            self.walks.reset_at(i)
        return np.stack(self.walks._seen()), {}

    def step(self, actions: Any) -> Any:
        seen, rewards, over, late, _ = self.walks.vector_step(actions)
        return np.stack(seen), np.array(rewards), np.array(over), np.array(late), {}


class Rewrites(Gymnasiums):
    """It gives the same arrays again and again, and clears them where an episode begins."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)
        self.given: list[Any] = [np.zeros((num_envs, 2), np.float32), np.zeros(num_envs)]
        self.given += [np.zeros(num_envs, bool), np.zeros(num_envs, bool)]

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.given[0][:], infos = super().reset(seed=seed, options=options)
        for part in self.given[1:]:
            part[slice(None) if options is None else options["reset_mask"]] = 0
        return self.given[0], infos

    def step(self, actions: Any) -> Any:
        for part, now in zip(self.given, super().step(actions), strict=False):
            part[:] = now
        return *self.given, {}


class Unasked(Gymnasiums):
    """It begins the next episodes itself, in the step after their end."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self.over = np.zeros(num_envs, bool)

    def step(self, actions: Any) -> Any:
        seen, rewards, over, late, infos = super().step(actions)
        for i in np.flatnonzero(self.over).tolist():
            seen[i], rewards[i], over[i], late[i] = self.walks.reset_at(i)[0], 0.0, False, False
        self.over = over | late
        return seen, rewards, over, late, infos


class Unannotated(Walks):
    """Made as people write it."""

    def __init__(self, num_envs):  # type: ignore[no-untyped-def]
        super().__init__(num_envs)


class Whole(Walks):
    """What it sees is whole numbers, but for an episode's first."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)

    def vector_step(self, actions: Any) -> Any:
        seen, *given = super().vector_step(actions)
        return [row.astype(int) for row in seen], *given


class WithSettings(Walks):
    """It is given the whole of env_config, too."""

    def __init__(self, env_config: Any, num_envs: int) -> None:
        super().__init__(num_envs, **env_config)


class SettingsBehind(Walks):
    """The same the other way round."""

    def __init__(self, num_envs, config):  # type: ignore[no-untyped-def]
        super().__init__(num_envs, **config)


class Hits(Walks):
    """Its infos hold a dict, which is empty for all but the first."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)

    def vector_step(self, actions: Any) -> Any:
        *given, infos = super().vector_step(actions)
        return *given, [{**one, "hits": {} if i else {"left": 1}} for i, one in enumerate(infos)]


class Named(Walks):
    """Its observations are dicts."""

    observation_space: Any = spaces.Dict({"at": BOX, "side": spaces.Discrete(2)})

    def reset_at(self, index: int, *, seed: Any = None, options: Any = None) -> Any:
        super().reset_at(index)
        return self._seen()[index], {}

    def _seen(self) -> list[Any]:
        if self.wrong == "shape":
            return [{"at": np.zeros(1, np.float32), "side": 0} for _ in self.at]
        return [{"at": row, "side": int(row[0] > 0)} for row in super()._seen()]


class Pushes(Walks):
    """Its actions are dicts; `told` has those of the latest step."""

    action_space: Any = spaces.Dict({"side": spaces.Discrete(2), "by": spaces.Box(0.0, 1.0, (1,))})

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)
        self.told: list[Any] = []

    def vector_step(self, actions: Any) -> Any:
        self.told = list(actions)
        return super().vector_step([one["side"] for one in actions])


class Beyond(Named):
    """Its numbers are of float64, and steps are beyond the bounds that its space has."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)

    def _seen(self) -> list[Any]:
        return [{**one, "at": one["at"] + np.array([0.0, 200.0])} for one in super()._seen()]


def made(num_envs: int = 1) -> Walks:
    return Walks(num_envs)

"""A trainable whose every result is known beforehand: a function of settings, seed and iteration.

Its state is a number that each iteration mixes with the settings; a result is worked out from it.
So `Known` says what a curve must be, whatever happened to the processes that trained it.
"""

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sweep.history.history import History
from sweep.history.replica import Replica
from sweep.history.seeds import seed_of
from trainables import Trainable

#: Called at the beginning of each iteration, with the seconds that it takes; may raise.
Beside = Callable[[float], None]


class Here:
    """Effects beside the iterations that are trained in this process."""

    beside: Beside = staticmethod(lambda _seconds: None)


def mixed(state: int, config: Mapping[str, Any], iteration: int) -> int:
    """The state after an iteration."""
    text = f"{state} {config['x']!r} {config.get('y')!r} {iteration}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")


def result(state: int, config: Mapping[str, Any], iteration: int) -> dict[str, Any]:
    """Return the result of the iteration that ends in `state`."""
    noise = state % 1000 / 1000
    score = (1 - (config["x"] - 0.6) ** 2) * (1 - 0.7**iteration) + 0.1 * noise
    if config["nan_every"] and state % config["nan_every"] == 0:
        score = math.nan
    steps = 10 + state % 3 if config["even"] else 3 + int(30 * config["x"])
    told = {"noise": noise, "timesteps_this_iter": steps, "time_this_iter_s": 0.5 + state % 4 / 4}
    if iteration % config["evaluate_every"] == 0:
        return {**told, "score": score}
    between: dict[str, dict[str, Any]] = {
        "none": {"score": None},
        "nan": {"score": math.nan},
        "absent": {},
    }
    return {**told, **between[config["between"]]}


class Walk(Trainable):
    """One number that walks."""

    def setup(self, config: dict[str, Any]) -> None:
        """The state begins as the seed."""
        self.state = self.context.seed

    def step(self) -> dict[str, Any]:
        """One iteration; some states raise."""
        iteration = self.iteration + 1
        self.state = mixed(self.state, self.config, iteration)
        told = result(self.state, self.config, iteration)
        Here.beside(told["time_this_iter_s"])
        every = self.config["raise_every"]
        if every and self.state % every == 0:
            raise ValueError(f"state {self.state} is one that raises")
        return told

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        """The state is everything."""
        return {"state": self.state}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take it back."""
        self.state = checkpoint["state"]


class WalkWithoutSaving(Walk):
    """The same; it cannot be paused."""

    save_checkpoint = Trainable.save_checkpoint  # type: ignore[assignment]  # as if it had none


@dataclass(frozen=True)
class Stand:
    """The state of a walk after an iteration, and its result."""

    state: int
    told: Mapping[str, Any]


class Known:
    """The results that every replica of a sweep must report; `seed` is the sweep's."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._walks: dict[tuple[int, int], list[Stand]] = {}

    def stand(self, history: History, replica: Replica, iteration: int) -> Stand:
        """Return the stand of a replica after `iteration`, 0 being before the first."""
        birth = replica.birth
        if birth is not None and iteration <= birth.saved.iteration:
            parent = history.replica(birth.trial, birth.replica)
            return self.stand(history, parent, iteration)
        first = birth.saved.iteration if birth else 0
        walk = self._walks.setdefault((replica.trial, replica.index), [])
        if not walk:
            own = Stand(seed_of(self._seed, replica.trial, replica.index), {})
            walk.append(self.stand(history, birth_of(history, replica), first) if birth else own)
        config = history.trials[replica.trial].config
        while len(walk) <= iteration - first:
            at = first + len(walk)
            state = mixed(walk[-1].state, config, at)
            walk.append(Stand(state, result(state, config, at)))
        return walk[iteration - first]


def birth_of(history: History, replica: Replica) -> Replica:
    """The replica that a bred one began from."""
    if replica.birth is None:
        raise ValueError(f"{replica.name} was not bred")
    return history.replica(replica.birth.trial, replica.birth.replica)

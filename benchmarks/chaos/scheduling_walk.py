"""A trainable with known results, a function of settings, seed and iteration.

Its state is a number that each iteration mixes with the settings; a result is computed from it.
`Known` computes the right curves, independently of all failures.
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

#: Function that is called at the beginning of each iteration with its seconds; it may raise.
Hook = Callable[[float], None]


class Here:
    """Hook of the iterations in this process."""

    on_iteration: Hook = staticmethod(lambda _seconds: None)


def next_state(state: int, config: Mapping[str, Any], iteration: int) -> int:
    """Return the state after an iteration."""
    text = f"{state} {config['x']!r} {config.get('y')!r} {iteration}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")


def result(state: int, config: Mapping[str, Any], iteration: int) -> dict[str, Any]:
    """Return the result of the iteration that ends in `state`."""
    noise = state % 1000 / 1000
    score = (1 - (config["x"] - 0.6) ** 2) * (1 - 0.7**iteration) + 0.1 * noise
    if config["nan_every"] and state % config["nan_every"] == 0:
        score = math.nan
    steps = 10 + state % 3 if config["even"] else 3 + int(30 * config["x"])
    metrics = {
        "noise": noise,
        "timesteps_this_iter": steps,
        "time_this_iter_s": 0.5 + state % 4 / 4,
    }
    if iteration % config["evaluate_every"] == 0:
        return {**metrics, "score": score}
    between: dict[str, dict[str, Any]] = {
        "none": {"score": None},
        "nan": {"score": math.nan},
        "absent": {},
    }
    return {**metrics, **between[config["between"]]}


class Walk(Trainable):
    """Trainable whose state is one number."""

    def setup(self, config: dict[str, Any]) -> None:
        """Set the state to the seed."""
        self.state = self.context.seed

    def step(self) -> dict[str, Any]:
        """Make one iteration; some states raise an exception."""
        iteration = self.iteration + 1
        self.state = next_state(self.state, self.config, iteration)
        metrics = result(self.state, self.config, iteration)
        Here.on_iteration(metrics["time_this_iter_s"])
        every = self.config["raise_every"]
        if every and self.state % every == 0:
            raise ValueError(f"state {self.state} raises by its settings")
        return metrics

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        """Return the state."""
        return {"state": self.state}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore the state."""
        self.state = checkpoint["state"]


class WalkWithoutSaving(Walk):
    """The same trainable without checkpoints."""

    save_checkpoint = Trainable.save_checkpoint  # type: ignore[assignment]  # the default


@dataclass(frozen=True)
class WalkState:
    """State of a walk after an iteration, and its result."""

    state: int
    metrics: Mapping[str, Any]


class Known:
    """The right results of all replicas of a sweep."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._walks: dict[tuple[int, int], list[WalkState]] = {}

    def state_after(self, history: History, replica: Replica, iteration: int) -> WalkState:
        """Return the state of a replica after `iteration`; 0 is before its first iteration."""
        birth = replica.birth
        if birth is not None and iteration <= birth.saved.iteration:
            parent = history.replica(birth.trial, birth.replica)
            return self.state_after(history, parent, iteration)
        first = birth.saved.iteration if birth else 0
        walk = self._walks.setdefault((replica.trial, replica.index), [])
        if not walk:
            own = WalkState(seed_of(self._seed, replica.trial, replica.index), {})
            walk.append(
                self.state_after(history, birth_of(history, replica), first) if birth else own
            )
        config = history.trials[replica.trial].config
        while len(walk) <= iteration - first:
            at = first + len(walk)
            state = next_state(walk[-1].state, config, at)
            walk.append(WalkState(state, result(state, config, at)))
        return walk[iteration - first]


def birth_of(history: History, replica: Replica) -> Replica:
    """Return the replica from whose checkpoint a bred replica began."""
    if replica.birth is None:
        raise ValueError(f"{replica.name} was not bred")
    return history.replica(replica.birth.trial, replica.birth.replica)

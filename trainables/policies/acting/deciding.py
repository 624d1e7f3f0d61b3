"""Deciders: what `Actor.act` decides, to the bit, with as little work in each step as there can be.

The next step of an environment asks for a choice and for nothing else. So a decider makes that
alone, and what a fragment holds beside it, log-probabilities and values, for many steps at the end.
T steps, N environments, D features, H units, A choices, G real numbers of an action; float32.
"""

from collections.abc import Sequence
from operator import sub
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from trainables.policies.acting.dense import Array, Networks, activate
from trainables.policies.distributions import (
    ChosenAhead,
    MeasuredAhead,
    forbid,
    log_softmax,
    log_softmax_of_two,
)

#: How far ahead of all others a choice has to be in float64 to be the best one in float32 as well:
#: there its score is wrong by 4e-5 at most, since what is drawn lies between -88 and 5. That of two
#: choices' difference in float32 is less.
CERTAIN = 1e-3
#: Rows that the critic is given at once: what is computed of them stays in the cache.
ROWS = 1024


class Decider(Protocol):
    """Decides for one environment, step after step, to the bit as `Actor.act` does."""

    def choose(self, step: int, row: Array) -> Any:
        """The choice, an int64, for the filtered observation (1, D) of a step."""

    def columns(self, steps: slice, chosen: Sequence[Any]) -> dict[str, NDArray[Any]]:
        """``actions`` (T,) of these steps, in which so was chosen, and `Actor.columns`."""


class OneByOne:
    """Decides for one environment, one of T steps after the other; to the bit as `Actor.act` does.

    Only what the next step asks for is computed at once, without an array for it: the choice. What
    `Actor.columns` declares is computed for all steps at the end.

    Args:
        networks: decide in all steps.
        race: (T, A) what was drawn for each step.
    """

    def __init__(self, networks: Networks, race: Array) -> None:
        steps, choices = race.shape
        self._race, self._drawn = race, race.tolist()
        self._choices = list(np.arange(choices))
        self._layers, self._weights, self._bias, self._activation = networks
        self._heads: Array = np.empty((steps, 1, choices), dtype=np.float32)
        below = [np.empty_like(bias) for _, bias in networks.layers]
        shape = below.pop().shape if below else (2, 1, len(networks.heads["actor.weight"]))
        self._below: list[Array] = below
        """(2, 1, H) of each hidden layer but the last, written anew in each step; (1, 1, H) where
        actor and critic share them."""
        self._top: Array = np.empty((steps, *shape), dtype=np.float32)
        """(T, 2, 1, H) what the heads are given."""

    def choose(self, step: int, row: Array) -> Any:
        """The choice, an int64, for the filtered observation (1, D) of a step."""
        top, head = self._top[step], self._heads[step]
        if not self._layers:
            top[:] = row
        x = row
        for (weight, bias), out in zip(self._layers, (*self._below, top), strict=False):
            np.matmul(x, weight, out=out)
            np.add(out, bias, out=out)
            activate(out, self._activation)
            x = out
        top[0].dot(self._weights["actor.weight"], out=head)
        np.add(head, self._bias, out=head)
        scores = list(map(sub, head.tolist()[0], self._drawn[step]))
        best = max(scores)
        choice = scores.index(best)
        scores[choice] = -np.inf
        if not best - max(scores) > CERTAIN:
            choice = int((log_softmax(head) - self._race[step]).argmax())
        return self._choices[choice]

    def columns(self, steps: slice, chosen: Sequence[Any]) -> dict[str, NDArray[Any]]:
        """``actions``, ``logp`` and ``values`` (T,) of these steps, in which so was chosen."""
        actions = np.array(chosen, dtype=np.int64)
        logp = log_softmax(self._heads[steps, 0])[np.arange(len(actions)), actions]
        values = np.matmul(self._top[steps, -1], self._weights["critic.weight"])[:, 0, 0]
        return {"actions": actions, "logp": logp, "values": values + self._weights["critic.bias"]}


class SideBySide:
    """Decides for N environments, in one of T steps after the other.

    Args:
        networks: decide in all steps.
        drawn: for each step of these environments.
        masks: so many last features of an observation say which choices are valid.
    """

    def __init__(
        self, networks: Networks, drawn: ChosenAhead | MeasuredAhead, masks: int = 0
    ) -> None:
        self._networks, self._masks = networks, masks
        self._bias, self._activation = networks.head_bias, networks.activation
        nothing: Array = np.zeros(0, dtype=np.float32)
        self._race = self._away = self._logp = nothing
        if isinstance(drawn, MeasuredAhead):
            self._away, self._logp = drawn.away, drawn.logp
            steps, rows = self._logp.shape
        else:
            self._race = drawn.race
            steps, rows = self._race.shape[:2]
        self._of_two = self._race.shape[-1] == 2
        if self._of_two:
            self._lead_to_take = self._race[..., 1] - self._race[..., 0]
        self._weight = networks.heads["actor.weight"]
        self._heads: Array = np.empty((steps, rows, self._weight.shape[1]), dtype=np.float32)
        """Outputs of the actor's head; of more than two choices their log-probabilities."""
        # As many biases as rows: adding them costs a third of adding one to all.
        self._layers = [(w[0], bias[0].repeat(rows, 0)) for w, bias in networks.layers]
        self._shares = bool(networks.layers) and len(networks.layers[0][0]) == 1
        self._judged: Array = np.empty((steps, rows) if self._shares else 0, dtype=np.float32)
        """(T, N) what the critic's head gives where it shares the actor's layers."""

    def choose(self, step: int, rows: Array) -> NDArray[Any]:
        """Actions (N, …) for the filtered observations (N, D) of a step."""
        x = self._inputs(rows)
        for weight, bias in self._layers:
            x = x.dot(weight)  # two thirds of the time of `np.matmul`
            x += bias
            activate(x, self._activation)
        if self._shares:
            self._judged[step] = x.dot(self._networks.heads["critic.weight"])[:, 0]
        head = self._heads[step]
        x.dot(self._weight, out=head)
        np.add(head, self._bias, out=head)
        if self._masks:
            forbid(head[:, : self._masks], rows)
        if len(self._away):
            return np.asarray(head + self._away[step])
        if self._of_two:
            lead = head[:, 1] - head[:, 0]
            lead -= self._lead_to_take[step]
            if np.count_nonzero(np.abs(lead) > CERTAIN) == len(lead):
                second: NDArray[Any] = (lead > 0).astype(np.int64)
                return second
            return np.asarray((log_softmax(head) - self._race[step]).argmax(axis=-1))
        logs = log_softmax(head)
        head[:] = logs
        return np.asarray((logs - self._race[step]).argmax(axis=-1))

    def columns(
        self, steps: slice, rows: Array, chosen: NDArray[Any]
    ) -> dict[str, NDArray[np.float32]]:
        """``logp`` and ``values`` (T, N) of these steps.

        Args:
            steps: which.
            rows: (T, N, D) what was seen in them.
            chosen: (T, N, …) what was done.
        """
        logp = self._logp[steps]
        if len(self._race):
            heads = self._heads[steps]
            logs = log_softmax_of_two(heads.reshape(-1, 2)) if self._of_two else heads
            logs = logs.reshape(heads.shape)
            logp = np.take_along_axis(logs, chosen[..., None], axis=-1)[..., 0]
        return {"logp": logp, "values": self._values(steps, rows)}

    def _values(self, steps: slice, rows: Array) -> Array:
        """(T, N) of what was seen (T, N, D), step by step, and so rounded as in each."""
        heads = self._networks.heads
        if self._shares:
            return np.asarray(self._judged[steps] + heads["critic.bias"])
        values: Array = np.empty(rows.shape[:2], dtype=np.float32)
        most = max(1, ROWS // rows.shape[1])
        for first in range(0, len(values), most):
            part = slice(first, first + most)
            x = self._inputs(rows[part])
            for weight, bias in self._networks.layers:
                x = np.matmul(x, weight[-1])
                x += bias[-1]
                activate(x, self._activation)
            values[part] = np.matmul(x, heads["critic.weight"])[..., 0]
        values += heads["critic.bias"]
        return values

    def _inputs(self, rows: Array) -> Array:
        """(…, D) what the first layer is given."""
        return np.ascontiguousarray(rows[..., : -self._masks]) if self._masks else rows

"""Deciders: the decisions of `Actor.act`, equal to the bit, with less work per step.

An environment's next step needs an action and nothing else. So a decider computes only the action
in each step, and log-probabilities and values for many steps at once at the end. T steps, N
environments, D features, H units, A choices, G real numbers of an action; float32.
"""

from collections.abc import Sequence
from operator import sub
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from trainables.policies.acting.dense import Array, Networks, activate
from trainables.policies.acting.distributions import (
    PredrawnChoices,
    PredrawnReals,
    log_softmax,
    log_softmax_of_two,
    mask_invalid,
)

#: Lead in float64 that makes a choice the best one in float32 as well. Scores in float32 have
#: errors of at most 4e-5, since the numbers drawn lie between -88 and 5. The error of a difference
#: between two choices is smaller.
CERTAIN = 1e-3
#: Rows per call of the critic, so that its intermediate results fit into the cache.
ROWS = 1024


class Decider(Protocol):
    """Chooses actions of one environment faster than `Actor.act`, with equal results.

    `choose` is called once per step; `columns` computes the other outputs of many steps at once.
    """

    def choose(self, step: int, row: Array) -> Any:
        """Return the choice, an int64, for the filtered observation `row` (1, D).

        `step` is the index of the step in the fragment, which selects its random numbers.
        """

    def columns(self, steps: slice, chosen: Sequence[Any]) -> dict[str, NDArray[Any]]:
        """Return the columns of these T steps: ``actions`` (T,) and those of `Actor.columns`.

        `chosen` are the results of `choose` in these steps.
        """


class SingleEnvDecider:
    """Chooses discrete actions of one environment; results equal those of `Actor.act` to the bit.

    Each step computes the choice alone, without making an array for it; log-probabilities and
    values are computed for many steps at once.

    Args:
        networks: layers of actor and critic.
        race: random numbers of all steps, (T, A): logarithms of exponential draws.
    """

    def __init__(self, networks: Networks, race: Array) -> None:
        steps, choices = race.shape
        self._race, self._race_lists = race, race.tolist()
        self._choices = list(np.arange(choices))
        self._layers, self._weights, self._bias, self._activation = networks
        self._heads: Array = np.empty((steps, 1, choices), dtype=np.float32)
        below = [np.empty_like(bias) for _, bias in networks.layers]
        shape = below.pop().shape if below else (2, 1, len(networks.heads["actor.weight"]))
        self._hidden_outputs: list[Array] = below
        """Buffers (2, 1, H) for the outputs of all hidden layers but the last, reused in each step.

        They are (1, 1, H) if actor and critic share the layers.
        """
        self._head_inputs: Array = np.empty((steps, *shape), dtype=np.float32)
        """Inputs of the two heads in all steps, (T, 2, 1, H).

        They are (T, 1, 1, H) if actor and critic share the layers.
        """

    def choose(self, step: int, row: Array) -> Any:
        """Return the choice, an int64, for the filtered observation `row` (1, D).

        `step` is the index of the step, which selects its random numbers. Stores the step's outputs
        of the networks, from which `columns` computes the rest.
        """
        head_inputs, head = self._head_inputs[step], self._heads[step]
        if not self._layers:
            head_inputs[:] = row
        x = row
        for (weight, bias), buffer in zip(
            self._layers, (*self._hidden_outputs, head_inputs), strict=False
        ):
            np.matmul(x, weight, out=buffer)
            np.add(buffer, bias, out=buffer)
            activate(buffer, self._activation)
            x = buffer
        head_inputs[0].dot(self._weights["actor.weight"], out=head)
        np.add(head, self._bias, out=head)
        scores = list(map(sub, head.tolist()[0], self._race_lists[step]))
        best = max(scores)
        choice = scores.index(best)
        scores[choice] = -np.inf
        if not best - max(scores) > CERTAIN:
            choice = int((log_softmax(head) - self._race[step]).argmax())
        return self._choices[choice]

    def columns(self, steps: slice, chosen: Sequence[Any]) -> dict[str, NDArray[Any]]:
        """Return ``actions``, ``logp`` and ``values``, each (T,), of these steps.

        `choose` was called in each of them before, and `chosen` are its results.
        """
        actions = np.array(chosen, dtype=np.int64)
        logp = log_softmax(self._heads[steps, 0])[np.arange(len(actions)), actions]
        values = np.matmul(self._head_inputs[steps, -1], self._weights["critic.weight"])[:, 0, 0]
        return {"actions": actions, "logp": logp, "values": values + self._weights["critic.bias"]}


class VectorEnvDecider:
    """Chooses actions of N environments faster than `Actor.act`, with results equal to the bit.

    `choose` is called once per step; `columns` computes log-probabilities and values of many steps
    at once.

    Args:
        networks: layers of actor and critic.
        drawn: stream with the random numbers of all steps.
        masks: length of the action mask at the end of each observation; 0 without one.
    """

    def __init__(
        self, networks: Networks, drawn: PredrawnChoices | PredrawnReals, masks: int = 0
    ) -> None:
        self._networks, self._masks = networks, masks
        self._bias, self._activation = networks.head_bias, networks.activation
        nothing: Array = np.zeros(0, dtype=np.float32)
        self._race = self._deviations = self._logp = nothing
        if isinstance(drawn, PredrawnReals):
            self._deviations, self._logp = drawn.deviations, drawn.logp
            steps, rows = self._logp.shape
        else:
            self._race = drawn.race
            steps, rows = self._race.shape[:2]
        self._has_two_choices = self._race.shape[-1] == 2
        if self._has_two_choices:
            self._required_lead = self._race[..., 1] - self._race[..., 0]
        self._weight = networks.heads["actor.weight"]
        self._heads: Array = np.empty((steps, rows, self._weight.shape[1]), dtype=np.float32)
        """Outputs of the actor's head, (T, N, …); of more than two choices their
        log-probabilities."""
        # Adding as many biases as rows takes a third of the time of adding one bias to all rows.
        self._layers = [(w[0], bias[0].repeat(rows, 0)) for w, bias in networks.layers]
        self._has_shared_layers = bool(networks.layers) and len(networks.layers[0][0]) == 1
        self._critic_outputs: Array = np.empty(
            (steps, rows) if self._has_shared_layers else 0, dtype=np.float32
        )
        """Values without the bias, (T, N), if the critic shares the actor's layers; else empty."""

    def choose(self, step: int, rows: Array) -> NDArray[Any]:
        """Return the actions (N, …) for the filtered observations `rows` (N, D).

        `step` is the index of the step, which selects its random numbers. Stores the step's outputs
        of the networks, from which `columns` computes the rest.
        """
        x = self._inputs(rows)
        for weight, bias in self._layers:
            x = x.dot(weight)  # two thirds of the time of `np.matmul`
            x += bias
            activate(x, self._activation)
        if self._has_shared_layers:
            self._critic_outputs[step] = x.dot(self._networks.heads["critic.weight"])[:, 0]
        head = self._heads[step]
        x.dot(self._weight, out=head)
        np.add(head, self._bias, out=head)
        if self._masks:
            mask_invalid(head[:, : self._masks], rows)
        if len(self._deviations):
            return np.asarray(head + self._deviations[step])
        if self._has_two_choices:
            lead = head[:, 1] - head[:, 0]
            lead -= self._required_lead[step]
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
        """Return ``logp`` and ``values``, each (T, N), of T steps in which `choose` was called.

        `rows` are their filtered observations (T, N, D), `chosen` their actions (T, N, …).
        """
        logp = self._logp[steps]
        if len(self._race):
            heads = self._heads[steps]
            logs = log_softmax_of_two(heads.reshape(-1, 2)) if self._has_two_choices else heads
            logs = logs.reshape(heads.shape)
            logp = np.take_along_axis(logs, chosen[..., None], axis=-1)[..., 0]
        return {"logp": logp, "values": self._values(steps, rows)}

    def _values(self, steps: slice, rows: Array) -> Array:
        """Return values (T, N) of observations (T, N, D), rounded as if computed step by step.

        With shared layers they are those that `choose` stored in these steps.
        """
        heads = self._networks.heads
        if self._has_shared_layers:
            return np.asarray(self._critic_outputs[steps] + heads["critic.bias"])
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
        """Return observations (…, D) without the action mask at the end of each row."""
        return np.ascontiguousarray(rows[..., : -self._masks]) if self._masks else rows

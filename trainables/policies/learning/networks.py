"""Actor and critic in torch: separate perceptrons for vectors, one shared trunk for images.

B rows, D features, K action columns, A choices, G real action columns, S sequences, U units of an
LSTM. Separate networks learn better than shared ones in simple environments (Andrychowicz et al.
2021). A shared trunk is usual for images (Mnih et al. 2016), and so is trunk → LSTM → two heads for
a policy with a memory (Huang et al. 2022). The gain of the initial weights is 0.01 in the policy's
head and 1 in the value's.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainables.envs.spaces.actions import ActionLayout
from trainables.policies.acting.distributions import HALF_LOG_2PI, NO_CHOICE, choice_grid
from trainables.policies.architecture import HIDDEN_GAIN, POLICY_GAIN, VALUE_GAIN, Architecture
from trainables.policies.exploration.actions import LEAST_VARIANCE
from trainables.policies.learning.layers import (
    Trunk,
    activate,
    as_float32,
    lstm,
    perceptron,
    unit_pixels,
)


class Evaluated(NamedTuple):
    """Outputs of the networks for observations and the actions taken there."""

    logp: Tensor
    """Log-probabilities of the actions, (B,)."""
    entropies: Tensor
    """Entropies of the action distributions, (B,), or one number () if all are equal."""
    values: Tensor
    """Values of the observations, (B,)."""


class SequenceLayout(NamedTuple):
    """Assignment of the B rows of a batch to S sequences, through which an LSTM runs."""

    positions: Tensor
    """Position of each row, int64 (B,): its step in its sequence, times S, plus the index of the
    sequence."""
    states: Tensor
    """LSTM's state at the start of each sequence, (S, 2U): outputs, then cells."""


def sequence_layout_of(columns: Mapping[str, Tensor]) -> SequenceLayout | None:
    """Return the sequences that a batch's columns ``positions`` and ``states`` describe.

    Returns None if the batch has no such columns.
    """
    return (
        SequenceLayout(columns["positions"], columns["states"]) if "positions" in columns else None
    )


def split(observations: Tensor, masks: int) -> tuple[Tensor, Tensor | None]:
    """Split observations (B, D + masks) into features (B, D) and flags (B, A) of valid choices.

    The last `masks` columns are an action mask; the flags are None if `masks` is 0.
    """
    if not masks:
        return observations, None
    return observations[:, :-masks], observations[:, -masks:] > 0


def mask_logits(logits: Tensor, valid: Tensor | None) -> Tensor:
    """Return the actor's outputs (B, …) with `NO_CHOICE` as the logits of invalid choices.

    The first A columns are logits; `valid` are flags (B, A), None if all are valid.
    """
    if valid is None:
        return logits
    forbidden = nn.functional.pad(~valid, (0, logits.shape[1] - valid.shape[1]))
    return logits.masked_fill(forbidden, float(NO_CHOICE))


class Networks(nn.Module):
    """Base class of networks whose parameters a policy trains."""

    @cached_property
    def by_name(self) -> dict[str, nn.Parameter]:
        """Name → parameter, the networks' own objects, as they were at the first access."""
        return dict(self.named_parameters())

    def saved_tensors(self) -> Mapping[str, Tensor]:
        """Return name → tensor that a checkpoint must contain; by default every parameter."""
        return self.by_name

    def weights(self) -> dict[str, NDArray[Any]]:
        """Return name → copied array of every tensor of `saved_tensors`."""
        return {
            name: one.detach().cpu().numpy().copy() for name, one in self.saved_tensors().items()
        }

    def acting_weights(self) -> dict[str, NDArray[Any]]:
        """Return a copy of the weights that an actor needs; by default all weights."""
        return self.weights()

    def load_weights(self, weights: Mapping[str, NDArray[Any]]) -> None:
        """Copy arrays, as `weights` returns them, into the tensors of `saved_tensors`."""
        with torch.no_grad():
            for name, one in self.saved_tensors().items():
                one.copy_(torch.from_numpy(np.require(weights[name], requirements="W")))


class Stochastic(Networks):
    """Base class of networks whose head parametrises a distribution of actions.

    The head has the logits of the choices and then the means of G real numbers.
    """

    log_std: nn.Parameter | None
    """Log standard deviations of the real numbers: (G,), or (U, G) for state-dependent noise.

    None without real numbers, with a user's distribution, or if the head itself has the log
    standard deviations after the means.
    """

    def __init__(self, layout: ActionLayout, architecture: Architecture) -> None:
        super().__init__()
        self._grid: Tensor
        self._absent_choices: Tensor
        self.layout = layout
        self.architecture = architecture
        grid, absent = choice_grid(layout)
        self.register_buffer("_grid", torch.from_numpy(grid), persistent=False)
        self.register_buffer("_absent_choices", torch.from_numpy(absent), persistent=False)
        self._has_uneven_choices = bool(absent.any())
        own = architecture.distribution
        self._distribution = None if own is None else own.load_class()

    def evaluate(
        self, observations: Tensor, actions: Tensor, sequences: SequenceLayout | None = None
    ) -> Evaluated:
        """Return log-probabilities and entropies of actions, and values, with gradients.

        Args:
            observations: filtered observations (B, *S).
            actions: actions taken, choices (B,) or rows (B, K).
            sequences: assignment of the rows to sequences; networks with an LSTM require it.

        Raises:
            ValueError: the networks have an LSTM and `sequences` is None.
        """
        raise NotImplementedError

    def _free_log_std(self) -> nn.Parameter | None:
        """Return a new parameter (G,) for log standard deviations that are separate weights.

        Returns None without real numbers, with deviations predicted by the network, or with a
        user's distribution.
        """
        reals, of = len(self.layout.real_columns), self.architecture
        if not reals or of.predicts_log_std or of.distribution is not None:
            return None
        return nn.Parameter(torch.full((reals,), of.log_std_init))

    def _logp_entropy(self, head: Tensor, actions: Tensor, units: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-probabilities (B,) of actions, and entropies (B,) of their distributions.

        Entropies are one number () if all are equal. `head` (B, …) are outputs of the actor,
        `units` (B, U) the inputs of its last layer, for state-dependent noise.
        """
        if self._distribution is not None:
            own = self._distribution(head)
            return own.logp(actions), own.entropy()
        layout = self.layout
        if layout.scalar:
            logs = torch.log_softmax(head, dim=-1)
            logp = logs.gather(1, actions.unsqueeze(1)).squeeze(1)
            return logp, -(logs.exp() * logs).sum(-1)
        if not layout.choice_columns:
            return self._score_reals(head, actions, units)
        logits = head[:, self._grid]
        if self._has_uneven_choices:
            logits = logits.masked_fill(self._absent_choices, float(NO_CHOICE))
        logs = torch.log_softmax(logits, dim=-1)
        choices = actions[:, list(layout.choice_columns)].long()
        logp = logs.gather(2, choices.unsqueeze(2)).squeeze(2).sum(-1)
        entropies = -(logs.exp() * logs).sum((1, 2))
        if layout.real_columns:
            means, reals = head[:, layout.logits :], actions[:, list(layout.real_columns)]
            logp_reals, entropy = self._score_reals(means, reals, units)
            return logp + logp_reals, entropies + entropy
        return logp, entropies

    def _score_reals(self, means: Tensor, reals: Tensor, units: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-probabilities (B,) of real numbers (B, G), and entropies (B,).

        Entropies are one number () if deviations do not depend on the observation. Means are (B,
        G), or (B, 2G) with log standard deviations if `log_std` is None; `units` (B, U) are the
        inputs of the actor's last layer.
        """
        if self.log_std is None:
            means, log_std = means.chunk(2, dim=-1)
            scaled = (reals - means) * torch.exp(-log_std)
            logp = (-0.5 * scaled.square() - log_std - HALF_LOG_2PI).sum(-1)
            return logp, (log_std + 0.5 + HALF_LOG_2PI).sum(-1)
        if self.log_std.dim() == 2:
            # The variance sends no gradient to the units, which serve the means (Raffin et al.
            # 2021).
            variance = units.detach().square() @ torch.exp(2 * self.log_std) + LEAST_VARIANCE
            halves = 0.5 * torch.log(variance) + HALF_LOG_2PI
            logp = (-0.5 * (reals - means).square() / variance - halves).sum(-1)
            return logp, (halves + 0.5).sum(-1)
        scaled = (reals - means) * torch.exp(-self.log_std)
        logp = (-0.5 * scaled.square() - self.log_std - HALF_LOG_2PI).sum(-1)
        return logp, (self.log_std + 0.5 + HALF_LOG_2PI).sum()


class ActorCritic(Stochastic):
    """The networks of PPO, A2C and IMPALA: an actor and a critic, which may share layers.

    `stream` draws the weights; without it they are left uninitialised, to be loaded.
    """

    def __init__(
        self, layout: ActionLayout, architecture: Architecture, stream: torch.Generator | None
    ) -> None:
        super().__init__(layout, architecture)
        self.trunk = Trunk(architecture, stream) if architecture.shared else None
        sizes = (architecture.features, *architecture.hidden)
        if self.trunk is not None:
            sizes = sizes[-1:]
        self.lstm = lstm(sizes[-1], architecture.lstm, stream) if architecture.lstm else None
        if self.lstm is not None:
            sizes = (architecture.lstm,)
        gains = [HIDDEN_GAIN] * (len(sizes) - 1)
        self.actor = perceptron(
            (*sizes, architecture.count_outputs(layout)), [*gains, POLICY_GAIN], stream
        )
        self.critic = perceptron((*sizes, 1), [*gains, VALUE_GAIN], stream)
        self.log_std = self._free_log_std()
        if architecture.noise is not None:
            self.log_std = nn.Parameter(
                torch.full((sizes[-1], len(layout.real_columns)), architecture.noise[0])
            )

    def value(self, observations: Tensor) -> Tensor:
        """Return the values (B,) of filtered observations: (B, D), or (B, H, W, C) for images.

        Raises ValueError if the networks have an LSTM.
        """
        features, _ = split(observations, self.architecture.masks)
        return self._run(self.critic, self._features(features, None)).squeeze(-1)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Return the actor's outputs (B, …) and values (B,) of filtered observations (B, *S).

        Logits of choices that an action mask forbids are `NO_CHOICE`. Raises ValueError if the
        networks have an LSTM.
        """
        rows, valid = split(observations, self.architecture.masks)
        features = self._features(rows, None)
        head = mask_logits(self._run(self.actor, features), valid)
        return head, self._run(self.critic, features).squeeze(-1)

    def evaluate(
        self, observations: Tensor, actions: Tensor, sequences: SequenceLayout | None = None
    ) -> Evaluated:
        """Return log-probabilities and entropies of actions, and values, with gradients.

        Arguments are those of `Stochastic.evaluate`: rows of a batch, and their sequences for an
        LSTM, without which ValueError is raised if there is one. Shared layers run only once.
        """
        rows, valid = split(observations, self.architecture.masks)
        features = self._features(rows, sequences)
        units = self._run_hidden(self.actor, features)
        head = mask_logits(as_float32(self.actor[-1](units)), valid)
        logp, entropies = self._logp_entropy(head, actions, units)
        return Evaluated(logp, entropies, self._run(self.critic, features).squeeze(-1))

    def _features(self, observations: Tensor, sequences: SequenceLayout | None) -> Tensor:
        """Run shared layers and LSTM, if any, on observations (B, …); return their outputs (B, F).

        `sequences` assigns rows to sequences for the LSTM; None without one. Without any such
        layers these are the observations, images as flat rows of float32.
        """
        if self.trunk is not None:
            features: Tensor = self.trunk(observations)
            return features if self.lstm is None else _run_lstm(self.lstm, features, sequences)
        if observations.dim() == 2:
            return observations
        return unit_pixels(observations, self.architecture).flatten(1)

    def _run(self, layers: nn.ModuleList, x: Tensor) -> Tensor:
        """Run `layers`, the actor's or the critic's, on features (…, D); return (…, outputs)."""
        return as_float32(layers[-1](self._run_hidden(layers, x)))

    def _run_hidden(self, layers: nn.ModuleList, x: Tensor) -> Tensor:
        """Run all of `layers` but the last on features (…, D); return the outputs (…, H)."""
        for layer in layers[:-1]:
            x = activate(layer(x), self.architecture.activation)
        return x


def _run_lstm(layer: nn.LSTM, features: Tensor, sequences: SequenceLayout | None) -> Tensor:
    """Run an LSTM through the sequences of `sequences`; return its outputs (B, U) for rows (B, F).

    Raises ValueError if `sequences` is None.
    """
    if sequences is None:
        raise ValueError("networks with an LSTM learn from sequences (`sequences.SequenceBatch`)")
    # Sequences are padded, since torch's fused loop over time requires equal lengths; its loop for
    # ragged sequences is 5 to 8 times slower.
    count = len(sequences.states)
    longest = int(sequences.positions.max()) // count + 1
    grid = features.new_zeros(longest * count, features.shape[1])
    grid = grid.index_copy(0, sequences.positions, features).view(longest, count, -1)
    outputs, cells = (one.contiguous()[None] for one in sequences.states.chunk(2, dim=1))
    given: Tensor = layer(grid, (outputs, cells))[0]
    return given.reshape(longest * count, -1)[sequences.positions]

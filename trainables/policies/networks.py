"""Actor and critic in torch: perceptrons of their own for vectors, one shared trunk for images.

B rows, D features, K action columns, G of them real numbers, S sequences, U units of an LSTM.
Separate networks beat shared ones on simple environments (Andrychowicz et al. 2021); for images a
shared trunk is the custom (Mnih et al. 2016), and so is trunk → LSTM → two heads for a policy with
a memory (Huang et al. 2022). Gains are 0.01 in the policy's head and 1 in the value's.
"""

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainables.envs.spaces.actions import ActionLayout
from trainables.policies.architecture import HIDDEN_GAIN, POLICY_GAIN, VALUE_GAIN, Architecture
from trainables.policies.distributions import NO_CHOICE, choice_grid
from trainables.policies.exploration.actions import LEAST_VARIANCE
from trainables.policies.layers import Trunk, activate, lstm, perceptron, unit_pixels

HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


class Evaluated(NamedTuple):
    """The networks' outputs for observations and the actions that were taken."""

    logp: Tensor
    """(B,) log-probabilities of the actions."""
    entropies: Tensor
    """(B,) or () entropies of their distribution."""
    values: Tensor
    """(B,)."""


class Replay(NamedTuple):
    """The assignment of rows to S sequences."""

    positions: Tensor
    """(B,) int64: step of its sequence x S + number of its sequence."""
    states: Tensor
    """(S, 2U) the memory with which each sequence begins: outputs, then cells."""


def replay_of(columns: Mapping[str, Tensor]) -> Replay | None:
    """Return the sequences in columns ``positions`` and ``states``, if there are any."""
    return Replay(columns["positions"], columns["states"]) if "positions" in columns else None


def split(observations: Tensor, masks: int) -> tuple[Tensor, Tensor | None]:
    """Features, and (B, A) which choices are valid where so many columns at the end say it."""
    if not masks:
        return observations, None
    return observations[:, :-masks], observations[:, -masks:] > 0


def allowed(logits: Tensor, valid: Tensor | None) -> Tensor:
    """Logits, or a whole head, with `NO_CHOICE` for what is not valid."""
    if valid is None:
        return logits
    forbidden = nn.functional.pad(~valid, (0, logits.shape[1] - valid.shape[1]))
    return logits.masked_fill(forbidden, float(NO_CHOICE))


class Networks(nn.Module):
    """The parameters that a policy learns, by name."""

    @cached_property
    def by_name(self) -> dict[str, nn.Parameter]:
        """Every parameter by name: the same ones for good."""
        return dict(self.named_parameters())

    def kept(self) -> Mapping[str, Tensor]:
        """Return the tensors that make up the networks, by name: every parameter."""
        return self.by_name

    def weights(self) -> dict[str, NDArray[Any]]:
        """Return a copy of `kept`."""
        return {name: one.detach().cpu().numpy().copy() for name, one in self.kept().items()}

    def acting_weights(self) -> dict[str, NDArray[Any]]:
        """Return a copy of the weights with which an actor plays: all of them."""
        return self.weights()

    def load_weights(self, weights: Mapping[str, NDArray[Any]]) -> None:
        """Take back what `weights` gave."""
        with torch.no_grad():
            for name, one in self.kept().items():
                one.copy_(torch.from_numpy(np.require(weights[name], requirements="W")))


class Stochastic(Networks):
    """A head says how actions are drawn: logits of choices, means of G real numbers."""

    log_std: nn.Parameter | None
    """(G,) logarithms of their deviations, or (U, G) of state-dependent noise; None: there are no
    reals, or what follows the means in the head are these logarithms."""

    def __init__(self, layout: ActionLayout, architecture: Architecture) -> None:
        super().__init__()
        self._grid: Tensor
        self._absent: Tensor
        self.layout = layout
        self.architecture = architecture
        grid, absent = choice_grid(layout)
        self.register_buffer("_grid", torch.from_numpy(grid), persistent=False)
        self.register_buffer("_absent", torch.from_numpy(absent), persistent=False)
        self._uneven = bool(absent.any())
        own = architecture.distribution
        self._distribution = None if own is None else own.loaded()

    def evaluate(
        self, observations: Tensor, actions: Tensor, replay: Replay | None = None
    ) -> Evaluated:
        """Both networks on filtered observations, with the actions taken; a trunk is run once.

        An LSTM needs `replay`: how the rows make up sequences.

        Raises:
            ValueError: an LSTM and no sequences.
        """
        raise NotImplementedError

    def _free_log_std(self) -> nn.Parameter | None:
        reals, of = len(self.layout.real_columns), self.architecture
        if not reals or of.log_std_follows or of.distribution is not None:
            return None
        return nn.Parameter(torch.full((reals,), of.log_std_init))

    def _logp_entropy(self, head: Tensor, actions: Tensor, units: Tensor) -> tuple[Tensor, Tensor]:
        """(B,) log-probabilities of actions, and (B,) or () entropies of their distribution."""
        if self._distribution is not None:
            own = self._distribution(head)
            return own.logp(actions), own.entropy()
        layout = self.layout
        if layout.scalar:
            logs = torch.log_softmax(head, dim=-1)
            logp = logs.gather(1, actions.unsqueeze(1)).squeeze(1)
            return logp, -(logs.exp() * logs).sum(-1)
        if not layout.choice_columns:
            return self._of_reals(head, actions, units)
        logits = head[:, self._grid]
        if self._uneven:
            logits = logits.masked_fill(self._absent, float(NO_CHOICE))
        logs = torch.log_softmax(logits, dim=-1)
        choices = actions[:, list(layout.choice_columns)].long()
        logp = logs.gather(2, choices.unsqueeze(2)).squeeze(2).sum(-1)
        entropies = -(logs.exp() * logs).sum((1, 2))
        if layout.real_columns:
            means, reals = head[:, layout.logits :], actions[:, list(layout.real_columns)]
            logp_reals, entropy = self._of_reals(means, reals, units)
            return logp + logp_reals, entropies + entropy
        return logp, entropies

    def _of_reals(self, means: Tensor, reals: Tensor, units: Tensor) -> tuple[Tensor, Tensor]:
        if self.log_std is None:
            means, log_std = means.chunk(2, dim=-1)
            scaled = (reals - means) * torch.exp(-log_std)
            logp = (-0.5 * scaled.square() - log_std - HALF_LOG_2PI).sum(-1)
            return logp, (log_std + 0.5 + HALF_LOG_2PI).sum(-1)
        if self.log_std.dim() == 2:
            # The noise does not teach the units: they are for the means (Raffin et al. 2021).
            variance = units.detach().square() @ torch.exp(2 * self.log_std) + LEAST_VARIANCE
            halves = 0.5 * torch.log(variance) + HALF_LOG_2PI
            logp = (-0.5 * (reals - means).square() / variance - halves).sum(-1)
            return logp, (halves + 0.5).sum(-1)
        scaled = (reals - means) * torch.exp(-self.log_std)
        logp = (-0.5 * scaled.square() - self.log_std - HALF_LOG_2PI).sum(-1)
        return logp, (self.log_std + 0.5 + HALF_LOG_2PI).sum()


class ActorCritic(Stochastic):
    """Two networks, and log standard deviations (G,), from 0 on, of the real action columns.

    `stream` draws the initial weights; None leaves them to be loaded.
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
        self.actor = perceptron((*sizes, architecture.head(layout)), [*gains, POLICY_GAIN], stream)
        self.critic = perceptron((*sizes, 1), [*gains, VALUE_GAIN], stream)
        self.log_std = self._free_log_std()
        if architecture.noise is not None:
            self.log_std = nn.Parameter(
                torch.full((sizes[-1], len(layout.real_columns)), architecture.noise[0])
            )

    def value(self, observations: Tensor) -> Tensor:
        """(B,) values of filtered observations: (B, D), or (B, H, W, C) for images."""
        features, _ = split(observations, self.architecture.masks)
        return self._run(self.critic, self._features(features, None)).squeeze(-1)

    def evaluate(
        self, observations: Tensor, actions: Tensor, replay: Replay | None = None
    ) -> Evaluated:
        """As `Stochastic.evaluate`."""
        rows, valid = split(observations, self.architecture.masks)
        features = self._features(rows, replay)
        units = self._run_hidden(self.actor, features)
        head = allowed(self.actor[-1](units), valid)
        logp, entropies = self._logp_entropy(head, actions, units)
        return Evaluated(logp, entropies, self._run(self.critic, features).squeeze(-1))

    def _features(self, observations: Tensor, replay: Replay | None) -> Tensor:
        if self.trunk is not None:
            features: Tensor = self.trunk(observations)
            return features if self.lstm is None else _replayed(self.lstm, features, replay)
        if observations.dim() == 2:
            return observations
        return unit_pixels(observations, self.architecture).flatten(1)

    def _run(self, layers: nn.ModuleList, x: Tensor) -> Tensor:
        out: Tensor = layers[-1](self._run_hidden(layers, x))
        return out

    def _run_hidden(self, layers: nn.ModuleList, x: Tensor) -> Tensor:
        for layer in layers[:-1]:
            x = activate(layer(x), self.architecture.activation)
        return x


def _replayed(layer: nn.LSTM, features: Tensor, replay: Replay | None) -> Tensor:
    """(B, U) outputs for features (B, F)."""
    if replay is None:
        raise ValueError("networks with an LSTM learn from sequences (`sequences.SequenceBatch`)")
    # Padded: torch's fused loop over time takes no ragged sequences; its other one is 5 to 8 times
    # slower.
    count = len(replay.states)
    longest = int(replay.positions.max()) // count + 1
    grid = features.new_zeros(longest * count, features.shape[1])
    grid = grid.index_copy(0, replay.positions, features).view(longest, count, -1)
    outputs, cells = (one.contiguous()[None] for one in replay.states.chunk(2, dim=1))
    given: Tensor = layer(grid, (outputs, cells))[0]
    return given.reshape(longest * count, -1)[replay.positions]

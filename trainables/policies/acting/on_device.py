"""Acting on the device of the learning policy, with its own networks: there is no second copy.

Observations are sent once, as they are: images as bytes. Those of a fragment stay on the device, so
that the policy learns from them without sending them again. Heads and values are fetched, and
actions are drawn in numpy with the same random numbers as on the CPU. N rows, B rows of a batch, T
steps, *S the shape of an observation, A choices.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainables.envs.spaces.actions import ActionLayout
from trainables.policies.acting.actor import Acted, Actor, Weights
from trainables.policies.acting.dense import Array
from trainables.policies.acting.distributions import mask_invalid
from trainables.policies.architecture import Architecture
from trainables.policies.bounded.acting import BoundedActor
from trainables.policies.exploration.actions import EpsilonGreedyConfig, StochasticSampling
from trainables.policies.learning.sending import send_together
from trainables.policies.q.actor import Noise, QActor, QArchitecture

#: Function of observations on the device, (N, *S), that returns heads (N, H) and values (N,).
Networks = Callable[[Tensor], tuple[Tensor, Tensor]]
#: Function that runs a function of tensors by name on such tensors, and returns its results; the
#: text names the function. A captured one is launched as a whole.
Launch = Callable[
    [str, Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]], Mapping[str, Tensor]],
    Mapping[str, Tensor],
]
#: Most fragments that are kept at a time; a batch of more is sent when it is learnt from.
MOST_FRAGMENTS = 64


class DeviceObservations:
    """Keeps the observations of the latest fragments on a device, to learn from them there.

    Args:
        launch: runs networks on them; by default they are simply called.
    """

    def __init__(self, device: torch.device, launch: Launch | None = None) -> None:
        self._device = device
        self.launch: Launch = launch or _call
        """Function that runs networks on observations of always the same shape."""
        self._kept: list[tuple[Tensor, Tensor]] = []
        """Observations (T, N, *S) of each fragment: in the host's memory, and on the device."""
        self._free: list[tuple[Tensor, Tensor]] = []
        """Memory of former fragments, for new ones."""
        self._steps = 0
        """Steps of the current fragment; 0 outside fragments."""
        self._filled = 0
        """Steps of the current fragment whose observations are kept."""

    def begin(self, steps: int) -> None:
        """Begin a fragment of `steps` steps; earlier fragments are kept until `take`.

        All are forgotten if the fragment before was not filled, or `MOST_FRAGMENTS` are kept.
        """
        if self._filled < self._steps or len(self._kept) >= MOST_FRAGMENTS:
            self.clear()
        self._steps, self._filled = steps, 0

    def put(self, observations: NDArray[Any]) -> Tensor:
        """Send observations (N, *S) of the fragment's next step to the device, and keep them.

        Outside a fragment, or after its last step, they are only sent. If their shape or dtype is
        not that of the fragment, they are only sent, too, and all kept ones are forgotten. Returns
        them on the device.
        """
        if self._filled >= self._steps:  # not a step of a fragment
            self._steps = 0
            return self.send(observations)
        if not self._filled:
            self._kept.append(self._allocate(observations))
        (host, kept), row = self._kept[-1], self._filled
        if host.shape[1:] != observations.shape or host.numpy().dtype != observations.dtype:
            self.clear()
            return self.send(observations)
        host[row] = torch.from_numpy(_writable(observations))
        self._filled += 1
        kept[row].copy_(host[row], non_blocking=True)
        return kept[row]

    def send_all(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, Tensor]:
        """Send arrays by name to the device in one transfer; return them there."""
        return send_together(arrays, self._device) if arrays else {}

    def send(self, observations: NDArray[Any]) -> Tensor:
        """Send observations (N, *S) to the device without keeping them; return them there."""
        return torch.from_numpy(_writable(observations)).to(self._device)

    def take(self, rows: NDArray[Any]) -> Tensor | None:
        """Return on the device the rows (B, *S) of a batch, if they are the kept observations.

        Returns None if they are not exactly those of all kept fragments, one after the other. In
        either case all kept observations are forgotten.
        """
        kept, end = self._kept, 0
        for host, _ in kept:
            start, end = end, end + host.shape[0] * host.shape[1]
            if not np.array_equal(host.numpy().reshape(-1, *host.shape[2:]), rows[start:end]):
                end = -1
                break
        whole = bool(kept) and self._filled == self._steps and end == len(rows)
        self.clear()
        if not whole:
            return None
        found = [there.flatten(0, 1) for _, there in kept]
        return found[0] if len(found) == 1 else torch.cat(found)

    def clear(self) -> None:
        """Forget the kept observations, and end the current fragment.

        Their buffers are used again for the next fragments.
        """
        self._free += self._kept
        self._kept, self._steps, self._filled = [], 0, 0

    def _allocate(self, observations: NDArray[Any]) -> tuple[Tensor, Tensor]:
        """Return buffers (T, N, *S) for a fragment: one on the CPU, one on the device.

        `observations` (N, *S) give shape and type; former buffers are used again if they fit.
        """
        shape = (self._steps, *observations.shape)
        like = torch.from_numpy(_writable(observations)).dtype
        while self._free:
            host, there = self._free.pop()
            if host.shape == shape and host.dtype == like:
                return host, there
        pinned = self._device.type == "cuda"
        return (
            torch.empty(shape, dtype=like, pin_memory=pinned),
            torch.empty(shape, dtype=like, device=self._device),
        )


class DeviceActor(Actor):
    """An `Actor` that runs the learning policy's own networks on their device, a GPU.

    Args:
        networks: function of observations on the device (N, *S) that returns the actor's outputs
            (N, H) and the values (N,).
        frames: store of the observations that it acts on, for the learner.
    """

    def __init__(
        self,
        layout: ActionLayout,
        architecture: Architecture,
        exploration: StochasticSampling | None,
        networks: Networks,
        frames: DeviceObservations,
    ) -> None:
        super().__init__(layout, replace(architecture, filters=()), exploration)
        self._networks_there, self.frames = networks, frames

    def load(self, weights: Weights) -> None:
        """Copy the log standard deviations only; the networks are the learning policy's own."""
        self._log_std = np.array(weights.get("log_std", self._log_std))

    def weights(self) -> dict[str, Array]:
        """Return an empty dict, since the actor uses the weights of the policy."""
        return {}

    def prepare_draws(
        self, steps: int, rows: int, stream: np.random.Generator
    ) -> np.random.Generator:
        """Begin a fragment of `steps` steps, whose observations are kept on the device.

        Each step has `rows` rows. Returns the stream to pass to the calls of `act`; it may hold all
        their random numbers, drawn in advance from `stream`.
        """
        self.frames.begin(steps)
        if self.explore:
            return self.exploration.prepare_draws(steps, rows, self._log_std, stream)
        return stream

    def act(
        self, observations: NDArray[Any], memory: Array, stream: np.random.Generator | None
    ) -> Acted:
        """Choose actions as `Actor.act`; observations (N, *S) are sent by `DeviceObservations.put`.

        So those of a fragment are kept on the device. `memory` is returned unchanged.
        """
        sent = {"observations": self.frames.put(observations)}
        head, values = self._fetch(self.frames.launch("act", self._outputs, sent))
        actions, logp = self.exploration.draw(head, self._log_std, stream if self.explore else None)
        return Acted(actions, {"logp": logp, "values": values}, memory)

    def forward(self, observations: NDArray[Any]) -> tuple[Array, Array]:
        """Return the actor's outputs (N, H) and values (N,) of observations, which are not kept."""
        return self._fetch(self._outputs({"observations": self.frames.send(observations)}))

    def _outputs(self, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Run the networks on ``observations`` on the device; return ``both``, heads and values.

        They are one tensor (N, H + 1).
        """
        with torch.no_grad():
            head, values = self._networks_there(given["observations"])
            return {"both": torch.cat([head.float(), values.float()[:, None]], dim=1)}

    def _fetch(self, outputs: Mapping[str, Tensor]) -> tuple[Array, Array]:
        """Return heads (N, H) and values (N,) of `_outputs`, fetched in one transfer."""
        both = outputs["both"].cpu().numpy()
        return np.ascontiguousarray(both[:, :-1]), np.ascontiguousarray(both[:, -1])

    def _heads_each(self, observations: NDArray[Any], memory: Array) -> tuple[Array, Array]:
        """Return the actor's outputs (N, H), each row computed alone, and `memory` unchanged."""
        return np.concatenate([self.forward(one[None])[0] for one in observations]), memory


class DeviceQActor(QActor):
    """A `QActor` that runs the learning policy's own Q-network on its device, a GPU.

    Args:
        values_of: function of observations on the device (N, *S) and the factors of noisy layers
            that returns the values (N, A).
        frames: sends the observations to the device.
    """

    acts_by_row = True

    def __init__(
        self,
        layout: ActionLayout,
        architecture: QArchitecture,
        config: EpsilonGreedyConfig,
        values_of: Callable[[Tensor, Mapping[str, Tensor]], Tensor],
        frames: DeviceObservations,
    ) -> None:
        trunk = replace(architecture.trunk, filters=())
        super().__init__(layout, replace(architecture, trunk=trunk), config)
        self._architecture = architecture
        self._values_there, self._frames = values_of, frames

    def load(self, weights: Weights) -> None:
        """Do nothing, since the actor uses the weights of the policy."""

    def _values(self, observations: NDArray[Any], noise: Noise) -> Array:
        """Return the values (N, A) of filtered observations; `NO_CHOICE` for invalid choices."""
        sent = {"observations": self._frames.send(observations), **self._frames.send_all(noise)}
        q: Array = self._frames.launch("act", self._outputs, sent)["values"].cpu().numpy()
        if self._masks:
            mask_invalid(q, observations)
        return q

    def _outputs(self, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Run the network on ``observations`` and factors of noise; return ``values`` (N, A)."""
        noise = {name: one for name, one in given.items() if name != "observations"}
        with torch.no_grad():
            return {"values": self._values_there(given["observations"], noise)}


class DeviceBoundedActor(BoundedActor):
    """A `BoundedActor` that runs the learning policy's own actor network on its device, a GPU.

    Args:
        heads_of: function of observations on the device (N, D) that returns what
            `BoundedActor.forward` does, (N, …).
        frames: sends the observations to the device.
    """

    def __init__(
        self,
        layout: ActionLayout,
        architecture: Architecture,
        exploration: StochasticSampling,
        heads_of: Callable[[Tensor], Tensor],
        frames: DeviceObservations,
    ) -> None:
        super().__init__(layout, architecture, exploration)
        self._heads_there, self._frames = heads_of, frames

    def load(self, weights: Weights) -> None:
        """Copy the log standard deviations only; the network is the learning policy's own."""
        self._log_std = np.array(weights.get("actor_log_std", self._log_std))

    def weights(self) -> dict[str, Array]:
        """Return an empty dict, since the actor uses the weights of the policy."""
        return {}

    def forward(self, observations: NDArray[Any]) -> tuple[Array, Array]:
        """Return the network's outputs (N, …) for observations (N, D), and an empty array (0,)."""
        sent = {"observations": self._frames.send(observations)}
        head: Array = self._frames.launch("act", self._outputs, sent)["head"].cpu().numpy()
        return head, np.zeros(0, dtype=np.float32)

    def _outputs(self, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Run the network on ``observations`` on the device; return ``head`` (N, …)."""
        with torch.no_grad():
            return {"head": self._heads_there(given["observations"]).float()}

    def _heads_each(self, observations: NDArray[Any], memory: Array) -> tuple[Array, Array]:
        """Return the network's outputs (N, …), each row computed alone, and `memory` unchanged."""
        return np.concatenate([self.forward(one[None])[0] for one in observations]), memory


def _call(
    _: str, function: Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]], given: Any
) -> Mapping[str, Tensor]:
    """Call the function; the `Launch` of networks that are not captured."""
    return function(given)


def _writable(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array, or a copy if torch could not read it: writable and C-contiguous."""
    return np.require(array, requirements=["C", "W"])

"""Make the updates of `benchmarks.learning.updates` by Stable-Baselines3, without our packages.

    build/peers/sb3-simulators/bin/python -m benchmarks.learning.reference_updates NAME FILE

The program prints the distance of each network from ours afterwards, as JSON.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import stable_baselines3
import torch
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.type_aliases import ReplayBufferSamples, RolloutBufferSamples
from torch import Tensor, nn

#: Algorithm → settings that differ from the defaults of Stable-Baselines3.
SETTINGS: dict[str, dict[str, Any]] = {
    "sac": {"env": "Pendulum-v1", "policy_kwargs": {"net_arch": [256, 256]}},
    "td3": {"env": "Pendulum-v1", "policy_kwargs": {"net_arch": [256, 256]}},
    "dqn": {"env": "CartPole-v1"},
    "ppo": {
        "env": "Pendulum-v1",
        "n_steps": 256,
        "batch_size": 256,
        "n_epochs": 1,
        "ent_coef": 0.01,
        "normalize_advantage": False,
    },
    "a2c": {"env": "CartPole-v1", "n_steps": 256, "ent_coef": 0.01, "use_rms_prop": False},
}

#: Index of one of two critics, or rows, or None for a whole array.
Part = int | slice | None
ON_POLICY = ("ppo", "a2c")
#: Our names of the layers of a Q-network.
Q_LAYERS = ("trunk.dense.0", "head.0", "head.1")


def linear_layers(layers: nn.Module) -> list[nn.Linear]:
    """Return the linear layers of a network in order."""
    return [one for one in layers.modules() if isinstance(one, nn.Linear)]


Layers = Iterator[tuple[str, nn.Linear, Part]]
"""Iterator of (our name of a layer, the layer, its part in our array)."""


def layers_of_dqn(model: Any) -> Layers:
    """Yield the layers of DQN."""
    yield from (
        (ours, one, None) for ours, one in zip(Q_LAYERS, linear_layers(model.q_net), strict=True)
    )


def layers_of_actor_critic(model: Any) -> Layers:
    """Yield the layers of PPO or A2C."""
    policy = model.policy
    for ours, hidden, head in (
        ("actor", policy.mlp_extractor.policy_net, policy.action_net),
        ("critic", policy.mlp_extractor.value_net, policy.value_net),
    ):
        both = [*linear_layers(hidden), head]
        yield from ((f"{ours}.{i}", one, None) for i, one in enumerate(both))


def layers_of_critics(model: Any) -> Layers:
    """Yield the layers of the critics of SAC or TD3."""
    for ours, critics in (("critics", model.critic), ("targets", model.critic_target)):
        for which, network in enumerate(critics.q_networks):
            yield from ((f"{ours}.{i}", one, which) for i, one in enumerate(linear_layers(network)))


def layers_of_sac(model: Any) -> Layers:
    """Yield the layers of SAC, whose head has two layers here and one in our network."""
    yield from layers_of_critics(model)
    hidden, numbers = linear_layers(model.actor.latent_pi), model.action_space.shape[0]
    yield from ((f"actor.{i}", one, None) for i, one in enumerate(hidden))
    yield f"actor.{len(hidden)}", model.actor.mu, slice(numbers)
    yield f"actor.{len(hidden)}", model.actor.log_std, slice(numbers, None)


def layers_of_td3(model: Any) -> Layers:
    """Yield the layers of TD3."""
    yield from layers_of_critics(model)
    for ours, actor in (("actor", model.actor), ("target_actor", model.actor_target)):
        yield from ((f"{ours}.{i}", one, None) for i, one in enumerate(linear_layers(actor)))


LAYERS = {
    "ppo": layers_of_actor_critic,
    "a2c": layers_of_actor_critic,
    "sac": layers_of_sac,
    "td3": layers_of_td3,
    "dqn": layers_of_dqn,
}


def pairs(name: str, model: Any) -> Iterator[tuple[Tensor, str, Part]]:
    """Yield (parameter of the model, our name of it, its part in our array)."""
    for ours, layer, which in LAYERS[name](model):
        yield layer.weight, f"{ours}.weight", which
        yield layer.bias, f"{ours}.bias", which
    if name == "sac":
        yield model.log_ent_coef, "log_alpha", None
    if name == "ppo":
        yield model.policy.log_std, "log_std", None


def part_of(array: Any, which: Part) -> Tensor:
    """Return a part of one of our arrays in the shape of a parameter of Stable-Baselines3.

    Our arrays of two critics have their weights transposed.
    """
    tensor = torch.from_numpy(array if which is None else array[which])
    return tensor.t() if isinstance(which, int) and len(tensor) > 1 else tensor


def differences(name: str, given: Any) -> dict[str, float]:
    """Return network → its distance from ours after all updates, divided by its own movement.

    Args:
        given: arrays of `benchmarks.learning.updates`.
    """
    settings = SETTINGS[name]
    algorithm = getattr(stable_baselines3, name.upper())
    model = algorithm("MlpPolicy", gymnasium.make(settings.pop("env")), device="cpu", **settings)
    model.set_logger(Logger(None, []))
    parameters = list(pairs(name, model))
    with torch.no_grad():
        for theirs, ours, which in parameters:
            theirs.copy_(part_of(given[f"before.{ours}"], which).reshape(theirs.shape))
        if name == "dqn":
            model.q_net_target.load_state_dict(model.q_net.state_dict())
    noise = list(torch.from_numpy(given["noise"])) if "noise" in given else []
    if name == "sac":
        halves = [half for one in noise for half in one.chunk(2)]
        normal = torch.distributions.Normal
        normal.rsample = lambda self, _=None: self.mean + self.stddev * halves.pop(0)  # type: ignore[method-assign,assignment]
    if name == "td3":
        Tensor.normal_ = lambda self, _, std: self.copy_(std * noise.pop(0))  # type: ignore[method-assign,assignment,misc]
    for i in range(len(given["observations"])):
        if name in ON_POLICY:
            model.rollout_buffer = RolloutBatch(given, i)
            model._current_progress_remaining = 1.0
            model.train()
        else:
            model.replay_buffer = ReplayBatch(given, i, model.action_space)
            model.train(1, len(given["rewards"][i]))
    sums: dict[str, list[float]] = {}
    for theirs, ours, which in parameters:
        before, after = (
            part_of(given[f"{when}.{ours}"], which).reshape(theirs.shape)
            for when in ("before", "after")
        )
        distances = sums.setdefault(ours.partition(".")[0], [0.0, 0.0])
        distances[0] += float((theirs.detach() - after).double().square().sum())
        distances[1] += float((theirs.detach() - before).double().square().sum())
    return {
        network: float(np.sqrt(distances / movement))
        for network, (distances, movement) in sums.items()
    }


class RolloutBatch:
    """Rollout buffer with the rows of one batch."""

    def __init__(self, given: Any, index: int) -> None:
        self.values, self.returns = given["values"][index], given["returns"][index]
        columns = ("observations", "actions", "values", "logp", "advantages", "returns")
        tensors = {one: torch.from_numpy(np.array(given[one][index])) for one in columns}
        self.rows = RolloutBufferSamples(*tensors.values())

    def get(self, *_: Any, **__: Any) -> Iterator[RolloutBufferSamples]:
        """Yield the batch."""
        yield self.rows


class ReplayBatch:
    """Replay buffer with the rows of one batch."""

    def __init__(self, given: Any, index: int, space: Any) -> None:
        columns = {
            column: torch.from_numpy(np.array(given[column][index]))
            for column in ("observations", "actions", "new_obs", "terminated", "rewards")
        }
        actions = columns["actions"]
        if isinstance(space, gymnasium.spaces.Box):
            low, high = torch.from_numpy(space.low), torch.from_numpy(space.high)
            actions = 2.0 * (actions - low) / (high - low) - 1.0
        else:
            actions = actions[:, None]
        self.rows = ReplayBufferSamples(
            columns["observations"],
            actions,
            columns["new_obs"],
            columns["terminated"].float()[:, None],
            columns["rewards"][:, None],
        )

    def sample(self, *_: Any, **__: Any) -> ReplayBufferSamples:
        """Return the batch."""
        return self.rows


if __name__ == "__main__":
    torch.set_num_threads(1)
    with np.load(sys.argv[2]) as arrays:
        sys.stdout.write(json.dumps(differences(sys.argv[1], dict(arrays))) + "\n")

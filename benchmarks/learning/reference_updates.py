"""The updates of `benchmarks.learning.updates` by Stable-Baselines3, which imports nothing of ours.

    build/peers/sb3-simulators/bin/python -m benchmarks.learning.reference_updates NAME FILE

Prints how far each network is from ours afterwards, as JSON.
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

#: What both are given beside what is usual with Stable-Baselines3.
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


#: Which of two critics, or which rows.
Part = int | slice | None
ON_POLICY = ("ppo", "a2c")
#: Our names of a Q-network's layers.
QS = ("trunk.dense.0", "head.0", "head.1")


def linear(layers: nn.Module) -> list[nn.Linear]:
    """The linear layers of a network, in their order."""
    return [one for one in layers.modules() if isinstance(one, nn.Linear)]


Layers = Iterator[tuple[str, nn.Linear, Part]]
"""Our name of a layer, it, and which part of ours it is."""


def of_values(model: Any) -> Layers:
    """Of DQN."""
    yield from ((ours, one, None) for ours, one in zip(QS, linear(model.q_net), strict=True))


def of_actor_critic(model: Any) -> Layers:
    """Of PPO and A2C."""
    of = model.policy
    for ours, hidden, head in (
        ("actor", of.mlp_extractor.policy_net, of.action_net),
        ("critic", of.mlp_extractor.value_net, of.value_net),
    ):
        both = [*linear(hidden), head]
        yield from ((f"{ours}.{i}", one, None) for i, one in enumerate(both))


def of_twins(model: Any) -> Layers:
    """Of the critics of SAC and TD3."""
    for ours, critics in (("critics", model.critic), ("targets", model.critic_target)):
        for which, network in enumerate(critics.q_networks):
            yield from ((f"{ours}.{i}", one, which) for i, one in enumerate(linear(network)))


def of_sac(model: Any) -> Layers:
    """Of SAC, whose head is two layers here."""
    yield from of_twins(model)
    hidden, numbers = linear(model.actor.latent_pi), model.action_space.shape[0]
    yield from ((f"actor.{i}", one, None) for i, one in enumerate(hidden))
    yield f"actor.{len(hidden)}", model.actor.mu, slice(numbers)
    yield f"actor.{len(hidden)}", model.actor.log_std, slice(numbers, None)


def of_td3(model: Any) -> Layers:
    """Of TD3."""
    yield from of_twins(model)
    for ours, actor in (("actor", model.actor), ("target_actor", model.actor_target)):
        yield from ((f"{ours}.{i}", one, None) for i, one in enumerate(linear(actor)))


LAYERS = {
    "ppo": of_actor_critic,
    "a2c": of_actor_critic,
    "sac": of_sac,
    "td3": of_td3,
    "dqn": of_values,
}


def pairs(name: str, model: Any) -> Iterator[tuple[Tensor, str, Part]]:
    """Each of its parameters, our name of it, and which part of ours it is."""
    for ours, layer, which in LAYERS[name](model):
        yield layer.weight, f"{ours}.weight", which
        yield layer.bias, f"{ours}.bias", which
    if name == "sac":
        yield model.log_ent_coef, "log_alpha", None
    if name == "ppo":
        yield model.policy.log_std, "log_std", None


def part(array: Any, which: Part) -> Tensor:
    """Part of one of our arrays as a parameter of theirs: of two critics that lie side by side."""
    found = torch.from_numpy(array if which is None else array[which])
    return found.t() if isinstance(which, int) and len(found) > 1 else found


def differences(name: str, given: Any) -> dict[str, float]:
    """By network: how far it is from ours after all updates, as a share of how far it moved."""
    settings = SETTINGS[name]
    kind = getattr(stable_baselines3, name.upper())
    model = kind("MlpPolicy", gymnasium.make(settings.pop("env")), device="cpu", **settings)
    model.set_logger(Logger(None, []))
    known = list(pairs(name, model))
    with torch.no_grad():
        for theirs, ours, which in known:
            theirs.copy_(part(given[f"before.{ours}"], which).reshape(theirs.shape))
        if name == "dqn":
            model.q_net_target.load_state_dict(model.q_net.state_dict())
    noise = list(torch.from_numpy(given["noise"])) if "noise" in given else []
    if name == "sac":
        halves = [half for one in noise for half in one.chunk(2)]
        drawn = torch.distributions.Normal
        drawn.rsample = lambda self, _=None: self.mean + self.stddev * halves.pop(0)  # type: ignore[method-assign,assignment]
    if name == "td3":
        Tensor.normal_ = lambda self, _, std: self.copy_(std * noise.pop(0))  # type: ignore[method-assign,assignment,misc]
    for i in range(len(given["observations"])):
        if name in ON_POLICY:
            model.rollout_buffer = Judged(given, i)
            model._current_progress_remaining = 1.0
            model.train()
        else:
            model.replay_buffer = Batch(given, i, model.action_space)
            model.train(1, len(given["rewards"][i]))
    moved: dict[str, list[float]] = {}
    for theirs, ours, which in known:
        before, after = (
            part(given[f"{when}.{ours}"], which).reshape(theirs.shape)
            for when in ("before", "after")
        )
        apart = moved.setdefault(ours.partition(".")[0], [0.0, 0.0])
        apart[0] += float((theirs.detach() - after).double().square().sum())
        apart[1] += float((theirs.detach() - before).double().square().sum())
    return {network: float(np.sqrt(apart / way)) for network, (apart, way) in moved.items()}


class Judged:
    """Samples as one batch."""

    def __init__(self, given: Any, index: int) -> None:
        self.values, self.returns = given["values"][index], given["returns"][index]
        columns = ("observations", "actions", "values", "logp", "advantages", "returns")
        tensors = {one: torch.from_numpy(np.array(given[one][index])) for one in columns}
        self.rows = RolloutBufferSamples(*tensors.values())

    def get(self, *_: Any, **__: Any) -> Iterator[RolloutBufferSamples]:
        """The batch."""
        yield self.rows


class Batch:
    """A replay that holds one batch."""

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
        """The batch."""
        return self.rows


if __name__ == "__main__":
    torch.set_num_threads(1)
    with np.load(sys.argv[2]) as arrays:
        sys.stdout.write(json.dumps(differences(sys.argv[1], dict(arrays))) + "\n")

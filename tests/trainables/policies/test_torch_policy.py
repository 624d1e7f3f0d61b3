"""Several optimisers of one policy: each moves weights of its own, with settings of its own."""

from typing import Any

import numpy as np
import pytest
import torch

from tests.support.processes import run_python
from tests.support.trainers import differences
from trainables.policies.acting.actor import Actor
from trainables.policies.architecture import OptimizerConfig
from trainables.policies.learning.networks import Networks
from trainables.policies.learning.sending import send_together
from trainables.policies.learning.torch_policy import TorchPolicy


class Two(Networks):
    def __init__(self) -> None:
        super().__init__()
        self.actor, self.critic, self.fixed = (torch.nn.Linear(2, 1) for _ in range(3))
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.fill_(1.0)


def no_actor() -> Actor:
    raise AssertionError("nothing acts here")


def two(**more: OptimizerConfig) -> TorchPolicy:
    configs = {"actor.": OptimizerConfig(), "critic.": OptimizerConfig(betas=(0.5, 0.5)), **more}
    return TorchPolicy(Two(), no_actor, configs)


def steps(policy: TorchPolicy, count: int) -> None:
    model: Any = policy.model
    for i in range(count):
        seen = torch.tensor([[1.0, i]])
        policy.minimise(model.actor(seen).square().sum(), 0.1, None, "actor.")
        policy.minimise(model.critic(seen).square().sum(), 0.2, 1.0, "critic.")


def test_an_optimiser_moves_the_weights_of_its_part_alone() -> None:
    policy = two()
    model: Any = policy.model
    loss = (model.actor.weight + model.critic.weight).sum()
    policy.minimise(loss, 0.1, None, "critic.")
    weights = policy.model.weights()
    np.testing.assert_array_equal(weights["actor.weight"], 1.0)
    np.testing.assert_array_equal(weights["fixed.weight"], 1.0)
    assert (weights["critic.weight"] < 1.0).all()
    assert policy.get_hyperparameters("critic.").betas == (0.5, 0.5)
    assert policy.get_hyperparameters("actor.").betas == (0.9, 0.999)


def test_each_goes_on_to_the_bit() -> None:
    first, again = two(), two()
    steps(first, 3)
    steps(again, 1)
    again.set_state(first.get_state())
    steps(first, 2)
    steps(again, 2)
    assert differences(again.get_state(), first.get_state()) == []
    fresh = two().get_state()
    again.set_state(fresh)
    assert differences(again.get_state(), fresh) == []
    assert first.get_state()["optimizer"]["fixed.weight"] == {}


def test_a_state_is_read_through_views_that_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = two()
    steps(policy, 1)
    first = policy.get_state()
    with monkeypatch.context() as without:
        without.setattr(torch.Tensor, "detach", None)  # no view is made again
        before = policy.get_state()
    assert differences(before, first) == []
    steps(policy, 1)
    after = policy.get_state()
    assert differences(before, first) == []  # a copy, which no step moves
    moved = {name for name, it in after["weights"].items() if (it != before["weights"][name]).any()}
    assert moved == {"actor.weight", "actor.bias", "critic.weight", "critic.bias"}
    # The numbers of a parameter may come to lie elsewhere, and its moments be others.
    weight: Any = policy.parameters["actor.weight"]
    weight.data = torch.full_like(weight, 7.0)
    policy.moments("actor.weight")["exp_avg"] = torch.full_like(weight.data, 8.0)
    state = policy.get_state()
    np.testing.assert_array_equal(state["weights"]["actor.weight"], 7.0)
    np.testing.assert_array_equal(state["optimizer"]["actor.weight"]["exp_avg"], 8.0)


def test_a_weight_has_one_optimiser() -> None:
    with pytest.raises(ValueError, match=r"two optimisers move critic\.bias, critic\.weight"):
        two(crit=OptimizerConfig())


def test_the_first_policy_of_a_process_imports_no_compiler_of_torchs() -> None:
    code = (
        "import sys\n"
        "from trainables.algorithms.ppo import PPO\n"
        "assert 'torch' not in sys.modules\n"
        "config = {'env': 'CartPole-v1', 'rollout_fragment_length': 8, 'num_sgd_iter': 1}\n"
        "for more in ({}, {'learner': 'torch'}, {'model': {'use_lstm': True}}):\n"
        "    trainer = PPO({**config, **more})\n"
        "    trainer.train()\n"
        "    trainer.stop()\n"
        "sys.exit(', '.join({'torch._dynamo', 'sympy'} & set(sys.modules)) or 0)\n"
    )
    run_python(code)


def test_a_step_is_that_of_torchs_own_adam() -> None:
    policy = TorchPolicy(Two(), no_actor, OptimizerConfig(weight_decay=0.1))
    model: Any = policy.model
    theirs = Two()
    adam = torch.optim.Adam(
        theirs.parameters(), lr=0.1, weight_decay=0.1, eps=1e-5, betas=(0.9, 0.999), fused=True
    )
    for i in range(3):
        seen = torch.tensor([[1.0, i]])
        policy.minimise(model.actor(seen).square().sum(), 0.1, None)
        adam.zero_grad()
        theirs.actor(seen).square().sum().backward()
        adam.step()
    for name, parameter in theirs.named_parameters():
        np.testing.assert_array_equal(policy.model.weights()[name], parameter.detach().numpy())
        kept = adam.state[parameter]
        assert policy.moments(name).keys() == kept.keys()
        assert all(torch.equal(kept[moment], policy.moments(name)[moment]) for moment in kept)


def test_columns_that_are_sent_together_arrive_as_they_are() -> None:
    stream = np.random.default_rng(0)
    columns: dict[str, Any] = {
        "flags": stream.random(5) < 0.5,
        "pictures": stream.integers(0, 256, (3, 2, 7), np.uint8),
        "turned": stream.standard_normal((4, 3)).T,
        "choices": stream.integers(0, 9, 3),
        "none": np.zeros((0, 4), np.float32),
        "number": np.float32(1.5).reshape(()),
    }
    found = send_together(columns, torch.device("cpu"))
    assert list(found) == list(columns)
    for name, one in columns.items():
        assert found[name].numpy().dtype == one.dtype
        np.testing.assert_array_equal(found[name].numpy(), one)
    assert send_together({}, torch.device("cpu")) == {}

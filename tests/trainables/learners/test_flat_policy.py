"""Policies that learn without torch: the same weights, and the same policy in torch when asked."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.processes import run_python
from tests.support.trainers import differences, make, run
from tests.trainables.algorithms.test_ppo import sampled
from trainables.core.torch_import import when_torch_imported
from trainables.envs.spaces.actions import ActionLayout
from trainables.learners.fused.initial import Normals, orthogonal
from trainables.learners.fused.policy import FlatPolicy
from trainables.policies.architecture import Architecture, OptimizerConfig
from trainables.policies.learning.torch_policy import build_policy

SEEDS = (0, 1, 2**32 + 5, 2**63 - 1)
LAYOUTS = {"discrete": ActionLayout((3,), scalar=True), "mixed": ActionLayout((2, 0, 3, 0))}
#: Trains, saves, restores and evaluates; prints whether torch was imported.
ALONE = """
import sys
from trainables.algorithms.{module} import {name}
settings = {{"env": {env!r}, "evaluation_interval": 1, "evaluation_num_episodes": 1}}
trainer = {name}(settings)
trainer.train()
path = trainer.save({folder!r})
trainer.train()
trainer.restore(path)
trainer.train()
trainer.compute_action(trainer.get_policy().observation_space.sample())
trainer.stop()
print("torch" in sys.modules)
"""


def policy(layout: ActionLayout, seed: int = 3, **more: Any) -> FlatPolicy:
    return FlatPolicy((layout, Architecture((5,), (), (7, 6), "tanh", **more)), ADAM, seed)


ADAM = OptimizerConfig()


# ---- initial weights ---------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_numbers_are_those_that_torch_draws(seed: int) -> None:
    stream, normals = torch.Generator().manual_seed(seed), Normals(seed)
    for count in (64, 17, 16, 5, 3, 31, 2, 100, 1, 1, 4096):
        expected = torch.empty(count).normal_(generator=stream)
        np.testing.assert_allclose(normals.draw(count), expected, rtol=0, atol=5e-6)


@pytest.mark.parametrize("shape", [(64, 4), (2, 64), (1, 64), (64, 64), (3, 2), (1, 3), (256, 128)])
def test_matrices_are_those_of_torchs_orthogonal_initialisation(shape: tuple[int, int]) -> None:
    for seed in SEEDS:
        expected = torch.nn.init.orthogonal_(
            torch.empty(shape), 1.4, torch.Generator().manual_seed(seed)
        )
        found = orthogonal(shape, 1.4, Normals(seed))
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("more", [{}, {"masks": 3}, {"log_std_init": -0.5}])
def test_a_policy_begins_with_the_weights_that_it_has_in_torch(
    layout: str, more: dict[str, Any]
) -> None:
    if layout != "discrete":
        more = {key: one for key, one in more.items() if key != "masks"}
    flat = policy(LAYOUTS[layout], **more)
    made = build_policy((flat.layout, flat.architecture), ADAM, 3)
    found, expected = flat.weights(), made.weights()
    assert list(found) == list(expected)
    for name, weight in expected.items():
        np.testing.assert_allclose(found[name], weight, rtol=0, atol=2e-5)
    assert flat.get_state().keys() == made.get_state().keys()
    assert flat.kept_moments() == made.kept_moments() == {name: {} for name in expected}


# ---- without torch -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "env"), [("PPO", "CartPole-v1"), ("A2C", "CartPole-v1"), ("PPO", "Pendulum-v1")]
)
def test_a_trainer_of_perceptrons_never_imports_torch(name: str, env: str, tmp_path: Any) -> None:
    asked = ALONE.format(module=name.lower(), name=name, env=env, folder=str(tmp_path))
    assert run_python(asked).split()[-1] == "False"


def test_what_waits_for_torch_is_done_once_it_is_imported_the_latest_of_a_name() -> None:
    told = (
        "from trainables.core.torch_import import when_torch_imported\n"
        "for name, number in (('a', 1), ('b', 2), ('a', 3)):\n"
        "    when_torch_imported(name, lambda torch, n=number: print(n, torch.__name__))\n"
        "print('before')\n"
        "import torch\n"
        "when_torch_imported('a', lambda torch: print(4, torch.__name__))\n"
    )
    ran = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["before", "3 torch", "2 torch", "4 torch"]
    seen: list[Any] = []
    when_torch_imported("a", seen.append)
    assert seen == [torch]


def test_torch_gets_its_threads_when_it_is_imported_after_the_trainer_was_made() -> None:
    asked = (
        "from trainables.algorithms.ppo import PPO\n"
        "import sys\n"
        "trainer = PPO({'env': 'CartPole-v1'})\n"
        "print('torch' in sys.modules)\n"
        "trainer.policy.in_torch()\n"
        "import torch\n"
        "print(torch.get_num_threads(), torch.initial_seed() == trainer_seed(trainer))\n"
    )
    seed = (
        "from trainables.core import rng\n"
        "def trainer_seed(trainer): return rng.integer(trainer.seed, 'global', 'torch')\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", seed + asked], capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == ["False", "1", "True"]


# ---- the same policy in torch ------------------------------------------------------------------


def test_what_one_of_the_two_learns_the_other_has_learnt() -> None:
    trainer = make({"learner": "fused"})
    run(trainer, 1)
    flat = trainer.policy
    assert isinstance(flat, FlatPolicy)
    twin = flat.in_torch()
    assert twin is flat.in_torch()
    batch = sampled(trainer)
    for step in (lambda: run(trainer, 1), lambda: trainer.learn_on_batch(batch)):
        before = flat.weights()
        step()
        assert differences(before, flat.weights()) != []
        assert differences(flat.get_state(), twin.get_state()) == []
        assert differences(flat.gradients(), twin.gradients()) == []
    state = flat.get_state()
    run(trainer, 1)
    flat.set_state(state)
    assert differences(twin.get_state(), state) == []
    twin.load_weights({name: 2 * one for name, one in state["weights"].items()})
    np.testing.assert_array_equal(
        trainer.get_weights()["default_policy"]["actor.0.bias"],
        2 * state["weights"]["actor.0.bias"],
    )
    trainer.stop()


def test_to_be_asked_for_in_torch_changes_no_bit_of_the_course() -> None:
    plain, asked = make({"learner": "fused"}), make({"learner": "fused"})
    for trainer in (plain, asked):
        run(trainer, 1)
    asked.policy.in_torch()
    for trainer in (plain, asked):
        run(trainer, 2)
    assert differences(plain.policy.get_state(), asked.policy.get_state()) == []
    assert differences(plain.policy.gradients(), asked.policy.gradients()) == []
    for trainer in (plain, asked):
        trainer.stop()


def test_moments_of_some_weights_are_taken_over_and_those_of_others_are_at_rest() -> None:
    flat = policy(LAYOUTS["mixed"])
    partly = build_policy((flat.layout, flat.architecture), ADAM, 4)
    partly.apply_gradients({"critic.0.bias": np.ones(7, dtype=np.float32)}, 1e-3, None)
    state = partly.get_state()
    flat.set_state(state)
    assert differences(flat.weights(), state["weights"]) == []
    kept = flat.kept_moments()
    assert differences(kept["critic.0.bias"], state["optimizer"]["critic.0.bias"]) == []
    assert state["optimizer"]["actor.0.bias"] == {}
    assert not any(one.any() for one in kept["actor.0.bias"].values())


@pytest.mark.parametrize(
    ("part", "says"),
    [
        ({"weights": {}}, "weights: the state belongs to another policy"),
        ({"optimizer": {}}, "optimizer: the state belongs to another policy"),
    ],
)
def test_the_state_of_another_policy_is_refused_and_changes_nothing(
    part: dict[str, Any], says: str
) -> None:
    flat = policy(LAYOUTS["discrete"])
    before = flat.get_state()
    other = policy(LAYOUTS["discrete"], seed=4).get_state()
    with pytest.raises(ValueError, match=says):
        flat.set_state({**other, **part})
    wide = {**other["weights"], "actor.0.bias": np.zeros(8, dtype=np.float32)}
    with pytest.raises(
        ValueError, match=r"actor\.0\.bias has the shape \(8,\); expected \(7,\) of float32"
    ):
        flat.set_state({**other, "weights": wide})
    double = {**other["weights"], "actor.0.bias": np.zeros(7)}
    with pytest.raises(ValueError, match=r"actor\.0\.bias"):
        flat.set_state({**other, "weights": double})
    squares = {name: {"square_avg": weight} for name, weight in other["weights"].items()}
    with pytest.raises(ValueError, match="expected step, exp_avg, exp_avg_sq"):
        flat.set_state({**other, "optimizer": squares})
    assert differences(flat.get_state(), before) == []

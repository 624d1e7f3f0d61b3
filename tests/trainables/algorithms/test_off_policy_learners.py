"""The setting `learner` of SAC, TD3 and IQL: one course by either, exact after a restore."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.trainers import differences, final_state, stable
from tests.trainables.algorithms.test_off_policy_losses import ROWS, SMALL, batch, in_doubles
from trainables.algorithms import iql, sac, td3
from trainables.algorithms.iql import IQL
from trainables.algorithms.sac import SAC
from trainables.algorithms.td3 import TD3
from trainables.errors import ConfigError
from trainables.trainable import TrialContext

Trained = SAC | TD3
#: Name → algorithm and settings.
KINDS: dict[str, tuple[type[Trained], dict[str, Any]]] = {
    "sac": (SAC, {}),
    "sac of choices": (SAC, {"env": "CartPole-v1"}),
    "sac with gsde": (SAC, {"exploration_config": {"type": "StateDependentNoise"}}),
    "sac with gsde of what is seen": (
        SAC,
        {"exploration_config": {"type": "StateDependentNoise"}, "model": {"hidden": []}},
    ),
    "td3": (TD3, {"grad_clip": 0.5}),
}
FEW: dict[str, Any] = {"timesteps_per_iteration": 8, "replay_batch_size": 16}


def make(kind: str, **config: Any) -> Trained:
    cls, own = KINDS[kind]
    return cls({"env": "Pendulum-v1", **SMALL, **own, **config}, TrialContext(seed=5))


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# ---- what auto means -------------------------------------------------------------------------


@pytest.mark.parametrize("of", [SAC, TD3])
def test_a_new_trial_is_fused_unless_something_needs_torch(
    of: type[Trained], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    config = {"env": "Pendulum-v1"}
    assert of.settle_config(config)["learner"] == "fused"
    for key, value in (("num_gpus", 1), ("learner_compile", True)):
        assert of.settle_config({**config, key: value})["learner"] == "torch"
        why = rf"learner: fused cannot be used, because {key} is .*; set it to auto or torch"
        with pytest.raises(ConfigError, match=why):
            of.check_config({**config, key: value, "learner": "fused"})
    assert "learner" not in of.settle_config({**config, "learner": "torch"})


def test_policies_that_would_have_different_learners_all_learn_in_torch() -> None:
    env = {"env": "tests.support.agents:Targets"}
    for own, learner in ((None, "fused"), ({"learner_compile": True}, "torch")):
        agents = {"policies": {"left": own, "right": None, "brief": None}}
        assert SAC.settle_config({**env, "multiagent": agents})["learner"] == learner


# ---- one course ------------------------------------------------------------------------------


def test_an_update_by_either_learner_is_the_same(kind: str) -> None:
    rows, found = batch("CartPole-v1" if "choices" in kind else "Pendulum-v1"), {}
    for learner in ("fused", "torch"):
        trainer = make(kind, learner=learner)
        statistics = [trainer.update(rows) for _ in range(2)]
        found[learner] = trainer.policy.model.weights(), statistics[0]
        trainer.stop()
    for name, expected in found["fused"][0].items():
        np.testing.assert_allclose(found["torch"][0][name], expected, rtol=0, atol=1e-5)
    for name, value in found["fused"][1].items():
        assert found["torch"][1][name] == pytest.approx(value, rel=1e-4, abs=1e-6), name


@pytest.mark.parametrize("learner", ["fused", "torch"])
@pytest.mark.parametrize("kind", ["sac", "td3"])
def test_an_action_beyond_the_bounds_is_valued_as_what_was_done(kind: str, learner: str) -> None:
    """Files hold what a policy chose; the environment got it clipped."""
    rows, found = batch("Pendulum-v1"), []
    chosen = 2 * rows["actions"]
    for actions in (chosen, chosen.clip(-2, 2)):
        trainer = make(kind, learner=learner)
        trainer.update({**rows, "actions": actions})
        found.append(trainer.policy.model.weights())
        trainer.stop()
    assert differences(found[0], found[1]) == []


def test_twenty_iterations_by_either_learner_are_the_same_in_float64(kind: str) -> None:
    found = []
    for learner in ("fused", "torch"):
        trainer = make(kind, learner=learner, **FEW)
        in_doubles(trainer)
        for _ in range(20):
            learnt = trainer.train()["learner"]
        assert np.isfinite(list(learnt.values())).all()
        found.append(trainer.policy.model.weights())
        trainer.stop()
    for name, expected in found[0].items():
        assert expected.dtype == np.float64
        np.testing.assert_allclose(found[1][name], expected, rtol=0, atol=1e-6)


def test_what_learns_in_torch_goes_on_to_the_bit_and_by_the_other_learner(
    kind: str, tmp_path: Path
) -> None:
    first = make(kind, learner="torch", **FEW)
    for _ in range(3):
        first.train()
    path = first.save(tmp_path)
    again, other = make(kind, learner="torch", **FEW), make(kind, learner="fused", **FEW)
    for trainer in (again, other):
        trainer.train()  # a learner that has begun goes on with what it is given
        trainer.restore(path)
    expected = [stable(first.train()) for _ in range(3)]
    assert differences([stable(again.train()) for _ in range(3)], expected) == []
    assert differences(final_state(again), final_state(first)) == []
    for _ in range(3):
        other.train()
    assert other.config["learner"] == "fused"
    weights = first.policy.model.weights()
    for name, one in other.policy.model.weights().items():
        np.testing.assert_allclose(one, weights[name], rtol=0, atol=1e-4)
    for trainer in (first, again, other):
        trainer.stop()


def test_a_trainer_goes_on_with_the_learner_of_its_checkpoint() -> None:
    """One that has learnt by torch takes up a fused one, one of its own, and both again."""
    fused = make("td3", learner="fused", **FEW)
    fused.train()
    before = fused.get_state()
    fused.train()
    trainer = make("td3", learner="auto", **FEW)
    trainer._settle(
        {**{key: trainer.config[key] for key in trainer.auto_settings}, "learner": "torch"}
    )
    trainer.train()
    own = trainer.get_state()
    trainer.train()
    expected = trainer.policy.model.weights()
    for state, weights in ((before, fused.policy.model.weights()), (own, expected)) * 2:
        trainer.set_state(state)
        trainer.train()
        assert differences(trainer.policy.model.weights(), weights) == []
    for one in (fused, trainer):
        one.stop()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler uses torch's old parts
@pytest.mark.parametrize("of", [SAC, pytest.param(TD3, marks=pytest.mark.proof), IQL])
def test_compiled_learners_learn_the_same(
    of: type[SAC | TD3 | IQL], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Traced in one piece, with its gradient; C++, which takes a minute, is made of PPO's loss."""
    made: list[str] = []

    def traced(loss: Any) -> Any:
        made.append(loss.__name__)
        return torch.compile(loss, backend="aot_eager", fullgraph=True, dynamic=True)

    rows, found = batch("Pendulum-v1"), []
    for module in (sac, td3, iql):
        monkeypatch.setattr(module, "compile_loss", traced)
    for config in ({"learner": "torch"}, {"learner_compile": True}):
        trainer = of({"env": "Pendulum-v1", **SMALL, **config}, TrialContext(seed=5))
        assert trainer.settings.learner == "torch"
        for _ in range(2):
            trainer.update(rows)
        found.append(trainer.policy.model.weights())
        trainer.stop()
    assert made == (["losses"] if of is IQL else ["critic_loss", "actor_loss"])
    for name, one in found[0].items():
        np.testing.assert_allclose(found[1][name], one, rtol=0, atol=1e-5)


# ---- on a GPU --------------------------------------------------------------------------------


def test_losses_keep_to_the_memory_that_the_policy_learns_in(kind: str) -> None:
    """Meta tensors have no numbers, and torch mixes them with no others, as with a GPU's."""
    trainer, rows = make(kind, learner="torch"), batch("")
    on = {name: torch.from_numpy(one).to("meta") for name, one in rows.items()}
    model = trainer.policy.model.to("meta")
    if model.limits is None:
        on = {name: torch.from_numpy(one).to("meta") for name, one in batch("CartPole-v1").items()}
    losses: list[torch.Tensor] = []
    if isinstance(trainer, TD3):
        on["noise"] = torch.zeros(model.noise_shape(ROWS), device="meta")
        losses = [td3.critic_loss(model, on, 0.9, (0.2, 0.5))[0]]
        losses.append(td3.actor_loss(model, on["observations"]))
    else:
        on["alpha"] = torch.ones(1, device="meta")
        if model.limits is not None:
            noise = torch.zeros(model.noise_shape(ROWS), device="meta")
            on |= {"noise": noise, "next_noise": noise}
        losses = [sac.critic_loss(model, on, 0.9)[0], sac.actor_loss(model, on)[0]]
    torch.autograd.backward(torch.stack(losses).sum())
    assert {loss.device.type for loss in losses} == {"meta"}
    grads = [p.grad for name, p in model.named_parameters() if name.startswith("critics")]
    assert {grad.device.type for grad in grads if grad is not None} == {"meta"}
    trainer.stop()

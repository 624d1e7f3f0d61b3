"""``learner_compile``: torch compiles the loss; the numbers stay the same up to rounding."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.trainers import PLAIN, differences, run
from trainables.algorithms.a2c import A2C
from trainables.algorithms.ppo import PPO
from trainables.errors import ConfigError
from trainables.learners.torch_learner import TorchLearner
from trainables.trainable import TrialContext

CONFIG: dict[str, Any] = {**PLAIN, "lr_schedule": "constant", "schedule_timesteps": None}


def made(config: dict[str, Any]) -> PPO:
    return PPO({**CONFIG, **config}, TrialContext(seed=7))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler uses torch's old parts
def test_what_is_compiled_learns_the_same_and_goes_on_to_the_bit(tmp_path: Path) -> None:
    eager, compiled = made({"learner": "torch"}), made({"learner_compile": True})
    assert compiled.settings.learner == "torch"
    for trainer in (eager, compiled):
        trainer.train()
    learner = compiled.learner
    assert isinstance(learner, TorchLearner)
    assert hasattr(learner.loss, "_torchdynamo_orig_callable")
    weights = compiled.policy.model.weights()
    for name, weight in eager.policy.model.weights().items():
        np.testing.assert_allclose(weights[name], weight, atol=1e-5)
    path = compiled.save(tmp_path)
    expected = run(compiled, 2)
    torch._dynamo.reset()  # compiled anew, as in another process
    again = made({"learner_compile": True})
    again.restore(path)
    assert differences(run(again, 2), expected) == []
    for trainer in (eager, compiled, again):
        trainer.stop()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"learner": "fused"}, "learner: fused .*learner_compile is true"),
        ({"model": {"use_lstm": True}}, "model.use_lstm: true cannot be used with learner_compile"),
        ({"entropy_coeff_schedule": [[0, 0.1], [9, 0.0]]}, "entropy_coeff_schedule.*constant"),
    ],
)
@pytest.mark.parametrize("of", [PPO, A2C])
def test_what_cannot_be_compiled_once_is_refused(
    of: type[PPO | A2C], config: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        of.check_config({"env": "CartPole-v1", "learner_compile": True, **config})


def test_without_a_compiler_it_is_refused_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(ConfigError, match=r"learner_compile: true .*no C\+\+ compiler; install"):
        PPO.check_config({"env": "CartPole-v1", "learner_compile": True})

"""Which errors are those of a device, and not of what it computes."""

from typing import Any

import pytest
import torch

from tests.support.stand_in import as_accelerator
from trainables.algorithms.dqn import DQN
from trainables.algorithms.ppo import PPO
from trainables.core import devices
from trainables.core.devices import device_error, device_name
from trainables.errors import DeviceError, DeviceLost, DeviceOutOfMemory, TrainableError
from trainables.policies.learning.torch_policy import TorchPolicy
from trainables.trainer.trainer import Trainer


class JaxRuntimeError(RuntimeError):
    """Named as the error of JAX is."""


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (JaxRuntimeError("INTERNAL: CUDA_ERROR_LAUNCH_FAILED"), DeviceLost),
        (JaxRuntimeError("UNAVAILABLE: no such device"), DeviceLost),
        (JaxRuntimeError("DATA_LOSS: uncorrectable"), DeviceLost),
        (RuntimeError("Unable to initialize backend 'cuda': none"), DeviceLost),
        (JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory"), DeviceOutOfMemory),
        (JaxRuntimeError("INTERNAL: failed: CUDA_ERROR_OUT_OF_MEMORY"), DeviceOutOfMemory),
        (JaxRuntimeError("INTERNAL: CpuCallback error: ValueError: odd"), type(None)),
        (JaxRuntimeError("INVALID_ARGUMENT: shapes differ"), type(None)),
        (RuntimeError("INTERNAL: somebody else's"), type(None)),
        (ValueError("RESOURCE_EXHAUSTED: Out of memory"), type(None)),
    ],
)
def test_an_error_is_of_the_device_by_its_status(error: Exception, kind: type) -> None:
    assert type(device_error(error)) is kind


def test_the_first_line_of_an_error_of_the_device_is_told_whatever_was_raised_of_it() -> None:
    def fail() -> None:
        try:
            raise JaxRuntimeError("INTERNAL: it is\tgone\nStack trace: …")
        except RuntimeError as error:
            raise ValueError("no checkpoint can be made") from error

    with pytest.raises(ValueError, match="no checkpoint") as raised:
        fail()
    found = device_error(raised.value)
    assert isinstance(found, DeviceError)
    assert str(found) == "INTERNAL: it is\\tgone"
    assert device_error(found) is found


def test_what_jax_raises_is_named_as_expected() -> None:
    jax = pytest.importorskip("jax")
    found = device_error(jax.errors.JaxRuntimeError("INTERNAL: it is gone"))
    assert isinstance(found, DeviceLost)
    assert device_name()


# ---- several trials on one GPU ------------------------------------------------------------------


def test_torch_is_told_the_trials_share_of_the_memory_before_it_needs_any(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    as_accelerator(monkeypatch)
    told: list[str] = []
    made = PPO.make_policy
    monkeypatch.setattr(devices, "limit_memory", lambda share: told.append(f"share {share}"))
    monkeypatch.setattr(PPO, "make_policy", lambda *of: told.append("policy") or made(*of))  # type: ignore[func-returns-value]
    for share in (0.25, 1, 0):
        PPO({"env": "CartPole-v1", "num_gpus": share}).stop()
    assert told == ["share 0.25", "policy", "share 1.0", "policy", "policy"]


def test_a_share_is_a_limit_of_cuda_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", limits.append)
    for device in ("cuda", "cpu", ""):
        monkeypatch.setattr(devices, "accelerator", lambda device=device: device)
        devices.limit_memory(0.25)
    assert limits == [0.25]


def _too_much(*_: Any, **__: Any) -> Any:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nmore lines")


@pytest.mark.parametrize(
    ("cls", "advice"),
    [
        (PPO, "lower sgd_minibatch_size or train_batch_size, or raise num_gpus, and"),
        (
            DQN,
            "lower train_batch_size or replay_batch_size or buffer_size, or set replay_on to cpu",
        ),
    ],
)
@pytest.mark.parametrize("where", ["setup", "step", "restore"])
def test_a_trial_that_exceeds_its_share_fails_and_says_what_to_change(
    cls: type[Trainer], advice: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_accelerator(monkeypatch)
    config = {"env": "CartPole-v1", "num_gpus": 0.25, "model": {"hidden": [8]}}
    trainer = cls(config)
    state = trainer.get_state()
    with monkeypatch.context() as patched, pytest.raises(TrainableError) as raised:
        if where == "setup":
            patched.setattr(TorchPolicy, "__init__", _too_much)
            cls(config)
        elif where == "step":
            patched.setattr(cls, "training_step", _too_much)
            trainer.train()
        else:
            patched.setattr(TorchPolicy, "set_state", _too_much)
            trainer.set_state(state)
    said = str(raised.value)
    assert said.startswith("the trial needs more memory than num_gpus: 0.25 gives it, 0.25 GB of")
    assert "CUDA out of memory. Tried to allocate 2.00 GiB.; " in said
    assert advice in said
    assert not isinstance(raised.value, DeviceError)  # it concerns no other trial
    trainer.stop()


def test_other_errors_stay_as_they_are() -> None:
    with pytest.raises(RuntimeError, match=r"^no memory$"), devices.advice_on_memory(1, ()):
        raise RuntimeError("no memory")

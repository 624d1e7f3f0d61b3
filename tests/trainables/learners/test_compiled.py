"""The kernel in C: chosen where it is built, exact to the bit, and never replaced unasked."""

import ctypes
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sweep
from sweep.history.events import OtherKernelAllowed, Status
from sweep.ledger.ledger import Ledger
from tests.support.kernels import kernel
from tests.support.trainers import PLAIN, differences, final_state, make, run
from tests.trainables.learners import test_fused as fused
from trainables.algorithms.ppo import PPO, STATS, fused_options
from trainables.envs.spaces.actions import ActionLayout
from trainables.errors import ConfigError
from trainables.learners.fused import compiled
from trainables.policies.architecture import Architecture
from trainables.trainable import TrialContext
from trainables.trainer.families.actor_critic import COMPILED

CONTEXT = TrialContext(seed=7, has_settled_config=True)


def here(monkeypatch: pytest.MonkeyPatch, found: compiled.Kernel | None) -> None:
    """What is built on this machine."""
    monkeypatch.setattr(compiled, "built", lambda: found)


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> compiled.Kernel:
    found = kernel()
    here(monkeypatch, found)
    return found


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def saved_by(trainer: PPO, folder: Path) -> tuple[str, dict[str, Any]]:
    path = trainer.save(str(folder))
    return str(path), trainer.save_checkpoint("")


# ---- the kernel --------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", fused.LAYOUTS.values(), ids=fused.LAYOUTS)
@pytest.mark.parametrize("hidden", [(), (8,), (33, 20, 4), (64, 64)])
def test_both_widths_of_registers_give_the_same_bits(
    layout: ActionLayout, hidden: tuple[int, ...]
) -> None:
    found = []
    of = fused.settings(entropy_coeff=0.01, vf_clip_param=0.5)
    for bits in (256, 512):
        policy = fused.make_policy(layout, hidden, dtype=torch.float32)
        learner = compiled.CompiledLearner(policy, fused_options(of), STATS, kernel=kernel(bits))
        fused.learn(learner, fused.batch_of(layout, 101, kind=np.float32), of)
        found.append(policy.get_state())
    assert differences(found[0], found[1]) == []


def test_a_kernel_of_another_source_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel()
    fields = (*compiled.Problem._fields_, ("more", ctypes.c_long))
    other = type("Problem", (ctypes.Structure,), {"_fields_": fields})
    path = Path(kernel().library._name)
    monkeypatch.setattr(compiled, "Problem", other)
    with pytest.raises(OSError, match="rebuild it with make kernels"):
        compiled.Kernel(path)


def test_networks_for_which_it_has_no_room_are_left_to_numpy() -> None:
    deep = Architecture((4,), (), (8,) * 17, "tanh")
    flat = Architecture((4,), (), (8,), "tanh")
    assert "16 layers" in compiled.find_reason_for_numpy(ActionLayout((2,), scalar=True), deep)
    assert "64 columns" in compiled.find_reason_for_numpy(ActionLayout((2,) * 65), flat)
    assert compiled.find_reason_for_numpy(ActionLayout((2,) * 64), flat) == ""


def test_a_compiler_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel()
    with pytest.raises(RuntimeError, match="-no-such-option"):
        compiled.build(tmp_path / "kernel.so", "-no-such-option")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="no C compiler is installed"):
        compiled.build(tmp_path / "kernel.so")
    assert list(tmp_path.iterdir()) == []


# ---- a trainer -------------------------------------------------------------------------------


def test_auto_is_the_kernel_where_it_is_built_and_numpy_elsewhere(
    built: compiled.Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (make().settings.learner, make().kernel) == (COMPILED, built.name)
    here(monkeypatch, None)
    assert (make().settings.learner, make().kernel) == ("fused", "numpy")


def test_a_checkpoint_names_its_kernel_and_goes_on_to_the_bit(
    built: compiled.Kernel, tmp_path: Path
) -> None:
    straight = make()
    run(straight, 2)
    path, state = saved_by(straight, tmp_path)
    assert state["kernel"] == built.name
    run(straight, 2)
    restored = make()
    run(restored, 1)
    restored.restore(path)
    run(restored, 2)
    assert differences(final_state(restored), final_state(straight)) == []
    assert restored.exactness == straight.exactness


def test_numpy_names_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    here(monkeypatch, None)
    assert "kernel" not in make().save_checkpoint("")


def test_without_the_kernel_a_trial_is_refused_in_one_line(
    built: compiled.Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = make().save_checkpoint("")
    here(monkeypatch, None)
    with pytest.raises(
        ConfigError, match=r"build that kernel with make kernels.*--other-kernel"
    ) as refused:
        PPO({**make().config, "learner": COMPILED}, CONTEXT)
    assert "\n" not in str(refused.value)
    other = make({"learner": "fused"})
    with pytest.raises(ConfigError, match=f"kernel {built.name}, but the kernel here is numpy"):
        other.load_checkpoint(state)


def test_another_kernel_goes_on_if_it_is_asked_to_and_the_curve_says_so(
    built: compiled.Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make()
    run(first, 1)
    state = first.save_checkpoint("")
    here(monkeypatch, None)
    allowed = replace(CONTEXT, allows_other_kernel=True)
    second = PPO({**first.config, "learner": COMPILED}, allowed)
    second.load_checkpoint(state)
    run(second, 1)
    assert f"kernel numpy (saved with {built.name})" in second.exactness
    again = second.save_checkpoint("")
    assert again["kernel"] == "numpy"
    here(monkeypatch, built)
    third = PPO({**first.config, "learner": COMPILED}, allowed)
    third.load_checkpoint(again)
    assert f"kernel {built.name} (saved with numpy)" in third.exactness


def test_a_checkpoint_that_is_restored_by_hand_goes_on_and_says_so(
    built: compiled.Kernel,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    first = make()
    run(first, 1)
    path, _ = saved_by(first, tmp_path)
    here(monkeypatch, None)
    second = make()
    with caplog.at_level(logging.WARNING):
        second.restore(path)
    run(second, 1)
    assert f"kernel numpy (saved with {built.name})" in second.exactness
    assert "the curve is no longer exact" in caplog.text


def test_a_checkpoint_of_numpy_is_learnt_from_in_numpy(
    built: compiled.Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    here(monkeypatch, None)
    straight = make()
    run(straight, 1)
    state = straight.save_checkpoint("")
    run(straight, 1)
    here(monkeypatch, built)
    restored = make()
    run(restored, 1)  # it has learnt with the kernel
    restored.load_checkpoint(state)
    run(restored, 1)
    expected, found = (one.policy.get_state() for one in (straight, restored))
    assert differences(found, expected) == []


AGENTS: dict[str, Any] = {
    "env": "tests.support.agents:Targets",
    "env_level": "A",
    "multiagent": {"policies": {"left": {"lr": 1e-3}, "right": None, "brief": None}},
    "num_envs_per_worker": 2,
    "rollout_fragment_length": 11,
    "sgd_minibatch_size": 16,
}


@pytest.mark.parametrize("by_hand", [False, True])
def test_several_policies_that_go_on_with_another_kernel_say_so_together(
    by_hand: bool,
    built: compiled.Kernel,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    first = PPO(AGENTS)
    first.train()
    path, state = saved_by(first, tmp_path)
    here(monkeypatch, None)
    with caplog.at_level(logging.WARNING):
        if by_hand:
            second = PPO(AGENTS)
            second.restore(path)
        else:
            allowed = replace(CONTEXT, allows_other_kernel=True)
            second = PPO({**AGENTS, "learner": COMPILED}, allowed)
            second.load_checkpoint(state)
    assert "the curve is no longer exact" in caplog.text
    why = f"kernel numpy (saved with {built.name})"
    assert second.exactness.startswith("D")
    assert second.exactness.count(why) == 1
    assert why in second.train()["exactness"]
    assert why in second.save_checkpoint("")["inexact"]


def test_policies_that_began_in_numpy_go_on_in_numpy(
    built: compiled.Kernel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here(monkeypatch, None)
    first = PPO(AGENTS)
    first.train()
    path, _ = saved_by(first, tmp_path)
    here(monkeypatch, built)
    second = PPO(AGENTS)
    second.restore(path)
    first.train()
    assert "exactness" not in second.train()
    assert differences(second.get_weights(), first.get_weights()) == []


def test_a_kernel_that_is_asked_for_says_that_a_checkpoint_had_none(
    built: compiled.Kernel, tmp_path: Path
) -> None:
    for learner, several in (("fused", {}), ("torch", {}), ("fused", AGENTS)):
        first = PPO({**PLAIN, **several, "learner": learner})
        path, _ = saved_by(first, tmp_path)
        second = PPO({**PLAIN, **several, "learner": COMPILED})
        second.restore(path)
        was = "torch" if learner == "torch" else "numpy"
        assert f"kernel {built.name} (saved with {was})" in second.exactness
        assert "exactness" in second.train()


# ---- a sweep -----------------------------------------------------------------------------------


def test_a_sweep_goes_on_without_its_kernel_only_if_it_is_asked_to_and_records_that(
    built: compiled.Kernel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keys: dict[str, Any] = {"root": tmp_path, "pool": "inline", "progress": False}
    sweep.run(
        "ppo",
        name="demo",
        trials=1,
        trackers=[],
        metric="episode_reward_mean",
        mode="max",
        config={"env": "CartPole-v1", "train_batch_size": 64, "num_sgd_iter": 1},
        space={"lr": {"loguniform": [1e-4, 1e-2]}},
        stop={"training_iteration": 1},
        limits={"max_failures": 0},
        **keys,
    )
    here(monkeypatch, None)
    refused = sweep.resume("demo", trials=2, **keys)
    assert [one.status for one in refused.trials] == ["COMPLETED", "FAILED"]
    assert "--other-kernel" in refused.trials[1].error
    assert asked(tmp_path) == []
    for trials in (3, 4):  # the second time it is known
        done = sweep.resume("demo", trials=trials, retry_failed=True, other_kernel=True, **keys)
    assert {one.status for one in done.trials} == {Status.COMPLETED}
    assert asked(tmp_path) == [OtherKernelAllowed()]


def test_a_later_trial_of_a_sweep_is_computed_as_its_first(built: compiled.Kernel) -> None:
    config = make().raw_user_config
    settled = PPO.settle_config(config)
    assert settled["learner"] == COMPILED
    for first in ("fused", COMPILED):
        assert PPO.align_settled(settled, {"learner": first})["learner"] == first
        assert PPO.align_settled({"learner": "fused"}, {"learner": first})["learner"] == first
    assert PPO.align_settled({"learner": "torch"}, {"learner": COMPILED})["learner"] == "torch"
    assert PPO.align_settled(settled, {}) == {}


def asked(root: Path) -> list[OtherKernelAllowed]:
    ledger = Ledger(root / "demo" / "sweep.db")
    events = [one.event for one in ledger.read()]
    ledger.close()
    return [one for one in events if isinstance(one, OtherKernelAllowed)]

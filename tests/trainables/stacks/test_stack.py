"""Stacks of several shapes compute at the same time, and a program is compiled once."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from tests.support.lanes import assert_same, numbers_of
from trainables.algorithms.ppo import PPO
from trainables.stacks import stack
from trainables.stacks import trainer as lanes
from trainables.trainable import TrialContext

CONFIG = {
    "env": "CartPole-v1",
    "num_envs_per_worker": 2,
    "rollout_fragment_length": 8,
    "num_sgd_iter": 1,
    "sgd_minibatch_size": 16,
    "lanes": 1,
}


def made(*hidden: int) -> Any:
    return PPO({**CONFIG, "model": {"hidden": list(hidden)}}, TrialContext(seed=1))


def test_stacks_of_two_shapes_compute_together_as_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = ThreadPoolExecutor(2)
    monkeypatch.setattr(stack, "_threads", lambda: threads)
    alone, beside = (made(8), made(16)), (made(8), made(16))
    for one in alone:
        lanes.advance([one])
        one.train()
    both, step_group = threading.Barrier(2), stack.Stack.step_group

    def wait_for_the_other(self: stack.Stack, *arguments: Any) -> Any:
        both.wait(timeout=60)
        return step_group(self, *arguments)

    monkeypatch.setattr(stack.Stack, "step_group", wait_for_the_other)
    lanes.advance(beside)
    for one, other in zip(beside, alone, strict=True):
        one.train()
        assert_same(numbers_of(one), numbers_of(other))
    threads.shutdown()


def test_an_error_of_one_stack_is_raised_when_the_others_have_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads = ThreadPoolExecutor(2)
    monkeypatch.setattr(stack, "_threads", lambda: threads)
    raised, computed, step_group = threading.Event(), [], stack.Stack.step_group
    failing, other = made(8), made(16)

    def fail_or_wait(self: stack.Stack, *arguments: Any) -> Any:
        if self.shape == failing.shape:
            raised.set()
            raise RuntimeError("no more memory")
        raised.wait(timeout=60)
        found = step_group(self, *arguments)
        computed.append(self.shape)
        return found

    monkeypatch.setattr(stack.Stack, "step_group", fail_or_wait)
    with pytest.raises(RuntimeError, match="no more memory"):
        lanes.advance([failing, other])
    assert computed == [other.shape]
    threads.shutdown()


def test_threads_that_call_a_program_at_once_compile_it_once() -> None:
    traced = []

    def double(numbers: Any) -> Any:
        traced.append(numbers)
        return 2 * numbers

    program = stack.Program(double)
    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(program, [np.arange(3)] * 8))
    assert len(traced) == 1
    assert [result.tolist() for result in results] == [[0, 2, 4]] * 8

"""Stacks compute at the same time, are as wide as they have to be, and compile a program once."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.lanes import assert_same, numbers_of
from trainables.algorithms.ppo import PPO
from trainables.checkpoint import file
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


def made(*hidden: int, **more: Any) -> Any:
    return PPO({**CONFIG, "model": {"hidden": list(hidden)}, **more}, TrialContext(seed=1))


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


def test_the_width_of_a_stack_changes_no_bit_on_a_cpu() -> None:
    evaluated = {"evaluation_interval": 2, "evaluation_num_episodes": 3}
    found = []
    for width in (1, 16):
        lane = made(8, 7, lanes=width, **evaluated)
        for _ in range(2):
            lane.train()
        found.append((lane.evaluate()["hist_stats"], numbers_of(lane)))
        lane.stop()
    (narrow, wide) = found
    assert narrow[0] == wide[0]
    assert_same(narrow[1], wide[1])


def test_a_lane_goes_on_to_the_bit_in_a_stack_of_another_width(tmp_path: Path) -> None:
    straight, narrow = made(8, lanes=4), made(8, lanes=2)
    straight.train()
    path = straight.save(tmp_path)
    straight.train()
    narrow.continue_from(file.read(path).state, "the checkpoint")
    narrow.train()
    assert_same(numbers_of(straight), numbers_of(narrow))
    assert narrow.inexact == ""


def test_lanes_gather_in_the_oldest_stack_and_one_without_lanes_is_dropped() -> None:
    trainers = [made(8, lanes=2, horizon=41) for _ in range(5)]
    lanes.advance(trainers)
    (stacks,) = (found for (shape, _), found in lanes._stacks.items() if shape.limit == 41)
    assert [one._stack for one in trainers] == [stacks[n] for n in (0, 0, 1, 1, 2)]
    oldest = stacks[0]
    trainers[4].stop()
    trainers[0].stop()
    assert stacks == [oldest, trainers[2]._stack]
    again = made(8, lanes=2, horizon=41)
    lanes.advance([again])
    assert again._stack is oldest
    for one in (*trainers[1:4], again):
        one.stop()
    assert stacks == []


def test_few_lanes_of_a_wide_stack_are_distributed_over_its_groups() -> None:
    wide = stack.Stack(made(8).shape, 8)
    groups = len(wide._lanes)
    busy = {place: None for place in (wide.reserve() for _ in range(groups)) if place is not None}
    assert len(wide.by_group(busy)) == groups

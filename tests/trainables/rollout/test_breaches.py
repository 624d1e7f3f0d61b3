"""What is done once for many steps: breaches are told, rows and draws are the same to the bit."""

from typing import Any, ClassVar

import numpy as np
import pytest

from tests.support.environments import Counting
from tests.support.trainers import PLAIN, differences, final_state, make
from trainables.envs.spaces.actions import ActionLayout
from trainables.errors import EnvError, NotFiniteError
from trainables.policies import distributions
from trainables.policies.exploration import EpsilonGreedy, EpsilonGreedyConfig, StochasticSampling
from trainables.rollout.samplers.fragments import Sampler

FIRST = 201
"""The step in which each breach begins."""


class Breaks(Counting):
    """Gives what no environment may give, from its 201st step on."""

    last: ClassVar[int] = 0

    def __init__(self, what: str) -> None:
        super().__init__(length=1000)
        self.what = what

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        Breaks.last = self.steps
        if self.steps < FIRST:
            return observation, reward, terminated, truncated, info
        answers: dict[str, Any] = {
            "observation": (np.array([np.nan], np.float32), reward, False, False, info),
            "reward": (observation, np.inf, False, False, info),
            "final": (np.array([np.inf], np.float32), reward, False, True, info),
            "shape": (np.zeros(2, np.float32), reward, False, False, info),
            "kind": (observation, reward, 1.0, False, info),
            "length": (observation, reward, False, info),
        }
        if self.what == "then raises":
            if self.steps == FIRST:
                return answers["observation"]
            raise ValueError("the world ended")
        return answers[self.what]


WORDS = {
    "observation": (NotFiniteError, r"worker 0, environment 0: observation \[nan\] is not finite"),
    "reward": (NotFiniteError, r"worker 0, environment 0: reward inf is not finite"),
    "final": (NotFiniteError, r"environment 0: final observation \[inf\] is not finite"),
    "shape": (EnvError, r"worker 0, environment 0: .*shape \(2,\)"),
    "kind": (EnvError, r"worker 0, environment 0: .*terminated = 1.0, a float"),
    "length": (EnvError, r"worker 0, environment 0: .*four values are the older gym interface"),
    "then raises": (NotFiniteError, r"worker 0, environment 0: observation \[nan\]"),
}
MODES: dict[str, dict[str, Any]] = {
    "plain": {},
    "scaled": {"observation_filter": "MeanStdFilter", "normalize_rewards": True},
    "whole episodes": {"batch_mode": "complete_episodes", "train_batch_size": None},
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("what", WORDS)
def test_a_breach_that_begins_at_step_201_is_told_before_it_is_learnt_from(
    what: str, mode: str
) -> None:
    """In fragments of 32 steps it stands in the seventh, whose rows nobody is given."""
    config = {"env": f"{__name__}:Breaks", "env_config": {"what": what}, "env_level": "C"}
    size = {"num_envs_per_worker": 1, "rollout_fragment_length": 32, "train_batch_size": 32}
    trainer = make({**PLAIN, **config, **size, **MODES[mode]})
    kind, words = WORDS[what]
    given = 0
    with pytest.raises(kind, match=words):
        while given < 1000:
            given += trainer.workers.sample()[0].count
    assert given in (0, 192)
    assert Breaks.last <= 224
    trainer.stop()


def test_two_choices_are_drawn_as_any_number_of_choices_is() -> None:
    """Column by column and row by row give the same bits from the same stream."""
    stream = np.random.default_rng(5)
    for scale in (1e-3, 1.0, 60.0):
        head = (stream.standard_normal((256, 2)) * scale).astype(np.float32)
        head[0] = 0.0
        for seed in (None, 3):
            ours, theirs = (
                draw(head, None if seed is None else np.random.default_rng(seed))
                for draw in (distributions._choose_of_two, row_by_row)
            )
            for mine, other in zip(ours, theirs, strict=True):
                assert mine.dtype == other.dtype
                assert mine.tobytes() == other.tobytes()


def row_by_row(logits: Any, stream: np.random.Generator | None) -> tuple[Any, Any]:
    logp = distributions.log_softmax(logits)
    scores = logp if stream is None else distributions._race(logp, stream)
    chosen = scores.argmax(axis=-1)
    return chosen, logp[np.arange(len(chosen)), chosen]


@pytest.mark.parametrize("count", [1, 2, 5, 40])
@pytest.mark.parametrize("columns", [(2,), (3,), (9,), (2, 4)])
def test_what_is_drawn_ahead_is_what_would_be_drawn_step_by_step(
    columns: tuple[int, ...], count: int
) -> None:
    sampling = StochasticSampling(ActionLayout(columns, scalar=len(columns) == 1))
    heads = np.random.default_rng(1).standard_normal((30, count, sum(columns)))
    same_both_ways(sampling, heads.astype(np.float32), np.zeros(0, np.float32))


@pytest.mark.parametrize("reals", [1, 2, 8, 17])
@pytest.mark.parametrize("count", [1, 2, 5, 40])
def test_real_numbers_drawn_ahead_are_those_drawn_step_by_step(reals: int, count: int) -> None:
    stream = np.random.default_rng(1)
    log_std = stream.standard_normal(reals).astype(np.float32)
    heads = stream.standard_normal((30, count, reals)).astype(np.float32)
    same_both_ways(StochasticSampling(ActionLayout((0,) * reals)), heads, log_std)


def same_both_ways(sampling: StochasticSampling, heads: Any, log_std: Any) -> None:
    alone, drawn = np.random.default_rng(3), np.random.default_rng(3)
    ahead = sampling.ahead(len(heads), len(heads[0]), log_std, drawn)
    assert ahead is not drawn
    for head in heads:
        one, other = (sampling.draw(head, log_std, stream) for stream in (alone, ahead))
        assert differences(one, other) == []
    assert alone.bit_generator.state == drawn.bit_generator.state


def test_what_is_drawn_in_turns_or_in_ones_own_way_is_not_drawn_ahead() -> None:
    stream = np.random.default_rng(3)
    mixed = StochasticSampling(ActionLayout((2, 0)))
    assert mixed.ahead(5, 2, np.zeros(1, np.float32), stream) is stream
    greedy = EpsilonGreedy(ActionLayout((4,), scalar=True), EpsilonGreedyConfig())
    assert greedy.ahead(5, 2, np.zeros(0, np.float32), stream) is stream


@pytest.mark.parametrize("count", [1, 3])
def test_one_row_of_two_choices_is_drawn_as_any_number_of_rows_is(count: int) -> None:
    stream = np.random.default_rng(5)
    ours, theirs = np.random.default_rng(3), np.random.default_rng(3)
    for scale in np.geomspace(1e-4, 80.0, 500):
        head = (stream.standard_normal((count, 2)) * scale).astype(np.float32)
        assert differences(distributions.choose(head, ours), row_by_row(head, theirs)) == []


@pytest.mark.parametrize("config", [{}, {"env": "Pendulum-v1"}, {"native_vector_env": True}])
def test_steps_in_which_nothing_ended_are_written_as_all_others_are(
    config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**PLAIN, "num_envs_per_worker": 4, "train_batch_size": 48, **config}
    settings |= {"observation_filter": "MeanStdFilter", "normalize_rewards": True, "horizon": None}

    def collected() -> Any:
        trainer = make(settings)
        for _ in range(6):
            trainer.train()
        state = final_state(trainer)
        trainer.stop()
        return state

    quick = collected()
    asked: list[int] = []

    def looks(_: Sampler) -> bool:
        asked.append(1)
        return True

    with monkeypatch.context() as changed:
        changed.setattr(Sampler, "_looks_at_all", property(looks))
        slow = collected()
    assert asked
    assert differences(quick, slow) == []

"""What is done once for many steps: breaches are told, rows and draws are the same to the bit."""

from typing import Any, ClassVar

import numpy as np
import pytest
from gymnasium.spaces import Discrete

from tests.support.environments import Counting
from tests.support.trainers import PLAIN, differences, final_state, make
from trainables.algorithms.dqn import DQN
from trainables.envs.spaces.actions import ActionLayout
from trainables.errors import EnvError, NotFiniteError
from trainables.policies.acting import distributions
from trainables.policies.acting.actor import Actor
from trainables.policies.acting.deciding import SingleEnvDecider, VectorEnvDecider
from trainables.policies.exploration.actions import (
    EpsilonGreedy,
    EpsilonGreedyConfig,
    StochasticSampling,
)
from trainables.policies.q.actor import GreedySingleEnvDecider
from trainables.rollout.samplers.fragments import Sampler
from trainables.trainable import TrialContext

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


ENDS = "is not finite; correct the environment, or end its episode before that$"
WORDS = {
    "observation": (NotFiniteError, rf"worker 0, environment 0: observation \[nan\] {ENDS}"),
    "reward": (NotFiniteError, rf"worker 0, environment 0: reward inf {ENDS}"),
    "final": (NotFiniteError, rf"environment 0: final observation \[inf\] {ENDS}"),
    "shape": (EnvError, r"worker 0, environment 0: .*shape \(2,\)"),
    "kind": (EnvError, r"worker 0, environment 0: .*terminated = 1.0, a float"),
    "length": (EnvError, r"worker 0, environment 0: .*the four values of the older gym interface"),
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
    scores = logp if stream is None else distributions._race_scores(logp, stream)
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
    ahead = sampling.prepare_draws(len(heads), len(heads[0]), log_std, drawn)
    assert ahead is not drawn
    for head in heads:
        one, other = (sampling.draw(head, log_std, stream) for stream in (alone, ahead))
        assert differences(one, other) == []
    assert alone.bit_generator.state == drawn.bit_generator.state


def test_what_is_drawn_in_turns_or_in_ones_own_way_is_not_drawn_ahead() -> None:
    stream = np.random.default_rng(3)
    mixed = StochasticSampling(ActionLayout((2, 0)))
    assert mixed.prepare_draws(5, 2, np.zeros(1, np.float32), stream) is stream
    greedy = EpsilonGreedy(ActionLayout((4,), scalar=True), EpsilonGreedyConfig())
    assert greedy.prepare_draws(5, 2, np.zeros(0, np.float32), stream) is stream


@pytest.mark.parametrize("count", [1, 3])
def test_one_row_of_two_choices_is_drawn_as_any_number_of_rows_is(count: int) -> None:
    stream = np.random.default_rng(5)
    ours, theirs = np.random.default_rng(3), np.random.default_rng(3)
    for scale in np.geomspace(1e-4, 80.0, 500):
        head = (stream.standard_normal((count, 2)) * scale).astype(np.float32)
        assert differences(distributions.choose(head, ours), row_by_row(head, theirs)) == []


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"env": "Pendulum-v1"},
        {"native_vector_env": True},
        {"env": "Acrobot-v1", "model": {"vf_share_layers": True}},
        {"env": "Taxi-v4", "action_mask": "info"},
        {"sampler_perf_stats_ema_coef": 0.1},
    ],
)
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
        changed.setattr(Sampler, "_is_watched", property(looks))
        changed.setattr(
            VectorEnvDecider, "choose", None
        )  # steps that are watched have no use for it
        slow = collected()
    assert asked
    assert differences(quick, slow) == []


class Restless(Counting):
    """Rows that are not learnt from, infos, ends of both kinds, rewards of whole numbers."""

    def __init__(self) -> None:
        super().__init__(length=1000)
        self.action_space = Discrete(3)  # other choices are not sent as a policy counts them

    def step(self, action: Any) -> Any:
        observation, _, _, _, _ = super().step(action)
        n = self.steps
        info = {"n": n} if n % 3 else {"training_enabled": bool(n % 2)}
        return observation, n % 4, n % 17 == 16, n % 7 == 6, info if n % 2 else {}


ALONE: dict[str, dict[str, Any]] = {
    "two choices": {},
    "three choices": {"env": "Acrobot-v1", "env_config": {"max_episode_steps": 11}},
    "replayed": {"env_level": "B"},
    "no hidden layer": {"model": {"hidden": []}},
    "three, relu": {"model": {"hidden": [5, 6, 7], "activation": "relu"}},
    "restless": {"env": f"{__name__}:Restless", "env_level": "C"},
    "numbers": {"env": "Pendulum-v1", "env_config": {"max_episode_steps": 11}},
    "a horizon": {"horizon": 9},
    "a filter": {"observation_filter": "MeanStdFilter"},
}
#: Of `ALONE`, what has more to do in a step than to write it.
NOT_ALONE = ("numbers", "a horizon", "a filter")


@pytest.mark.parametrize("kind", ALONE)
def test_one_environment_is_sampled_without_arrays_of_one_row_to_the_same_bits(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = {"num_envs_per_worker": 1, "rollout_fragment_length": 24, "train_batch_size": 48}
    taken: list[int] = []

    def collected() -> Any:
        trainer = make({**PLAIN, "horizon": None, **size, **ALONE[kind]})
        for _ in range(5):
            trainer.train()
        sample = trainer.workers.sample()[0]
        given = {**final_state(trainer), "recent": sample.recent, "episodes": sample.episodes}
        trainer.stop()
        return given

    choose = SingleEnvDecider.choose

    def counted(self: SingleEnvDecider, step: int, row: Any) -> Any:
        taken.append(step)
        return choose(self, step, row)

    with monkeypatch.context() as changed:
        changed.setattr(SingleEnvDecider, "choose", counted)
        quick = collected()
    assert bool(taken) is (kind not in NOT_ALONE)
    monkeypatch.setattr(Actor, "single_env_decider", lambda *_: None)
    assert differences(quick, collected()) == []


OWN = "tests.support.own_networks:Values"
#: Where DQN samples: settings, and whether decisions are made one by one.
OF_DQN: dict[str, tuple[dict[str, Any], bool]] = {
    "a step": ({"n_step": 1}, True),
    "three steps": ({"n_step": 3}, True),
    "three choices": ({"env": "Acrobot-v1", "env_config": {"max_episode_steps": 11}}, True),
    "one hidden layer": ({"model": {"hidden": [8]}}, True),
    "restless": ({"env": f"{__name__}:Restless", "env_level": "C"}, True),
    "dueling": ({"dueling": True}, False),
    "noisy": ({"noisy": True}, False),
    "several": ({"num_envs_per_worker": 3, "rollout_fragment_length": 8}, False),
    "a module of one's own": ({"model": {"custom_model": OWN}}, False),
    "noise on the weights": ({"exploration_config": {"type": "ParameterNoise"}}, False),
}


@pytest.mark.parametrize("kind", OF_DQN)
def test_what_dqn_stores_of_calm_steps_is_what_it_stores_of_all(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, quickly = OF_DQN[kind]
    size = {"rollout_fragment_length": 24, "replay_batch_size": 16, "updates_per_step": 2}
    config = {
        "env": "CartPole-v1",
        "num_envs_per_worker": 1,
        "learning_starts": 24,
        **size,
        **given,
    }
    taken: list[int] = []

    def collected() -> Any:
        trainer = DQN(config, TrialContext(seed=2))
        for _ in range(6):
            trainer.train()
        state = final_state(trainer)
        trainer.stop()
        return state

    choose = GreedySingleEnvDecider.choose

    def counted(self: GreedySingleEnvDecider, step: int, row: Any) -> Any:
        taken.append(step)
        return choose(self, step, row)

    with monkeypatch.context() as changed:
        changed.setattr(GreedySingleEnvDecider, "choose", counted)
        quick = collected()
    assert bool(taken) is quickly
    monkeypatch.setattr(Sampler, "_is_watched", property(lambda _: True))
    assert differences(quick, collected()) == []

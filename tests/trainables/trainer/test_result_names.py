"""The names that a trainer says its results may have are those that they have."""

from pathlib import Path
from typing import Any

import pytest

from sweep.core.errors import BadConfig
from sweep.driver.start import prepare
from sweep.driver.start.creation.resolving import unsure_names
from sweep.history.results import flatten
from trainables.algorithms.a2c import A2C
from trainables.algorithms.dqn import DQN
from trainables.algorithms.impala import IMPALA
from trainables.algorithms.ppo import PPO
from trainables.algorithms.sac import SAC
from trainables.core.results import ANY_NAME, has_name
from trainables.trainable import TrialContext
from trainables.trainer.trainer import Trainer

SMALL: dict[str, Any] = {"env": "CartPole-v1", "rollout_fragment_length": 40}
EVALUATED = {"evaluation_interval": 1, "evaluation_num_episodes": 1}
AGENTS = {
    "env": "tests.support.agents:Targets",
    "env_level": "A",
    "multiagent": {"policies": {"left": None, "right": None, "brief": None}},
}


@pytest.mark.parametrize(
    ("trainer", "config"),
    [
        (PPO, {}),
        (PPO, {"num_workers": 1, "log_sys_usage": True, **EVALUATED}),
        (PPO, {"classic_results": True, "fake_sampler": True, "train_batch_size": 41}),
        (PPO, {"normalize_rewards": True, "observation_filter": "MeanStdFilter"}),
        (PPO, {**AGENTS, **EVALUATED}),
        (A2C, {"exploration_config": {"type": "StochasticSampling"}}),
        (DQN, {"learning_starts": 20, **EVALUATED}),
        (DQN, {"learning_starts": 20, "num_atoms": 5, "v_min": 0, "v_max": 9, "noisy": True}),
        (SAC, {"learning_starts": 20}),
        (IMPALA, {"num_workers": 1}),
    ],
)
def test_no_result_has_a_name_that_its_trainer_does_not_know(
    trainer: type[Trainer], config: dict[str, Any], tmp_path: Path
) -> None:
    given = {**SMALL, **config}
    names = trainer.result_names(given)
    assert names is not None
    made = trainer(given, TrialContext(seed=1, logdir=tmp_path))
    found = [name for _ in range(2) for name in flatten(made.train())]
    made.stop()
    assert [name for name in found if not has_name(names, name)] == []
    assert not has_name(names, "episode_return_mean")


def test_with_callbacks_or_in_a_class_of_ones_own_any_name_may_come() -> None:
    class Own(PPO):
        pass

    names = PPO.result_names({**SMALL, "callbacks": "some.module:Class"})
    assert names is not None
    known = set(names) - {ANY_NAME}
    assert has_name(names, "twice_the_reward")
    assert has_name(known, "episode_reward_mean")
    assert not has_name(known, "twice_the_reward")
    assert Own.result_names(SMALL) is None


SPEC = """\
name: names
trials: 2
trainable: ppo
metric: episode_reward_mean
mode: max
config: {env: CartPole-v1}
space: {lr: {loguniform: [1e-4, 1e-2]}}
"""


@pytest.mark.parametrize(
    ("line", "key", "said"),
    [
        ("stop: {training_iterations: 3}", "stop.training_iterations", "'training_iteration'?"),
        ("stop: {timesteps: 300}", "stop.timesteps", "did you mean 'timesteps_total'"),
        ("stop: {loss: {'<=': 3}}", "stop.loss", "episode_reward_mean"),
        (
            "stop: {plateau: {metric: ep_rew_mean, patience: 2}}",
            "stop.plateau.metric",
            "did you mean 'episode_reward_mean'",
        ),
        ("objectives: {time_total: min}", "objectives.time_total", "'time_total_s'"),
        (
            "constraints: {custom_metrics/x_mean: '<= 1'}",
            "constraints.custom_metrics/x_mean",
            "call",
        ),
        (
            "scheduler: {name: asha, time_attr: iterations, max_t: 9}",
            "scheduler.time_attr",
            "'training_iteration'",
        ),
        (
            "stop: {evaluation/episode_reward_mean: 9}",
            "stop.evaluation/episode_reward_mean",
            "evaluation_interval",
        ),
    ],
)
def test_a_name_that_no_result_will_have_is_refused_before_anything_runs(
    line: str, key: str, said: str
) -> None:
    with pytest.raises(BadConfig) as caught:
        prepare.prepare_text(f"{SPEC}{line}\n", "names.yaml", ())
    assert (caught.value.key, caught.value.line) == (key, 8)
    assert said in str(caught.value)


def test_an_unknown_metric_is_answered_with_the_nearest_names() -> None:
    with pytest.raises(BadConfig, match="did you mean 'episode_reward_mean' or 'episode_len_mean'"):
        prepare.prepare_text(SPEC.replace("_reward_", "_return_"), "names.yaml", ())


@pytest.mark.parametrize(
    "line",
    [
        "stop: {learner/kl: 0.1, time_total_s: 9, policy_reward_mean/default_policy: 400}",
        "trainable: tests.trainables.trainer.test_result_names:Named",
    ],
)
def test_what_may_come_is_let_through(line: str) -> None:
    text = SPEC if line.startswith("stop") else SPEC.replace("trainable: ppo\n", "")
    prepare.prepare_text(f"{text}{line}\n", "names.yaml", ())


def test_only_names_that_callbacks_would_have_to_add_are_doubted() -> None:
    config = "{env: CartPole-v1, evaluation_interval: 2, callbacks: 'trainables:Callbacks'}"
    text = SPEC.replace("metric: ", "metric: evaluation/").replace("{env: CartPole-v1}", config)
    more = "constraints: {custom_metrics/x_mean: '<= 1'}\nstop: {episode_return_mean: 9}\n"
    resolved, _ = prepare.prepare_text(text + more, "names.yaml", ())
    assert unsure_names(resolved) == {
        "custom_metrics/x_mean": "constraints.custom_metrics/x_mean",
        "episode_return_mean": "stop.episode_return_mean",
    }


class Named(PPO):
    """Reports what it likes."""

"""Settings that cannot work together, for every algorithm: refused before training, or accepted."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from trainables.algorithms.a2c import A2C
from trainables.algorithms.dqn import DQN
from trainables.algorithms.impala import IMPALA
from trainables.algorithms.iql import IQL
from trainables.algorithms.ppo import PPO
from trainables.algorithms.sac import SAC
from trainables.algorithms.td3 import TD3
from trainables.errors import ConfigError
from trainables.trainer.trainer import Trainer

ON_POLICY: tuple[type[Trainer], ...] = (PPO, A2C, IMPALA)
WITH_REPLAY: tuple[type[Trainer], ...] = (DQN, IQL, SAC, TD3)
ALL = (*ON_POLICY, *WITH_REPLAY)
VAULT = "tests.support.masked:Vault"
BOX, CHOICE = "Pendulum-v1", "CartPole-v1"
POLLED = {"remote_worker_envs": True, "remote_env_batch_wait_ms": 5.0}
GSDE = {"exploration_config": {"type": "StateDependentNoise"}}
NOISE = {"exploration_config": {"type": "ParameterNoise"}}

#: What is set → by which algorithms it is refused, and with which words, the settings' names among
#: them. Others that have these settings accept it.
MISFITS: dict[str, tuple[dict[str, Any], Mapping[type[Trainer], tuple[str, ...]]]] = {
    "real numbers for values of choices": (
        {"env": BOX},
        {DQN: ("env", "dqn needs Discrete actions", "train ppo")},
    ),
    "choices for noise on numbers": ({"env": CHOICE}, {TD3: ("env", "float Box actions")}),
    "a memory without sequences": (
        {"model": {"use_lstm": True}},
        dict.fromkeys(WITH_REPLAY, ("model.use_lstm: true", "sequences")),
    ),
    "convolutions of vectors": (
        {"model": {"conv_filters": [[8, 3, 1]]}},
        dict.fromkeys(ALL, ("model.conv_filters", "not images")),
    ),
    "a replay smaller than the warm-up": (
        {"buffer_size": 200, "learning_starts": 300, "replay_batch_size": 32},
        dict.fromkeys(WITH_REPLAY, ("buffer_size: 200", "learning_starts")),
    ),
    "a replay smaller than a batch": (
        {"buffer_size": 200, "learning_starts": 100, "replay_batch_size": 300},
        dict.fromkeys(WITH_REPLAY, ("buffer_size: 200", "replay_batch_size")),
    ),
    "more steps of a target than a replay holds": (
        {"buffer_size": 200, "learning_starts": 100, "replay_batch_size": 32, "n_step": 201},
        {DQN: ("n_step: 201", "buffer_size")},
    ),
    "noise that is not there": ({"sigma0": 0.4}, {DQN: ("sigma0: has no effect", "noisy: true")}),
    "the least of one value": (
        {"v_min": 0.0},
        {DQN: ("v_min: has no effect", "num_atoms above 1")},
    ),
    "the most of one value": (
        {"v_max": 500.0},
        {DQN: ("v_max: has no effect", "num_atoms above 1")},
    ),
    "a period of targets that follow": (
        {"target_network_update_freq": 500},
        {DQN: ("target_network_update_freq: has no effect", "tau: null")}
        | dict.fromkeys((SAC, TD3), ("target_network_update_freq: 500", "tau")),
    ),
    "shares by error where all are alike": (
        {"prioritized_replay_alpha": 0.5},
        {DQN: ("prioritized_replay_alpha: has no effect", "prioritized_replay: true")},
    ),
    "a growing weight where all are alike": (
        {"prioritized_replay_beta_annealing_timesteps": 1000},
        {DQN: ("prioritized_replay_beta_annealing_timesteps: has no", "prioritized_replay: true")},
    ),
    "sequences without a memory": (
        {"model": {"max_seq_len": 20}},
        dict.fromkeys(ALL, ("max_seq_len", "use_lstm")),
    ),
    "units of a memory that is not there": (
        {"model": {"lstm_cell_size": 20}},
        dict.fromkeys(ALL, ("lstm_cell_size", "use_lstm")),
    ),
    "learning in ranks": (
        {"data_parallel": True, "num_workers": 2},
        {cls: ("data_parallel: true", cls.__name__) for cls in ALL if cls is not PPO},
    ),
    "a minibatch larger than a batch": (
        {"sgd_minibatch_size": 4096, "train_batch_size": 64},
        {PPO: ("sgd_minibatch_size: 4096", "train_batch_size")},
    ),
    "advantages of one row that are normalised": (
        {"num_envs_per_worker": 1, "rollout_fragment_length": 1, "normalize_advantages": True},
        dict.fromkeys(ON_POLICY, ("normalize_advantages: true", "train_batch_size")),
    ),
    "action masks of numbers, or for numbers": (
        {"env": VAULT, "action_mask": "info"},
        {cls: ("action_mask: info", cls.__name__) for cls in (IQL, SAC, TD3)},
    ),
    "noise of the state for choices": (
        {"env": CHOICE, **GSDE},
        dict.fromkeys((PPO, A2C, SAC), ("exploration_config.type", "StochasticSampling"))
        | dict.fromkeys((IMPALA,), ("exploration_config", "StateDependentNoise")),
    ),
    "noise of the state with a memory": (
        {"env": BOX, **GSDE, "model": {"use_lstm": True}},
        dict.fromkeys((PPO, A2C), ("model.use_lstm: true", "StateDependentNoise"))
        | {SAC: ("model.use_lstm: true", "SAC")},
    ),
    "noise that goes on, in environments that do not wait": (
        {**NOISE, **POLLED},
        dict.fromkeys((DQN, TD3), ("remote_env_batch_wait_ms: 5.0", "ParameterNoise")),
    ),
    "a linear schedule without a length": (
        {"lr_schedule": "linear"},
        dict.fromkeys(ALL, ("schedule_timesteps", "lr_schedule: linear")),
    ),
    "environments that do not wait, in this process": (
        {"remote_env_batch_wait_ms": 5.0},
        dict.fromkeys(ALL, ("remote_env_batch_wait_ms: has no effect", "remote_worker_envs")),
    ),
    "a limit of time without a process": (
        {"env_step_timeout_s": 5.0},
        dict.fromkeys(ALL, ("env_step_timeout_s: has no effect", "remote_worker_envs")),
    ),
    "a horizon beyond the environment's": (
        {"horizon": 100_000},
        dict.fromkeys(ALL, ("horizon: 100000", "max_episode_steps")),
    ),
    "a soft horizon without one": (
        {"env": "tests.support.environments:Counting", "soft_horizon": True},
        {cls: ("soft_horizon: true", "horizon") for cls in ALL if cls is not TD3},
    ),
    "a filter of one thread in two": (
        {"sample_async": True, "observation_filter": "MeanStdFilter"},
        {
            cls: ("sample_async",)
            if cls is IMPALA
            else ("observation_filter: MeanStdFilter", "sample_async")
            for cls in ALL
        },
    ),
}
PAIRS = [(name, cls) for name, (_, refused) in MISFITS.items() for cls in refused]


def config_of(cls: type[Trainer], given: Mapping[str, Any]) -> dict[str, Any]:
    return {"env": BOX if cls is TD3 else CHOICE, "env_level": "C", **given}


@pytest.mark.parametrize(("name", "cls"), PAIRS, ids=[f"{c.__name__}: {n}" for n, c in PAIRS])
def test_it_is_refused_in_one_line_that_names_both(name: str, cls: type[Trainer]) -> None:
    given, refused = MISFITS[name]
    with pytest.raises(ConfigError) as raised:
        cls.check_config(config_of(cls, given))
    said = str(raised.value)
    assert "\n" not in said
    for words in refused[cls]:
        assert words in said


#: Those that other algorithms can work with: what is refused is so for a reason of its own.
ACCEPTED = [
    (name, cls)
    for name, classes in {
        "real numbers for values of choices": (*ON_POLICY, IQL, SAC, TD3),
        "choices for noise on numbers": (*ON_POLICY, DQN, IQL, SAC),
        "a memory without sequences": ON_POLICY,
        "action masks of numbers, or for numbers": (*ON_POLICY, DQN),
    }.items()
    for cls in classes
]


@pytest.mark.parametrize(("name", "cls"), ACCEPTED)
def test_it_is_accepted_where_it_works(name: str, cls: type[Trainer]) -> None:
    cls.check_config(config_of(cls, MISFITS[name][0]))


WITH_GPU = ALL


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch sees a GPU")
@pytest.mark.parametrize("cls", WITH_GPU)
def test_a_gpu_that_is_not_there_is_refused_in_one_line(cls: type[Trainer]) -> None:
    with pytest.raises(ConfigError, match=r"num_gpus: 1.0 .*torch sees no GPU") as raised:
        cls.check_config(config_of(cls, {"num_gpus": 1}))
    assert "\n" not in str(raised.value)

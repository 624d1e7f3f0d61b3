"""The keys of the classic rollout-worker trainers: all of them exist, with their defaults."""

from typing import Any

import numpy as np
import pytest

from tests.support.trainers import differences, make, run
from trainables import filters
from trainables.algorithms.ppo import Config
from trainables.config import default_config
from trainables.errors import EnvError
from trainables.rollout.worker import RolloutWorker
from trainables.rollout.worker_set import LocalWorkers

HERE = "tests.support.environments"

DEFAULTS: dict[str, dict[str, Any]] = {
    "K1": {"monitor": False, "log_level": "INFO", "callbacks": None, "log_sys_usage": True}
    | {"ignore_worker_failures": False},
    "K2": {"gamma": 0.99},
    "K3": {"horizon": None, "soft_horizon": False, "no_done_at_end": False, "env_config": {}}
    | {"clip_rewards": None, "clip_actions": True, "preprocessor_pref": "deepmind"},
    "K4": {"evaluation_interval": None, "evaluation_num_episodes": 10, "evaluation_config": {}},
    "K5": {"num_workers": 0, "num_gpus": 0, "num_cpus_per_worker": 1, "num_gpus_per_worker": 0}
    | {"custom_resources_per_worker": {}, "num_cpus_for_driver": 1}
    | {"memory": 0, "memory_per_worker": 0}
    | {"object_store_memory": 0, "object_store_memory_per_worker": 0},
    "K6": {"batch_mode": "truncate_episodes", "sample_async": False, "seed": None}
    | {"observation_filter": "NoFilter", "synchronize_filters": True}
    | {"compress_observations": False, "collect_metrics_timeout": 180.0}
    | {"metrics_smoothing_episodes": 100, "remote_worker_envs": False}
    | {"remote_env_batch_wait_ms": 0, "min_iter_time_s": 0.0, "timesteps_per_iteration": 0},
    "K7": {"input": "sampler", "input_evaluation": ["is", "wis"], "postprocess_inputs": False}
    | {"shuffle_buffer_size": 0, "output": None, "output_max_file_size": 64 * 2**20}
    | {"output_compress_columns": ["obs", "new_obs"]},
    "K8": {"multiagent": {}},
}
OURS = {"lr": 2.5e-4, "num_envs_per_worker": 8, "rollout_fragment_length": 128} | {
    "train_batch_size": None
}
"""PPO's recipe for classic control, where the classic trainers have one default for all."""


@pytest.mark.parametrize("item", DEFAULTS)
def test_K1_to_K8_every_key_has_the_classic_default(item: str) -> None:
    ours = default_config(Config)
    assert {key: ours[key] for key in DEFAULTS[item]} == DEFAULTS[item]


def test_K2_K6_what_the_recipe_of_an_algorithm_sets_otherwise() -> None:
    ours = default_config(Config)
    assert {key: ours[key] for key in OURS} == OURS


def test_K3_every_key_has_a_sentence() -> None:
    fields = dict(Config.model_fields)
    for field in Config.model_fields.values():
        fields.update(getattr(field.annotation, "model_fields", {}))
    assert len(fields) > 80
    for name, field in fields.items():
        described = field.description or getattr(field.annotation, "__doc__", None) or ""
        assert described.rstrip().endswith("."), name


def test_W1_what_a_worker_is_made_of_travels_as_one_object() -> None:
    trainer = make({"evaluation_interval": None})
    assert isinstance(trainer.workers, LocalWorkers)
    spec = trainer.workers.worker.spec
    twin = RolloutWorker(type(spec)(**trainer.workers.worker.creation_args()))
    twin.sync(trainer.get_weights()["default_policy"], filters.get_state(trainer.filters))
    ours, theirs = trainer.workers.worker.sample(), twin.sample()
    pairs = zip(ours.fragments, theirs.fragments, strict=True)
    assert [differences(vars(a), vars(b)) for a, b in pairs] == [[]] * len(ours.fragments)
    twin.close()
    trainer.stop()


def test_W9_one_seed_is_one_training_and_every_environment_has_its_own() -> None:
    config = {"env": f"{HERE}:Mishap", "env_config": {"episode": -1}, "evaluation_interval": None}
    one, same, other = make(config), make(config), make(config, seed=8)
    assert isinstance(one.workers, LocalWorkers)
    starts = one.workers.worker._sampler.observations[:, 0]
    assert len(np.unique(starts)) == len(starts), "each draws its own start"
    assert differences(run(one, 2), run(same, 2)) == []
    assert isinstance(other.workers, LocalWorkers)
    assert not np.isin(other.workers.worker._sampler.observations[:, 0], starts).any()
    for trainer in (one, same, other):
        trainer.stop()


def test_W9_an_environment_that_refuses_a_seed_is_named() -> None:
    with pytest.raises(EnvError, match=r"worker 0, environment 0: reset\(seed=…\)"):
        make({"env": f"{HERE}:Unseeded", "evaluation_interval": None})

"""The keys of the classic rollout-worker trainers: all of them exist, with their defaults."""

import copy
import logging
import re
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from tests.support.environments import Counting
from tests.support.trainers import SMALL, differences, make, run
from trainables.algorithms.ppo import PPO, Config
from trainables.core.settings import SettingsView, parse
from trainables.envs.make import EnvironmentConfig, make_env
from trainables.envs.registry import EnvContext, register_env
from trainables.errors import ConfigError, EnvError
from trainables.policies import filters
from trainables.rollout.callbacks import PHASES
from trainables.rollout.workers.worker import RolloutWorker
from trainables.rollout.workers.worker_set import LocalWorkers
from trainables.trainable import TrialContext
from trainables.trainer.config import default_config

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
    | {"output_compress_columns": []},
    "K8": {"multiagent": {}},
}
OURS = {"lr": 2.5e-4, "num_envs_per_worker": 8, "rollout_fragment_length": 128} | {
    "train_batch_size": None
}
"""PPO's recipe for classic control, where the classic trainers have one default for all."""

#: The configuration of the classic trainers as they spell it out, but for names of before (D9) and
#: TensorFlow's switches (D5).
CLASSIC: dict[str, Any] = {
    **{key: value for keys in DEFAULTS.values() for key, value in keys.items()},
    "callbacks": {
        "on_episode_start": None,
        "on_episode_step": None,
        "on_episode_end": None,
        "on_sample_end": None,
        "on_train_result": None,
        "on_postprocess_traj": None,
    },
    "model": {},
    "optimizer": {},
    "lr": 1e-4,
    "num_workers": 2,
    "num_envs_per_worker": 1,
    "rollout_fragment_length": 200,
    "train_batch_size": 200,
    "tf_session_args": {
        "intra_op_parallelism_threads": 2,
        "inter_op_parallelism_threads": 2,
        "gpu_options": {"allow_growth": True},
        "log_device_placement": False,
        "device_count": {"CPU": 1},
        "allow_soft_placement": True,
    },
    "local_tf_session_args": {
        "intra_op_parallelism_threads": 8,
        "inter_op_parallelism_threads": 8,
    },
    "extra_python_environs": {},
    "multiagent": {"policies": {}, "policy_mapping_fn": None, "policies_to_train": None},
}


@pytest.mark.parametrize("key", CLASSIC)
def test_K1_to_K8_each_classic_default_is_accepted_alone(key: str) -> None:
    PPO.check_config({"env": "CartPole-v1", key: CLASSIC[key]})


def test_K1_to_K8_the_whole_classic_configuration_trains_at_once() -> None:
    threads: dict[str, Any] = {
        "tf_session_args": {},
        "local_tf_session_args": {},
    }  # of the whole test process
    PPO.check_config({**CLASSIC, "env": "CartPole-v1"})
    trainer = PPO({**CLASSIC, **threads}, "CartPole-v1")
    result = trainer.train()
    assert result["timesteps_this_iter"] == 400
    assert result["num_healthy_workers"] == 2
    trainer.stop()


def test_K1_a_phase_without_a_function_is_none_and_costs_nothing() -> None:
    empty = make({"callbacks": dict.fromkeys(PHASES), "native_vector_env": True})
    assert empty.reporter.calls is None
    empty.stop()
    told: list[int] = []
    one = {**dict.fromkeys(PHASES), "on_train_result": lambda facts: told.append(1)}
    trainer = make({"callbacks": one})
    trainer.train()
    trainer.stop()
    assert told == [1]
    with pytest.raises(
        ConfigError, match=r"callbacks.on_epsiode_end: is not a known .*on_episode_end"
    ):
        make({"callbacks": {"on_epsiode_end": None}})


@pytest.mark.parametrize(
    ("agents", "words"),
    [
        ({"policies": "shared"}, r"\.policies: 'shared' .* a dict"),
        ({"policies": {"../a": None}}, r"\.policies: '../a' cannot be the name"),
        ({"policies": {"a": 3}}, r"\.policies\.a: 3 .* a dict of its own settings"),
        ({"policies": {"a": [dict, None, None, {}]}}, r"\.policies\.a\.0: .*null as the first"),
        ({"policies": {"a": None}, "policy_mapping_fn": 3}, r"\.policy_mapping_fn: 3 .*callable"),
        (
            {"policies": {"a": None}, "policy_mapping_fn": {"x": "b"}},
            r"\.policy_mapping_fn\.x: 'b' is not a policy; expected one of a",
        ),
        ({"policies_to_train": ["a"]}, r"\.policies_to_train: 'a' is not a policy; name it under"),
        (
            {"policies": {"a": None}, "policies_to_train": "a"},
            r"\.policies_to_train: 'a' .*a list of policies",
        ),
        (
            {"policies": {"a": None}, "count_steps_by": "steps"},
            r"\.count_steps_by: 'steps' .*env_steps or agent_steps",
        ),
        ({"observation_fn": "f"}, r"\.observation_fn: belongs next to multiagent"),
        ({"policy": {}}, r"\.policy: is not a known key; did you mean 'policies'"),
        ([], r": \[\] .* a dict"),
    ],
)
def test_K8_what_several_agents_cannot_have_is_refused_by_its_key(agents: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=f"^multiagent{words}"):
        PPO.check_config({"env": "CartPole-v1", "multiagent": agents})


@pytest.mark.parametrize(
    ("asked", "workers", "learnt"),
    [(4000, 0, 4096), (1, 0, 1024), (1024, 0, 1024), (1025, 0, 2048), (4000, 2, 4096)],
)
def test_K6_a_batch_is_rounded_up_to_whole_fragments(asked: int, workers: int, learnt: int) -> None:
    settings = parse(Config, {"env": "a", "train_batch_size": asked, "num_workers": workers})
    assert settings.batch_size == learnt
    assert settings.rounded == (asked != learnt)
    assert settings.train_batch_size == asked


def test_K6_a_batch_that_is_rounded_up_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "trainables"):
        trainer = make({"train_batch_size": 50})
    (result,) = run(trainer, 1)
    trainer.stop()
    said = [record.getMessage() for record in caplog.records]
    (line,) = [one for one in said if "rounded" in one]
    assert line.startswith("train_batch_size: 50 is rounded up to 96")
    assert result["timesteps_this_iter"] == result["train_batch_size"] == 96
    assert result["config"]["train_batch_size"] == 50
    whole = make()
    assert "train_batch_size" not in run(whole, 1)[0]
    whole.stop()


class Sized(Counting):
    """Takes its settings as one dict, as classic environments do."""

    def __init__(self, cfg: Any) -> None:
        self.given = cfg
        super().__init__(length=cfg.get("size", 5))


class WithMore(Counting):
    def __init__(self, settings: Any, render_mode: str | None = None, **more: Any) -> None:
        self.given = settings
        super().__init__(length=settings.get("length", 5))


class ByKeyword(Counting):
    def __init__(self, length: int) -> None:
        super().__init__(length=length)


def made(env: Any, **env_config: Any) -> Any:
    return make_env(parse(EnvironmentConfig, {"env": env, "env_config": env_config})).unwrapped


def test_W6_the_signature_decides_how_env_config_is_given() -> None:
    assert made(lambda _: gymnasium.make("CartPole-v1")).spec.id == "CartPole-v1"
    assert made(lambda _: Counting(**_), length=7).length == 7
    assert made(lambda: Counting(length=4)).length == 4
    assert made(lambda *anything: Counting(length=len(anything))).length == 0
    for kind, key in ((Sized, "size"), (WithMore, "length")):
        env = made(kind, **{key: 6})
        assert isinstance(env.given, EnvContext)
        assert env.length == 6
        assert made(kind).length == 5
    assert made(Sized, cfg={"size": 3}).length == 3, "a key of its name is an argument"
    assert made(ByKeyword, length=8).length == 8
    assert made(partial(Counting, truncates=False), length=9).length == 9


def test_W6_arguments_that_are_numbers_or_texts_are_never_given_the_whole() -> None:
    with pytest.raises(ConfigError, match="missing 1 required positional argument: 'length'"):
        made(ByKeyword)
    with pytest.raises(ConfigError, match="unexpected keyword argument 'lenght'"):
        made(ByKeyword, lenght=3)


def test_W6_an_error_of_a_creator_that_was_given_the_whole_says_so() -> None:
    def sized(size):  # type: ignore[no-untyped-def]  # as people write it
        return Counting(length=size + 1)

    with pytest.raises(ConfigError, match="its only argument, size, is the whole dict env_config"):
        made(sized, sise=3)


@pytest.mark.slow
def test_T2_a_function_is_an_environment_and_two_of_one_name_stay_apart() -> None:
    kinds = [lambda _: Counting(length=3), lambda _: Counting(length=6)]
    trainers = [make({**SMALL, "env": kind, "evaluation_interval": 1}) for kind in kinds]
    lengths = [run(trainer, 1)[0]["evaluation"]["episode_len_mean"] for trainer in trainers]
    assert lengths == [3.0, 6.0]
    assert made(kinds[0]).length == 3
    for trainer in trainers:
        trainer.stop()


def test_T3_a_registered_lambda_of_one_argument_trains() -> None:
    register_env("classic-lambda", lambda _: gymnasium.make("CartPole-v1"))
    trainer = make({"env": "classic-lambda"})
    trainer.train()
    trainer.stop()


def test_T1_the_environment_is_the_second_argument_and_a_context_stands_there_too() -> None:
    named = PPO({**SMALL, "env": "Acrobot-v1"}, "CartPole-v1", context=TrialContext(seed=7))
    placed = PPO(SMALL, TrialContext(seed=7))
    assert named.config["env"] == placed.config["env"] == "CartPole-v1"
    assert named.seed == placed.seed == 7
    with pytest.raises(TypeError, match="given twice"):
        PPO(SMALL, TrialContext(), context=TrialContext())
    for trainer in (named, placed):
        trainer.stop()


def test_T4_the_config_holds_every_key_and_is_read_by_key_or_attribute() -> None:
    given = {**SMALL, "model": {"hidden": [8]}, "env_config": {"render_mode": None}}
    trainer = PPO(given)
    config = trainer.config
    assert isinstance(config, SettingsView)
    assert config["lr"] == config.lr == 1e-3
    assert config["gamma"] == config.gamma == 0.99
    assert config["model"]["hidden"] == config.model.hidden == (8,)
    assert config["model"]["use_lstm"] is False
    assert config["env_config"] == {"render_mode": None}
    assert set(default_config(Config)) | {"env"} == set(config)
    assert len(config) == len(list(config))
    assert config.get("nothing") is None
    assert parse(Config, config) == trainer.settings
    assert trainer.train()["config"] == trainer.raw_user_config == given
    for plain in (copy.deepcopy(config), config.plain()):
        plain["model"]["hidden"] = (9,)
        assert parse(Config, plain).model.hidden == (9,)
    assert config["model"]["hidden"] == (8,)
    assert copy.copy(config) == config
    trainer.stop()


def test_T4_the_config_is_never_changed_and_says_what_to_do_instead() -> None:
    trainer = make()
    config: Any = trainer.config

    def assign() -> None:
        config["lr"] = 0.5

    def nested() -> None:
        config["model"]["hidden"] = [1]

    def remove() -> None:
        del config["lr"]

    changes = [
        (assign, "config.lr"),
        (nested, "config.model.hidden"),
        (remove, "config.lr"),
        (lambda: setattr(config, "lr", 0.5), "config.lr"),
        (lambda: delattr(config, "lr"), "config.lr"),
        (lambda: config.update({"lr": 0.5}), "config.update"),
    ]
    for change, place in changes:
        with pytest.raises(ConfigError, match=r"never change.*raw_user_config") as refusal:
            change()
        assert refusal.value.place == place
    config["input_evaluation"].append("pdis")
    assert config["input_evaluation"] == ["is", "wis"]
    assert config["lr"] == 1e-3
    with pytest.raises(KeyError, match="use rollout_fragment_length instead"):
        config["sample_batch_size"]
    with pytest.raises(AttributeError, match="did you mean 'gamma'"):
        _ = config.gama
    trainer.stop()


@pytest.mark.parametrize("item", DEFAULTS)
def test_K1_to_K8_every_key_has_the_classic_default(item: str) -> None:
    ours = default_config(Config)
    assert {key: ours[key] for key in DEFAULTS[item]} == DEFAULTS[item]


def test_K2_K6_what_the_recipe_of_an_algorithm_sets_otherwise() -> None:
    ours = default_config(Config)
    assert {key: ours[key] for key in OURS} == OURS


#: Keys whose classic value is equivalent in another form, or of which K2 and K6 say all.
IN_ANOTHER_FORM = frozenset(
    {"callbacks", "model", "multiagent", "optimizer", "tf_session_args", "local_tf_session_args"}
)
ALGORITHMS = ("ppo", "a2c", "impala", "dqn", "sac", "td3", "iql", "bc")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_K5_K6_every_other_default_than_the_classic_one_is_declared(algorithm: str) -> None:
    ours = default_config(import_module(f"trainables.algorithms.{algorithm}").Config)
    plain = CLASSIC.keys() & ours.keys() - IN_ANOTHER_FORM
    differ = {key for key in plain if ours[key] != CLASSIC[key]}
    assert differ <= {*OURS, "num_workers"}
    page = (Path(__file__).parents[3] / "docs" / "trainer-checklist.md").read_text()
    rows = {line.split("|")[1].strip(): line for line in page.splitlines() if line[:3] == "| K"}
    for key in differ - {"num_workers"}:
        assert f"`{key}` (" in rows["K6"], key
    (told,) = re.findall(rf"\b{algorithm} ([\d.]+e-\d)", rows["K6"])
    assert float(told) == ours["lr"]
    words = f"The default of `num_workers` is {ours['num_workers']}, not 2"
    assert words in rows["K5"]


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
    assert [differences(a.arrays, b.arrays) for a, b in pairs] == [[]] * len(ours.fragments)
    twin.close()
    trainer.stop()


@pytest.mark.slow
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

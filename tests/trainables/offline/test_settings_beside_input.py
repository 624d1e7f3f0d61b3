"""Each setting of sampling does beside ``input`` what the table here says, or is refused."""

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from tests.support.trainers import run
from trainables.algorithms.bc import BC
from trainables.algorithms.dqn import DQN
from trainables.algorithms.td3 import TD3
from trainables.core.settings import parse
from trainables.envs.make import EnvironmentConfig
from trainables.envs.vector.config import VectorConfig
from trainables.errors import ConfigError
from trainables.offline.workers import RowTreatment, fragment_of
from trainables.policies.filters import FilterConfig
from trainables.rollout.callbacks import Callbacks, CallbacksConfig
from trainables.rollout.config import SamplingConfig
from trainables.rollout.media.recording import RenderingConfig
from trainables.rollout.progress import MetricsConfig, PerfConfig
from trainables.rollout.workers.make import WorkersConfig
from trainables.rollout.workers.remote.recovery import RecoveryConfig
from trainables.trainable import TrialContext
from trainables.trainer.config import TrainerConfig
from trainables.trainer.reporting import RecordingConfig


def nothing(info: dict[str, Any]) -> None:
    """Look at nothing."""


RLLIB = str(Path(__file__).parent / "rllib" / "plain.json")
MIXTURE = {"sampler": 0.5, RLLIB: 0.5}

#: What a setting does: to the rows that are read; to nothing of them, and is refused; it says which
#: rows fit; it is read by evaluations, too; it needs another one, which is refused or off.
Effect = Literal["rows", "refused", "spaces", "evaluations", "dependent", "sampler"]
#: Setting → a value, what that does beside files alone, and beside files and sampler.
TABLE: dict[str, tuple[Any, Effect, Effect]] = {
    # the environment
    "env": ("CartPole-v1", "spaces", "spaces"),
    "env_config": ({"sutton_barto_reward": True}, "evaluations", "sampler"),
    "native_vector_env": (False, "sampler", "sampler"),  # speed alone
    "env_engine": ("gymnasium", "evaluations", "sampler"),
    "preprocessor_pref": ("rllib", "spaces", "spaces"),
    "no_framestack": (True, "spaces", "spaces"),
    "observation_fn": (None, "spaces", "spaces"),
    "action_mask": ("info", "refused", "refused"),
    "connectors": (("FrameStack",), "refused", "refused"),
    "env_level": ("C", "sampler", "sampler"),  # of what is stepped, and a promise
    "env_replay_limit": (5, "sampler", "sampler"),
    "env_measure_timeout_s": (5.0, "sampler", "sampler"),
    # how it is stepped
    "horizon": (20, "refused", "refused"),
    "soft_horizon": (True, "refused", "refused"),
    "no_done_at_end": (True, "rows", "rows"),
    "restart_failed_sub_environments": (True, "evaluations", "sampler"),
    "remote_worker_envs": (True, "evaluations", "sampler"),
    "remote_env_batch_wait_ms": (5.0, "refused", "sampler"),
    "env_step_timeout_s": (5.0, "evaluations", "sampler"),
    "external_timeout_s": (5.0, "dependent", "sampler"),  # an environment that calls is refused
    # how it is sampled
    "num_envs_per_worker": (2, "rows", "rows"),  # how many rows a round has
    "rollout_fragment_length": (8, "rows", "rows"),
    "batch_mode": ("complete_episodes", "refused", "sampler"),
    "sample_async": (True, "refused", "refused"),
    "fake_sampler": (True, "refused", "refused"),
    "blackhole_outputs": (True, "refused", "refused"),  # without the two before
    "compress_observations": (True, "dependent", "sampler"),  # of children
    "explore": (False, "refused", "sampler"),
    "clip_actions": (False, "evaluations", "sampler"),  # rows hold what was chosen, unclipped
    "normalize_actions": (True, "rows", "rows"),
    "clip_rewards": (0.5, "rows", "rows"),
    "num_workers": (2, "refused", "sampler"),
    "data_parallel": (True, "refused", "refused"),
    "data_parallel_timeout_s": (5.0, "dependent", "dependent"),
    # where children fail: without children nothing of it is read
    "ignore_worker_failures": (True, "dependent", "sampler"),
    "recreate_failed_workers": (True, "dependent", "sampler"),
    "max_worker_restarts": (5, "dependent", "sampler"),
    "sample_timeout_s": (5.0, "dependent", "sampler"),
    "collect_metrics_timeout": (5.0, "dependent", "sampler"),
    # what is seen of it
    "observation_filter": ("MeanStdFilter", "rows", "rows"),  # when they are drawn
    "observation_filter_clip": (5.0, "rows", "rows"),
    "synchronize_filters": (False, "dependent", "dependent"),  # refused with a filter
    "normalize_rewards": (True, "refused", "refused"),
    "metrics_smoothing_episodes": (5, "refused", "sampler"),
    "classic_results": (True, "sampler", "sampler"),  # names in results
    "sampler_perf_stats_ema_coef": (0.5, "refused", "sampler"),
    "monitor": (True, "refused", "sampler"),
    "record_env": ("rollout", "refused", "sampler"),
    "record_every": (5, "dependent", "sampler"),
    "record_episodes": (2, "evaluations", "evaluations"),
    "render_env": (True, "refused", "sampler"),
    "callbacks": ({"on_episode_end": f"{__name__}:nothing"}, "evaluations", "sampler"),
}
SECTIONS = (
    *(EnvironmentConfig, VectorConfig, SamplingConfig, WorkersConfig, RecoveryConfig, FilterConfig),
    *(MetricsConfig, PerfConfig, RecordingConfig, RenderingConfig, CallbacksConfig),
)
#: What a value needs beside it.
BESIDE: dict[str, dict[str, Any]] = {
    "env_step_timeout_s": {"remote_worker_envs": True},
    "remote_env_batch_wait_ms": {"remote_worker_envs": True},
}


def test_the_table_has_every_setting_of_what_is_sampled() -> None:
    keys = {key for section in SECTIONS for key in section.model_fields}
    assert keys == TABLE.keys()


@pytest.mark.parametrize("alone", [True, False], ids=["files alone", "files and sampler"])
@pytest.mark.parametrize("key", TABLE)
def test_a_setting_without_effect_beside_input_is_refused(key: str, alone: bool) -> None:
    value, with_files, with_sampler = TABLE[key]
    effect = with_files if alone else with_sampler
    config = {"env": "CartPole-v1", "input": RLLIB if alone else MIXTURE, **BESIDE.get(key, {})}
    settings = parse(DQN.config_class, {**config, key: value})
    if effect != "refused":
        DQN.validate_config(settings)
        return
    with pytest.raises(ConfigError) as error:
        DQN.validate_config(settings)
    assert str(error.value).startswith(f"{key}: ")
    assert "\n" not in str(error.value)


def test_a_default_that_is_spelled_out_is_accepted() -> None:
    usual = parse(BC.config_class, {"env": "CartPole-v1", "input": RLLIB})
    flat = {key: value for section in SECTIONS for key, value in _section(usual, section).items()}
    given = {key: one for key, one in flat.items() if key not in ("env", "native_vector_env")}
    BC.validate_config(parse(BC.config_class, {**given, "env": "CartPole-v1", "input": RLLIB}))


def _section(settings: TrainerConfig, kind: type) -> dict[str, Any]:
    (found,) = (one for one in vars(settings).values() if type(one) is kind)
    return dict(vars(found))


class Samples(Callbacks):
    """Would see what is sampled."""

    def on_sample_end(self, *, worker: Any, samples: Any) -> None:
        """See nothing."""


@pytest.mark.parametrize("given", [RLLIB, MIXTURE], ids=str)
def test_callbacks_that_reading_input_never_calls_are_refused(given: Any) -> None:
    config = {"env": "CartPole-v1", "input": given, "callbacks": Samples}
    with pytest.raises(
        ConfigError, match=r"callbacks.on_sample_end: is never called where input reads"
    ):
        DQN.validate_config(parse(DQN.config_class, config))


def test_what_is_recorded_of_evaluations_is_not_refused() -> None:
    config = {"env": "CartPole-v1", "input": RLLIB, "record_env": "evaluation"}
    BC.validate_config(parse(BC.config_class, config))


# ---- what acts on rows ---------------------------------------------------------------------------


def swings(folder: Path) -> str:
    """Transitions of a pendulum, with rewards from -9 to 9, of which some end their episode."""
    drawn, count = np.random.default_rng(0), 40
    line = {
        "type": "SampleBatch",
        "obs": drawn.normal(size=(count, 3)).tolist(),
        "new_obs": drawn.normal(size=(count, 3)).tolist(),
        "actions": drawn.uniform(-2, 2, size=(count, 1)).tolist(),
        "rewards": np.linspace(-9, 9, count).tolist(),
        "terminateds": [i % 4 == 3 for i in range(count)],
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "a.json").write_text(f"{json.dumps(line)}\n")
    return str(folder)


def replayed(folder: Path, **config: Any) -> Any:
    base = {"env": "Pendulum-v1", "input": swings(folder), "train_batch_size": 40}
    trainer: Any = TD3({**base, "learning_starts": 1000, **config}, TrialContext(seed=1))
    run(trainer, 6)
    rows = trainer.replay._rows[: len(trainer.replay)].copy()
    trainer.stop()
    return rows


@pytest.mark.parametrize(
    ("clip", "most", "kinds"), [(1.0, 1.0, None), (True, 1.0, {-1.0, 1.0}), (None, 9.0, None)]
)
@pytest.mark.parametrize("mixed", [False, True], ids=["files alone", "files and sampler"])
def test_rewards_that_are_read_are_clipped_as_those_that_are_sampled(
    clip: Any, most: float, kinds: set[float] | None, mixed: bool, tmp_path: Path
) -> None:
    more = {"input": {"sampler": 0.5, swings(tmp_path): 0.5}} if mixed else {}
    rewards = replayed(tmp_path, clip_rewards=clip, **more)["rewards"]
    assert np.abs(rewards).max() == pytest.approx(most) or (mixed and clip is None)
    if kinds is not None:
        assert {*rewards.tolist()} <= kinds | {0.0}


def test_ends_that_are_read_are_none_with_no_done_at_end(tmp_path: Path) -> None:
    assert replayed(tmp_path)["terminated"].any()
    assert not replayed(tmp_path, no_done_at_end=True)["terminated"].any()
    ends = np.array([False, True])
    batch = {
        "obs": np.zeros((2, 3)),
        "new_obs": np.zeros((2, 3)),
        "actions": np.zeros(2),
        "rewards": np.array([-5.0, 5.0]),
        "terminateds": ends,
        "truncateds": ~ends & False,
        "has_next": ~ends,
    }
    found = fragment_of([batch], True, "a", RowTreatment(no_done_at_end=True, clip_rewards=2.0))
    assert found.truncated[:, 0].tolist() == [False, True]
    assert found.terminated[:, 0].tolist() == [False, False]
    assert found.rewards[:, 0].tolist() == [-2.0, 2.0]
    assert batch["rewards"].tolist() == [-5.0, 5.0]

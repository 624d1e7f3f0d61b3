"""A replay holds what the environment gave; what is drawn is filtered by the statistics of now."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from numpy.typing import NDArray

from tests.support.growing import Growing, Walk
from tests.support.trainers import PLAIN, check_restored_exactly
from trainables.algorithms.bc import BC
from trainables.algorithms.dqn import DQN
from trainables.algorithms.iql import IQL
from trainables.algorithms.ppo import PPO
from trainables.algorithms.sac import SAC
from trainables.algorithms.td3 import TD3
from trainables.envs.external import ExternalEnv
from trainables.errors import ConfigError
from trainables.policies.filters import REWARD_CLIP, MeanStdFilter, NoFilter
from trainables.trainable import TrialContext
from trainables.trainer.trainer import Trainer

SUPPORT = "tests.support.growing"
FILTERED: dict[str, Any] = {"observation_filter": "MeanStdFilter"}
SMALL: dict[str, Any] = {
    "env": f"{SUPPORT}:Growing",
    "env_level": "C",
    "num_envs_per_worker": 2,
    "rollout_fragment_length": 4,
    "learning_starts": 40,
    "replay_batch_size": 16,
    "updates_per_step": 2,
    "buffer_size": 2000,
    "timesteps_per_iteration": 64,
    "model": {"hidden": [8]},
}
INTERVAL: dict[str, Any] = {"env_config": {"action": "interval"}}
SEEN = ("observations", "new_obs")


class Doubled(NoFilter):
    """A filter of somebody's own, which gives twice the numbers."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    def __call__(self, x: NDArray[Any], update: bool = True) -> NDArray[Any]:
        return np.asarray(2 * x, dtype=x.dtype)


def make(algorithm: type[Trainer], seed: int = 5, **config: Any) -> Any:
    return algorithm({**SMALL, **config}, TrialContext(seed=seed))


def rows_of(trainer: Any) -> Any:
    """All that a replay holds, oldest first."""
    return trainer.replay._rows[: len(trainer.replay)]


def learnt_from(trainer: Any) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Pairs of what was drawn of the replay and what the next updates are given, as they come."""
    found: list[Any] = []
    drawn: list[Any] = []
    sample, update = trainer.replay.sample, trainer.update

    def spied(count: int) -> Any:
        drawn.append(sample(count))
        return drawn[-1]

    def told(rows: Any) -> Any:
        found.append((drawn[-1], rows))
        return update(rows)

    trainer.replay.sample, trainer.update = spied, told
    return found


# ---- learning ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "seed", "steps", "config"),
    [
        (DQN, 0, 6000, {"exploration_config": {"epsilon_timesteps": 2000}}),
        (
            SAC,
            1,
            4000,
            {
                "num_envs_per_worker": 4,
                "rollout_fragment_length": 4,
                "updates_per_step": 16,
                "replay_batch_size": 64,
                "initial_alpha": 0.1,
                "tau": 0.02,
                "gamma": 0.97,
            },
        ),
    ],
)
def test_it_learns_where_what_it_sees_moves_away_from_what_it_saw(
    algorithm: type[Trainer], seed: int, steps: int, config: dict[str, Any]
) -> None:
    """With rows that stay as they were filtered it forgets: one row stands for several times."""
    env = {"env": f"{SUPPORT}:Walk", "env_level": "C", "evaluation_num_episodes": 1}
    networks = {"model": {"hidden": [64]}, "lr": 3e-3, "learning_starts": 500}
    iteration = {"timesteps_per_iteration": 1000}
    trainer = algorithm(
        {**env, **networks, **iteration, **FILTERED, **config}, TrialContext(seed=seed)
    )
    while trainer.progress.timesteps < steps:
        trainer.train()
    played = trainer.evaluate()
    trainer.stop()
    assert played["episode_reward_mean"] == Walk.LENGTH


# ---- what is stored, and what is learnt from -----------------------------------------------------


WAYS: dict[str, tuple[type[Trainer], dict[str, Any]]] = {
    "dqn": (DQN, {}),
    "dqn over one step": (DQN, {"n_step": 1}),
    "dqn in torch": (DQN, {"learner": "torch"}),
    "prioritised": (DQN, {"prioritized_replay": True}),
    "with masks": (DQN, {"action_mask": "info"}),
    "sac": (SAC, INTERVAL),
    "sac of choices": (SAC, {}),
    "sac in torch": (SAC, {**INTERVAL, "learner": "torch"}),
    "td3": (TD3, INTERVAL),
    "of whole episodes": (DQN, {"batch_mode": "complete_episodes"}),
    "in a thread": (
        DQN,
        {"sample_async": True, "observation_filter": "ConcurrentMeanStdFilter"},
    ),
    "in children": (SAC, {**INTERVAL, "num_workers": 2}),
    "at their own pace": (
        DQN,
        {"remote_worker_envs": True, "remote_env_batch_wait_ms": 1.0},
    ),
    "stacked": (DQN, {"connectors": [{"FrameStack": {"frames": 2}}]}),
}


@pytest.mark.parametrize("way", WAYS)
def test_one_raw_value_is_stored_the_same_whenever_it_was_seen(way: str) -> None:
    algorithm, config = WAYS[way]
    trainer = make(algorithm, **{**FILTERED, **config})
    pairs = learnt_from(trainer)
    for _ in range(3):
        trainer.train()
    rows = rows_of(trainer)
    for name in SEEN:
        whole = rows[name].astype(np.float64)
        assert (whole == np.rint(whole)).all()
        assert whole.max() > 10 > whole.min() >= 0
    statistics = trainer.filters["observation"]
    trainer.stop()
    drawn, seen = pairs[-1]
    for name in SEEN:
        assert seen[name].dtype == np.float32
        expected = trainer.inference.connectors.filtered_rows(drawn[name])
        # The statistics of the last round's end are those with which it learnt.
        np.testing.assert_array_equal(seen[name], expected)
        assert np.abs(seen[name] - drawn[name]).max() > 1
    if isinstance(statistics, MeanStdFilter):
        features = (drawn["observations"] - statistics.mean) / (statistics.std + 1e-8)
        np.testing.assert_allclose(seen["observations"], features, rtol=1e-5, atol=1e-6)


def test_the_policy_acts_on_what_is_filtered() -> None:
    trainer = make(DQN, **FILTERED)
    given: list[Any] = []
    actor = trainer.workers.local_worker()._actor
    act = actor.act

    def spied(observations: Any, *rest: Any) -> Any:
        given.append(observations.copy())
        return act(observations, *rest)

    actor.act = spied
    for _ in range(3):
        trainer.train()
    trainer.stop()
    later = np.concatenate(given[len(given) // 2 :])
    assert np.abs(later).max() < 6
    assert (later != np.rint(later)).any()


class Called(ExternalEnv):
    """Plays by itself, and asks for what to do."""

    def __init__(self) -> None:
        super().__init__(spaces.Discrete(2), spaces.Box(-1e4, 1e4, (2,), np.float32))

    def run(self) -> None:
        env = Growing()
        while True:
            episode, (observation, _) = self.start_episode(), env.reset()
            over = False
            while not over:
                action = self.get_action(episode, observation)
                observation, reward, over, _, _ = env.step(action)
                self.log_returns(episode, reward)
            self.end_episode(episode, observation)


def test_rows_of_an_environment_that_calls_are_unfiltered() -> None:
    own: dict[str, Any] = {"env": f"{__name__}:Called", "env_level": "auto"}
    trainer = make(DQN, **FILTERED, **own)
    try:
        pairs = learnt_from(trainer)
        trainer.train()
        rows = rows_of(trainer)["observations"]
    finally:
        trainer.stop()
    assert (rows == np.rint(rows)).all()
    assert rows.max() > 5
    drawn, seen = pairs[-1]
    expected = trainer.inference.connectors.filtered_rows(drawn["observations"])
    np.testing.assert_array_equal(seen["observations"], expected)
    assert np.abs(seen["observations"] - drawn["observations"]).max() > 1


def test_images_stay_bytes_in_the_replay() -> None:
    trainer = make(DQN, env=f"{SUPPORT}:GrowingImage", **FILTERED)
    pairs = learnt_from(trainer)
    trainer.train()
    rows = rows_of(trainer)
    trainer.stop()
    assert {rows[name].dtype for name in SEEN} == {np.dtype(np.uint8)}
    drawn, seen = pairs[-1]
    assert drawn["observations"].dtype == np.uint8
    assert seen["observations"].dtype == np.float32


def test_the_last_action_and_reward_are_stored_beside_and_not_filtered() -> None:
    model = {"hidden": [8], "lstm_use_prev_action": True, "lstm_use_prev_reward": True}
    trainer = make(DQN, **FILTERED, model=model)
    pairs = learnt_from(trainer)
    for _ in range(3):
        trainer.train()
    trainer.stop()
    drawn, seen = pairs[-1]
    for name in SEEN:
        assert drawn[name].shape == (16, 5)
        assert {*drawn[name][:, :3].ravel().tolist()} <= {0.0, 1.0}
        np.testing.assert_array_equal(seen[name][:, :3], drawn[name][:, :3])
        assert np.abs(seen[name][:, 3:] - drawn[name][:, 3:]).max() > 1


def test_a_filter_of_ones_own_filters_what_is_drawn() -> None:
    trainer = make(DQN, observation_filter=f"{__name__}:Doubled")
    pairs = learnt_from(trainer)
    trainer.train()
    drawn, seen = pairs[-1]
    trainer.stop()
    for name in SEEN:
        np.testing.assert_array_equal(seen[name], 2 * drawn[name])
        assert drawn[name].max() > 2


def test_callbacks_and_what_they_write_are_of_unfiltered_rows() -> None:
    trainer = make(DQN, **FILTERED, callbacks={"on_postprocess_traj": f"{__name__}:add_thousand"})
    for _ in range(3):
        trainer.train()
    clock = rows_of(trainer)["observations"][:, 0]
    trainer.stop()
    assert (clock == np.rint(clock)).all()
    assert clock.min() >= 1000


def add_thousand(info: Mapping[str, Any]) -> None:
    info["post_batch"]["observations"][:, 0] += 1000


# ---- rewards -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "config"),
    [
        (DQN, {"n_step": 1}),
        (DQN, {"n_step": 1, "num_workers": 2}),
        (DQN, {"n_step": 1, "batch_mode": "complete_episodes"}),
        (SAC, INTERVAL),
        (TD3, INTERVAL),
    ],
)
def test_a_reward_is_stored_as_it_is_and_scaled_when_it_is_drawn(
    algorithm: type[Trainer], config: dict[str, Any]
) -> None:
    trainer = make(algorithm, normalize_rewards=True, **config)
    pairs = learnt_from(trainer)
    for _ in range(3):
        trainer.train()
    assert set(rows_of(trainer)["rewards"].tolist()) == {1.0}
    stat = trainer.filters["reward"]
    assert stat.row_count == trainer.progress.timesteps
    trainer.stop()
    first, last = pairs[0][1]["rewards"], pairs[-1][1]["rewards"]
    np.testing.assert_allclose(last, 1 / stat.std, rtol=1e-6)
    assert first[0] != last[0]
    assert last.dtype == np.float32


def test_sums_over_several_steps_are_scaled_alike_and_clipped_step_by_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gamma = 0.9
    trainer = make(DQN, normalize_rewards=True, n_step=3, gamma=gamma)
    filter_rows, weights = trainer.filter_rows, set[float]()

    def noted(rows: Mapping[str, Any], weight: float = 1.0) -> Any:
        weights.add(weight)
        return filter_rows(rows, weight)

    monkeypatch.setattr(trainer, "filter_rows", noted)
    trainer.train()
    weight = 1 + gamma + gamma**2
    assert weights == {trainer.n_step.weight}
    assert trainer.n_step.weight == pytest.approx(weight)
    sums = {round(one, 5) for one in rows_of(trainer)["rewards"].tolist()}
    assert sums == {1.0, round(1 + gamma, 5), round(weight, 5)}
    deviation = trainer.filters["reward"].std
    rows = {"rewards": np.array([weight, 1e6, -1e6], np.float32)}
    seen = trainer.filter_rows(rows, trainer.n_step.weight)["rewards"]
    trainer.stop()
    most = REWARD_CLIP * weight
    np.testing.assert_allclose(seen, [weight / deviation, most, -most], rtol=1e-6)


# ---- exactness -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "config"),
    [
        (DQN, {"normalize_rewards": True, "prioritized_replay": True}),
        (DQN, {"batch_mode": "complete_episodes"}),
        (SAC, {**INTERVAL, "normalize_rewards": True}),
        (SAC, {"num_workers": 2}),
    ],
)
def test_a_run_that_was_saved_goes_on_to_the_bit(
    algorithm: type[Trainer], config: dict[str, Any], tmp_path: Path
) -> None:
    given = {**FILTERED, **config, "env_level": "A"}
    first, again = make(algorithm, **given), make(algorithm, **given)
    first.train()
    check_restored_exactly(first, again, tmp_path)
    state = first.get_state()["trainable"]["data"]
    rows = np.frombuffer(state["replay"]["rows"].tobytes(), dtype=rows_of(first).dtype)
    assert (rows["observations"] == np.rint(rows["observations"])).all()
    assert state["filters"]["observation"]["base"]["count"] == first.progress.timesteps
    first.stop()


# ---- several policies ----------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [DQN, SAC])
def test_each_of_several_policies_filters_what_it_draws_by_its_own_filter(
    algorithm: type[Trainer],
) -> None:
    env = "Targets" if algorithm is DQN else "Reaching"
    agents = {"policies": {"left": FILTERED, "right": None, "brief": FILTERED}}
    config: dict[str, Any] = {"multiagent": agents, "normalize_rewards": True}
    trainer = make(algorithm, env=f"tests.support.agents:{env}", **config)
    pairs = {pid: learnt_from(member) for pid, member in trainer.members.items()}
    for _ in range(2):
        trainer.train()
    for pid, member in trainer.members.items():
        rows = rows_of(member)
        for name in SEEN:
            assert {*rows[name].ravel().tolist()} <= {-1.0, 0.0, 1.0}
        drawn, seen = pairs[pid][-1]
        filtered = member.inference.connectors.filtered_rows(drawn["observations"])
        np.testing.assert_array_equal(seen["observations"], filtered)
        is_same = np.array_equal(seen["observations"], drawn["observations"])
        assert is_same is (pid == "right")
        deviation = member.filters["reward"].std
        np.testing.assert_allclose(seen["rewards"], drawn["rewards"] / deviation, rtol=1e-5)
    trainer.stop()


# ---- files ---------------------------------------------------------------------------------------


def written(folder: Path, algorithm: type[Trainer] = DQN, **config: Any) -> str:
    """A folder with what a trainer wrote of some rounds."""
    data = folder / "data"
    trainer = make(algorithm, output=str(data), **config)
    for _ in range(3):
        trainer.train()
    trainer.stop()
    return str(data)


def read(folder: str, name: str) -> Any:
    texts = [path.read_text() for path in sorted(Path(folder).rglob("*.json"))]
    lines = [json.loads(line) for text in texts for line in text.splitlines()]
    return np.concatenate([line[name] for line in lines])


def test_what_is_written_is_unfiltered(tmp_path: Path) -> None:
    data = written(tmp_path, **FILTERED, normalize_rewards=True)
    for name in ("obs", "new_obs"):
        found = read(data, name)
        assert (found == np.rint(found)).all()
        assert found.max() > 10
    assert set(read(data, "rewards").tolist()) == {1.0}


@pytest.mark.parametrize("algorithm", [BC, DQN, IQL, SAC])
def test_what_is_read_is_counted_and_filtered_when_it_is_drawn(
    algorithm: type[Trainer], tmp_path: Path
) -> None:
    data = written(tmp_path, IQL if algorithm in (BC, IQL) else DQN)
    every = read(data, "obs")
    own = {"train_batch_size": len(every), "input": data, "input_evaluation": []}
    config = {**SMALL, **own, **FILTERED, "timesteps_per_iteration": 0}
    if algorithm is BC:
        dropped = ("learning_starts", "replay_batch_size", "updates_per_step", "buffer_size")
        config = {key: one for key, one in config.items() if key not in dropped}
    trainer: Any = algorithm(config, TrialContext(seed=1))
    given: list[Any] = []
    if algorithm is BC:
        loss = trainer.loss

        def spied(batch: Any) -> Any:
            given.append(batch["observations"].numpy())
            return loss(batch)

        trainer.loss = spied
    else:
        pairs = learnt_from(trainer)
    trainer.train()
    statistics = trainer.filters["observation"]
    trainer.stop()
    assert statistics.row_count == len(every)
    np.testing.assert_allclose(statistics.mean, every.mean(axis=0))
    if algorithm is BC:
        seen = np.concatenate(given)
        expected = (every - every.mean(axis=0)) / (every.std(axis=0) + 1e-8)
        order = np.lexsort(seen.T), np.lexsort(expected.T)
        np.testing.assert_allclose(seen[order[0]], expected[order[1]], rtol=1e-4, atol=1e-5)
        return
    assert (rows_of(trainer)["observations"] == np.rint(rows_of(trainer)["observations"])).all()
    drawn, shown = pairs[-1]
    expected = (drawn["new_obs"] - every.mean(axis=0)) / (every.std(axis=0) + 1e-8)
    np.testing.assert_allclose(shown["new_obs"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("algorithm", [DQN, IQL])
def test_a_mixture_of_files_and_sampling_has_one_filter_and_is_resumed(
    algorithm: type[Trainer], tmp_path: Path
) -> None:
    given = {"input": {"sampler": 0.5, written(tmp_path): 0.5}, "env_level": "A", **FILTERED}
    first, again = make(algorithm, **given), make(algorithm, **given)
    first.train()
    check_restored_exactly(first, again, tmp_path / "saved")
    rows, counted = rows_of(first), first.filters["observation"].row_count
    assert counted == first.progress.timesteps
    assert (rows["observations"] == np.rint(rows["observations"])).all()
    first.stop()


def test_estimates_are_of_a_policy_that_sees_what_is_filtered(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    sampled = {"train_batch_size": 64, "sgd_minibatch_size": 32, "output": data}
    writer = PPO({**PLAIN, "env": SMALL["env"], "env_level": "C", **sampled})
    writer.train()
    writer.stop()
    config = {"env": SMALL["env"], "env_level": "C", "model": {"hidden": [8]}, "input": data}
    trainer = BC({**config, **FILTERED, "train_batch_size": 64}, TrialContext(seed=1))
    found = trainer.train()["off_policy"]
    raw = read(data, "obs")[:5].astype(np.float32)
    actions = np.zeros(5, dtype=np.int64)
    filtered = trainer.inference.connectors.filtered_rows(raw)
    expected = trainer.log_likelihoods(filtered, actions)
    np.testing.assert_array_equal(trainer.likelihoods_of_unfiltered(raw, actions), expected)
    assert (trainer.log_likelihoods(raw, actions) != expected).any()
    trainer.stop()
    assert found["episodes"] > 0


# ---- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [DQN, SAC, TD3, IQL, BC])
def test_filters_of_each_worker_alone_are_refused(algorithm: type[Trainer]) -> None:
    with pytest.raises(ConfigError, match=r"synchronize_filters: false cannot be used with"):
        algorithm.check_config(
            {"env": "CartPole-v1", "input": "nowhere", **FILTERED, "synchronize_filters": False}
        )


def test_a_trainer_that_does_not_say_that_it_keeps_rows_is_refused() -> None:
    class Forgets(DQN):
        keeps_rows = False

    trainer = Forgets({**SMALL, **FILTERED}, TrialContext(seed=1))
    with pytest.raises(TypeError, match="Forgets learns from a replay; set keeps_rows = True"):
        trainer.train()
    trainer.stop()

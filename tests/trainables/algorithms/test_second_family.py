"""The trainer is open for algorithms of another family: a DQN that lives outside the package."""

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import dqn
from tests.support.dqn import DQN
from tests.support.trainers import differences, final_state, stable
from trainables.errors import ConfigError, ExportError
from trainables.trainable import TrialContext

HERE = Path(__file__).parents[3]
#: Of the runs that are held to the score together.
SEEDS = (1, 2, 3)
#: Steps of such a run, and the mean of the greedy policies' returns then; untrained it is 22.
STEPS, SCORE = 50_000, 400
CARTPOLE: dict[str, Any] = {
    "env": "CartPole-v1",
    "native_vector_env": False,  # the seeds were named for environments with streams of their own
    "lr": 1e-3,
    "lr_schedule": "linear",
    "schedule_timesteps": STEPS,
    "model": {"hidden": [256, 256]},
    "replay_batch_size": 64,
    "updates_per_step": 32,
    "target_network_update_freq": 64,
    "exploration_config": {"final_epsilon": 0.04, "epsilon_timesteps": 8000},
    "timesteps_per_iteration": 5000,
    "evaluation_num_episodes": 10,
    "evaluation_config": {"explore": False},
}
SMALL: dict[str, Any] = {
    "env": "CartPole-v1",
    "num_envs_per_worker": 2,
    "rollout_fragment_length": 8,
    "learning_starts": 32,
    "replay_batch_size": 16,
    "updates_per_step": 3,
    "buffer_size": 100,
    "target_network_update_freq": 48,
    "timesteps_per_iteration": 64,
    "model": {"hidden": [16]},
}


def make(config: dict[str, Any] | None = None, seed: int = 5) -> DQN:
    return DQN({**SMALL, **(config or {})}, TrialContext(seed=seed))


@pytest.fixture
def small() -> Iterator[DQN]:
    trainer = make()
    yield trainer
    trainer.stop()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_dqn_learns_cartpole() -> None:
    """Of three seeds together, since a single run of DQN may fail."""
    returns = []
    for seed in SEEDS:
        trainer = DQN(CARTPOLE, TrialContext(seed=seed))
        while trainer.train()["timesteps_total"] < STEPS:
            pass
        returns.append(trainer.evaluate()["episode_reward_mean"])
        trainer.stop()
    assert np.mean(returns) >= SCORE, returns


@pytest.mark.parametrize(
    "config",
    [{}, {"observation_filter": "MeanStdFilter", "batch_mode": "complete_episodes"}],
    ids=["fragments", "filtered episodes"],
)
def test_a_run_that_was_saved_goes_on_to_the_bit(config: dict[str, Any], tmp_path: Path) -> None:
    exploring = {"evaluation_config": {"explore": True}, "evaluation_num_episodes": 5}
    first = make({**config, **exploring})
    for _ in range(2):
        first.train()
    path = first.save(tmp_path)
    again = make({**config, **exploring}, seed=5)
    again.restore(path)
    assert again.evaluate() == first.evaluate()
    expected = [stable(first.train()) for _ in range(3)]
    assert differences([stable(again.train()) for _ in range(3)], expected) == []
    assert differences(final_state(again), final_state(first)) == []
    assert first.get_state()["trainable"]["data"]["replay"]["capacity"] == len(first.replay) == 100
    first.stop()
    again.stop()


@pytest.mark.slow
def test_children_collect_for_it_and_a_restored_run_is_exact(tmp_path: Path) -> None:
    config = {"num_workers": 2, "evaluation_num_workers": 1, "evaluation_num_episodes": 2}
    first = make(config)
    first.train()
    path = first.save(tmp_path)
    expected = [stable(first.train()), first.evaluate()]
    again = make(config)
    again.restore(path)
    assert differences([stable(again.train()), again.evaluate()], expected) == []
    first.stop()
    again.stop()


def test_a_round_learns_so_often_from_so_many_rows(
    small: DQN, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []
    update, targets = small.update, list[int]()

    def counted(rows: dqn.Rows) -> dict[str, float]:
        seen.append((small.progress.timesteps, len(rows["rewards"])))
        return update(rows)

    monkeypatch.setattr(small, "update", counted)
    monkeypatch.setattr(small, "update_target", lambda: targets.append(small.progress.timesteps))
    small.train()
    # Rounds of 16 steps; the first that reaches 32 steps is the second one, begun after 16.
    assert seen == [(begun, 16) for begun in (16, 32, 48) for _ in range(3)]
    assert targets == [32]  # 48 are reached in the round that begins after 32
    small.train()
    assert targets == [32, 80]


def test_what_was_drawn_is_a_transition_of_the_environment(small: DQN) -> None:
    small.train()
    rows = small.replay.sample(64)
    assert set(rows) == {"observations", "actions", "rewards", "new_obs", "terminated"}
    position, velocity = rows["observations"][:, 0], rows["observations"][:, 1]
    # CartPole moves by 0.02 s of its velocity, also where the episode ends.
    np.testing.assert_allclose(rows["new_obs"][:, 0], position + 0.02 * velocity, atol=1e-6)


def test_exploration_falls_with_the_steps_and_evaluation_is_greedy(small: DQN) -> None:
    small.train()
    worker = small.workers.foreach_worker(lambda one: one.for_policy(lambda policy: policy))[0]
    assert worker.exploration.epsilon == pytest.approx(1 - 48 / 10_000 * 0.95)  # type: ignore[attr-defined]  # epsilon-greedy
    assert small.evaluate() == small.evaluate()
    observation = np.array([0.1, 0.0, 0.05, 0.0], dtype=np.float32)
    assert {small.compute_action(observation) for _ in range(20)} == {
        small.compute_action(observation)
    }
    assert {small.compute_action(observation, explore=True) for _ in range(50)} == {0, 1}


def test_callbacks_see_rows_before_they_are_stored() -> None:
    class Rewarding(DQN):
        pass

    def double(info: dict[str, Any]) -> None:
        info["post_batch"]["rewards"][:] = 2.0

    trainer = Rewarding({**SMALL, "callbacks": {"on_postprocess_traj": double}})
    trainer.train()
    assert set(trainer.replay.sample(50)["rewards"]) == {2.0}
    trainer.stop()


def test_what_it_cannot_do_is_refused_with_the_reason(small: DQN, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"writes no ONNX graph; define onnx_graph\(\)"):
        small.export_model("onnx", tmp_path)
    assert small.export_model("checkpoint", tmp_path)
    with pytest.raises(ConfigError, match=r"data_parallel: True .*DQN does not learn in ranks"):
        make({"num_workers": 2, "data_parallel": True})
    with pytest.raises(ConfigError, match=r"choices .* with epsilon-greedy"):
        make({"env": "Pendulum-v1"})
    other = make({"buffer_size": 99})
    with pytest.raises(ConfigError, match=r"buffer_size: 99 .* 100, as in the checkpoint"):
        other.restore(small.save(tmp_path))
    other.stop()


def test_the_algorithm_is_one_short_page_of_public_names() -> None:
    source = Path(dqn.__file__).read_text()
    assert len(source.splitlines()) <= 150
    named = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
    names = [f"{node.module}.{alias.name}" for node in named for alias in node.names]
    assert any(name.startswith("trainables.") for name in names)
    hidden = [name for name in names if any(part.startswith("_") for part in name.split("."))]
    attributes = {
        node.attr for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)
    }
    private = {name for name in attributes if name.startswith("_") and name != "__init__"}
    assert not hidden
    assert private <= {"_replace"}  # of named tuples, where it is public


def test_no_shared_file_names_the_algorithm() -> None:
    asked = ["git", "grep", "-liE", r"dqn|deep q", "--", "trainables", "sweep", "*.toml"]
    found = subprocess.run(asked, cwd=HERE, capture_output=True, text=True, check=False)
    assert found.stdout.splitlines() == []

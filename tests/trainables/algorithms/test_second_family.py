"""The trainer is open for another family: expected SARSA, which lives outside the package."""

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import sarsa
from tests.support.sarsa import ExpectedSarsa
from tests.support.trainers import check_restored_exactly
from trainables.errors import ConfigError
from trainables.policies.policy import Scalar
from trainables.trainable import TrialContext

HERE = Path(__file__).parents[3]
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


def make(config: dict[str, Any] | None = None, seed: int = 5) -> ExpectedSarsa:
    return ExpectedSarsa({**SMALL, **(config or {})}, TrialContext(seed=seed))


@pytest.fixture
def small() -> Iterator[ExpectedSarsa]:
    trainer = make()
    yield trainer
    trainer.stop()


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
    again = make({**config, **exploring}, seed=5)
    again.restore(first.save(tmp_path))
    assert again.evaluate() == first.evaluate()
    check_restored_exactly(first, again, tmp_path, 3)
    assert first.get_state()["trainable"]["data"]["replay"]["capacity"] == len(first.replay) == 100
    first.stop()


def test_a_round_learns_so_often_from_so_many_rows(
    small: ExpectedSarsa, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []
    update, targets = small.update, list[int]()

    def counted(rows: sarsa.Rows) -> dict[str, Scalar]:
        seen.append((small.progress.timesteps, len(rows["rewards"])))
        return update(rows)

    monkeypatch.setattr(small, "update", counted)
    noted = lambda _: targets.append(small.progress.timesteps)  # noqa: E731
    monkeypatch.setattr(small.target, "update_targets", noted)
    small.train()
    # Rounds of 16 steps; the first that reaches 32 steps is the second one, begun after 16.
    assert seen == [(begun, 16) for begun in (16, 32, 48) for _ in range(3)]
    assert targets == [32]  # 48 are reached in the round that begins after 32
    small.train()
    assert targets == [32, 80]


def test_what_was_drawn_is_a_transition_of_the_environment(small: ExpectedSarsa) -> None:
    small.train()
    rows = small.replay.sample(64)
    assert set(rows) == {"observations", "actions", "rewards", "new_obs", "terminated"}
    position, velocity = rows["observations"][:, 0], rows["observations"][:, 1]
    # CartPole moves by 0.02 s of its velocity, also where the episode ends.
    np.testing.assert_allclose(rows["new_obs"][:, 0], position + 0.02 * velocity, atol=1e-6)


def test_callbacks_see_rows_before_they_are_stored() -> None:
    class Rewarding(ExpectedSarsa):
        pass

    def double(info: dict[str, Any]) -> None:
        info["post_batch"]["rewards"][:] = 2.0

    trainer = Rewarding({**SMALL, "callbacks": {"on_postprocess_traj": double}})
    trainer.train()
    assert set(trainer.replay.sample(50)["rewards"]) == {2.0}
    trainer.stop()


def test_it_does_not_learn_in_ranks() -> None:
    with pytest.raises(ConfigError, match=r"data_parallel: true cannot be used with ExpectedSarsa"):
        make({"num_workers": 2, "data_parallel": True})


def test_the_algorithm_is_one_short_page_of_public_names() -> None:
    source = Path(sarsa.__file__).read_text()
    assert len(source.splitlines()) <= 90
    named = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
    names = [f"{node.module}.{alias.name}" for node in named for alias in node.names]
    assert any(name.startswith("trainables.") for name in names)
    hidden = [name for name in names if any(part.startswith("_") for part in name.split("."))]
    attributes = {
        node.attr for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)
    }
    assert not hidden
    assert not {name for name in attributes if name.startswith("_") and name != "__init__"}


def test_no_shared_file_names_the_algorithm() -> None:
    asked = ["git", "grep", "-liE", "sarsa", "--", "trainables", "sweep", "*.toml"]
    found = subprocess.run(asked, cwd=HERE, capture_output=True, text=True, check=False)
    assert found.stdout.splitlines() == []

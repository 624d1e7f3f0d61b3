"""What trials find out for all is found out once in a sweep; environments above all."""

import json
from pathlib import Path
from typing import Any

import pytest

from sweep.ledger.folder import Folder
from sweep.slices import cache
from tests.support import sweeps
from tests.support.command_line import start, write_spec
from trainables.envs.exactness import measuring
from trainables.envs.exactness.measuring import Inquiry
from trainables.trainable import Trainable

HERE = "tests.support.environments"
SMALL: dict[str, Any] = {
    "num_envs_per_worker": 1,
    "rollout_fragment_length": 16,
    "train_batch_size": 16,
    "sgd_minibatch_size": 16,
    "num_sgd_iter": 1,
    "model": {"hidden": [4]},
}


def anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that knows nothing yet."""
    cache.forget()
    monkeypatch.setattr(measuring, "_measured", {})
    monkeypatch.setattr(measuring, "_measurements", {})


def ppo(root: Path, file: Path, **more: Any) -> Folder:
    config = {**SMALL, "env": "tests.support.noted:Noted", "env_config": {"file": str(file)}}
    return sweeps.make(
        root,
        trainable="ppo",
        config=config,
        space={"lr": {"loguniform": [1e-4, 1e-2]}},
        metric="episode_reward_mean",
        mode="max",
        scheduler="fifo",
        searcher="random",
        deterministic=None,
        **{"trials": 2, "stop": {"training_iteration": 2}, **more},
    )


def made(file: Path) -> list[str]:
    """Why each environment was made."""
    return [line.split()[1] for line in file.read_text(encoding="ascii").splitlines()]


def test_the_environments_of_a_sweep_are_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial has its environments and nothing else; the rest is made once for all of them."""
    anew(monkeypatch)
    file = tmp_path / "made"
    folder = ppo(tmp_path, file)
    assert made(file) == ["inspect"]  # all points of the space at once
    sweeps.run(folder)
    found = made(file)
    assert found.count("make_workers") == 2  # the environments of two trials
    assert found.count("inspect") == 1
    assert len(found) <= 12 + 2 * 3
    sweeps.run(folder, trials=4)
    assert made(file)[len(found) :] == ["make_workers"] * 2


def test_the_ledger_tells_later_drivers_what_was_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    anew(monkeypatch)
    folder = ppo(tmp_path, tmp_path / "made", trials=1)
    sweeps.run(folder)
    (found,) = sweeps.history(folder).remembered.values()
    assert found == {"level": "A", "reasons": [], "unsaved_attributes": []}
    anew(monkeypatch)
    for page in folder.shared.iterdir():
        page.unlink()
    monkeypatch.setattr(Inquiry, "_start_child", lambda self: pytest.fail("it was measured again"))
    sweeps.run(folder, trials=2)
    assert [trial.status.value for trial in sweeps.history(folder).trials] == ["COMPLETED"] * 2


class Finds(Trainable):
    """Finds out which of it was the first, and remembers it for all."""

    def setup(self, config: dict[str, Any]) -> None:
        found = {"first": {"by": self.trial_id}, config["name"]: [self.trial_id]}
        self.found = {**found, **self.context.remembered}
        self.told = sorted(self.context.remembered)

    def step(self) -> dict[str, Any]:
        return {"loss": 1.0, "told": len(self.told), "first": self.found["first"]["by"]}

    def remembers(self) -> dict[str, Any]:
        return self.found

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {}

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Nothing is saved."""


def test_whatever_a_trainable_remembers_reaches_the_trials_after_it(tmp_path: Path) -> None:
    folder = sweeps.make(
        tmp_path,
        trainable="tests.sweep.driver.test_remembered:Finds",
        config={},
        space={"name": {"grid": ["a", "b", "c"]}},
        searcher="grid",
        scheduler="fifo",
        deterministic=None,
        trials=3,
        stop={"training_iteration": 1},
    )
    sweeps.run(folder)
    rows = [sweeps.curve(folder, trial)[0].metrics for trial in range(3)]
    assert [row["told"] for row in rows] == [0, 2, 3]
    assert len({row["first"] for row in rows}) == 1
    assert set(sweeps.history(folder).remembered) == {"first", "a", "b", "c"}


class FindsAnObject(Finds):
    """Finds what no ledger can hold."""

    def remembers(self) -> dict[str, Any]:
        return {"first": object()}


def test_what_a_ledger_cannot_hold_costs_the_trial_that_remembers_it(tmp_path: Path) -> None:
    folder = sweeps.make(
        tmp_path,
        trainable="tests.sweep.driver.test_remembered:FindsAnObject",
        config={},
        space={"name": {"grid": ["a"]}},
        searcher="grid",
        scheduler="fifo",
        deterministic=None,
        trials=1,
    )
    sweeps.run(folder)
    (trial,) = sweeps.history(folder).trials
    assert trial.status.value == "FAILED"
    assert "remembers() returned {'first': <object" in trial.replicas[0].error


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "how", "call"),
    [
        ("Perilous", {"how": "hangs"}, "step"),
        ("HangsWhenMade", {}, "__init__"),
    ],
)
def test_validate_and_check_env_do_not_wait_for_an_environment_that_hangs(
    env: str, how: dict[str, str], call: str, tmp_path: Path
) -> None:
    config = {**SMALL, "env": f"{HERE}:{env}", "env_config": how, "env_measure_timeout_s": 5.0}
    space = {"lr": {"uniform": [0.001, 0.01]}}
    scheduler = {"scheduler": "fifo", "deterministic": None, "mode": "max"}
    metric = {"metric": "episode_reward_mean", "stop": {"training_iteration": 1}}
    spec = write_spec(tmp_path, trainable="ppo", config=config, space=space, **scheduler, **metric)
    check = ("check-env", config["env"], "--env-config", json.dumps(how), "--timeout", 5)
    started = [start(*words, cwd=tmp_path) for words in (("validate", spec), check)]
    for process in started:
        _, told = process.communicate()
        assert process.returncode == 2, told
        assert f"its {call}() has not returned within 5 s" in told

"""What docs/external.md shows is true: its environment and its client are trained on."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import sweep
from sweep.driver.start import prepare
from tests.support import scripts
from tests.support.command_line import environment
from tests.support.external import address_of
from tests.support.ports import free_port
from trainables.algorithms.ppo import PPO

HERE = Path(__file__).parents[1]
PAGE = (HERE / "docs/external.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^```\w+\n# (\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
(TRAINS,) = [
    body
    for body in re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    if "PPO" in body
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With the page's files."""
    for name, body in {**FILES, "train.py": TRAINS}.items():
        (tmp_path / name).write_text(body)
    return tmp_path


def test_the_environment_of_the_page_is_trained_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(folder)
    runpy.run_path(str(folder / "train.py"))
    reward, level = capsys.readouterr().out.split(maxsplit=1)
    assert float(reward) > 8
    assert level.strip() == "D not bit-exact"


def test_P21_the_two_agents_of_the_page_learn_from_a_client_that_plays_over_http(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    resolved, _ = prepare.prepare(str(folder / "pair.yaml"), [])
    config = dict(resolved.spec.config)
    trainer = PPO({**config, "env_config": {**config["env_config"], "port": 0}})
    words = [sys.executable, "pair.py", address_of(trainer)]
    with subprocess.Popen(words, cwd=folder, env=environment()) as player:
        try:
            for _ in range(20):
                result = trainer.train()
                if result["episode_reward_mean"] >= 9:
                    break
        finally:
            player.kill()
            trainer.stop()
    assert result["episode_reward_mean"] >= 9  # chance brings 6 of 12
    assert result["policy_reward_mean"].keys() == {"buyer", "seller"}


@pytest.mark.proof
def test_P21_the_bundled_sweep_learns_from_a_client_that_plays_over_http(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    port = free_port()
    options = [f"config.env_config.port={port}", "config.env_config.ports=1"]
    options += ["trackers=[]", "stop.evaluation/episode_reward_mean=150"]
    sets = [word for one in options for word in ("--set", one)]
    words = [sys.executable, "play.py", f"http://127.0.0.1:{port}"]
    with subprocess.Popen(words, cwd=folder, env=environment()) as player:
        try:
            done = scripts.command(folder, "run", "cartpole_http_ppo", "--trials", "1", *sets)
        finally:
            player.kill()
    assert done.returncode == 0, done.stderr
    found = sweep.load("cartpole_http_ppo", root=folder / "sweeps")
    (trial,) = found.trials
    assert trial.status == "COMPLETED"
    assert (trial.score or 0.0) >= 150  # chance brings 20

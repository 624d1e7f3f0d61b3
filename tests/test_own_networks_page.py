"""What docs/own-networks.md shows is true: its sweep is run, killed, resumed and exported."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import sweep
from tests.support import scripts
from trainables.algorithms.ppo import PPO

HERE = Path(__file__).parents[1]
PAGE = (HERE / "docs/own-networks.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^```\w+\n# (\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))


@pytest.mark.proof
def test_the_sweep_of_the_page_runs_and_its_winner_is_exported(tmp_path: Path) -> None:
    for name, body in FILES.items():
        (tmp_path / name).write_text(body)
    words = ["-m", "sweep.cli.main", "run", "nets.yaml", "--jobs", "1", "--set", "trackers=[]"]
    points = {"SWEEP_FAILPOINT": "recorded:3:self", "SWEEP_FAILPOINT_FILE": str(tmp_path / "count")}
    assert scripts.python([*words, "--trials", "2"], tmp_path, points).returncode == -9
    done = scripts.command(tmp_path, "resume", "nets")
    assert done.returncode == 0, done.stderr
    found = sweep.load("nets", root=tmp_path / "sweeps")
    assert [trial.status for trial in found.trials] == ["COMPLETED"] * 2
    done = scripts.command(tmp_path, "export-model", "nets", "--out", "net")
    assert done.returncode == 0, done.stderr
    session = onnxruntime.InferenceSession(tmp_path / "net" / "policy.onnx")
    (action,) = session.run(["action"], {"observation": np.zeros((1, 4), np.float32)})
    assert action[0] in (0, 1)


@pytest.mark.parametrize(
    ("env", "more"),
    [
        ("Pendulum-v1", {"model": {"custom_action_dist": "beta:BoundedBeta"}}),
        ("CartPole-v1", {"model": {"custom_preprocessor": "positions:Positions"}}),
        ("CartPole-v1", {"connectors": [{"clock:Clock": {"limit": 500}}, "FrameStack"]}),
    ],
)
def test_the_other_parts_of_the_page_are_learnt_with(
    env: str, more: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, body in FILES.items():
        (tmp_path / name).write_text(body)
    monkeypatch.syspath_prepend(tmp_path)
    trainer = PPO({"env": env, "rollout_fragment_length": 16, **more})
    assert trainer.train()["learner"]["kl"] > 0
    trainer.stop()

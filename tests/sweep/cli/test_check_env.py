"""`sweep check-env`: what it says of an environment, and of names that are none."""

import json
from typing import Any

import pytest

from sweep.cli.main import main

HERE = "tests.support.environments"
QUICK = ("--steps", "64")


def report(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["check-env", *arguments, *QUICK, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.slow
def test_it_says_what_an_environment_is_and_what_it_costs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = report(capsys, "LunarLander-v3")
    assert found["action_space"] == "Discrete(4)"
    assert found["time_limit"] == 1000
    assert found["exactness"] == "B seed and action replay"
    assert found["reasons"] == [
        "not A: its state cannot be read: drawlist, lander, legs, moon, world"
    ]
    assert found["steps_per_s"] > 0
    assert found["steps_per_s_in_8"] > 0
    assert found["saved_bytes"] > 64
    assert found["restore_ms"] > 0
    assert found["breaches"] == []


def test_it_is_made_with_what_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    found = report(capsys, "CartPole-v1", "--env-config", "{max_episode_steps: 30}")
    assert found["time_limit"] == 30
    assert found["env_config"] == {"max_episode_steps": 30}
    assert main(["check-env", "CartPole-v1", "--env-config", "30"]) == 2
    assert "--env-config: 30" in capsys.readouterr().err


def test_rules_for_one_agent_are_not_asked_of_several(capsys: pytest.CaptureFixture[str]) -> None:
    found = report(capsys, "tests.support.agents:Targets")
    assert found["breaches"] == []
    assert found["steps_per_s"] > 0


@pytest.mark.slow
def test_what_breaks_while_it_is_stepped_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    broken = report(capsys, f"{HERE}:Broken", "--env-config", "{what: shape}")
    assert any("shape" in text for text in broken["breaches"])
    assert broken["steps_per_s"] is None


def test_spaces_in_which_no_policy_can_live_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    found = report(capsys, f"{HERE}:Worded")
    assert found["unsupported"]
    assert found["steps_per_s"] is None


@pytest.mark.slow
def test_the_text_holds_the_level_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-env", f"{HERE}:Hidden", *QUICK]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "checkpoints C episode boundary" in out
    assert "not A: its state cannot be read: _numbers" in out
    assert "steps/s alone" in out


def test_an_unknown_environment_is_answered_with_the_nearest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["check-env", "CartPol-v1"]) == 2
    assert "did you mean 'CartPole-v1'?" in capsys.readouterr().err

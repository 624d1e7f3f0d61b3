"""What docs/callbacks.md shows is true: its class is called, and its tables name what there is."""

import re
import runpy
from pathlib import Path

import pytest

from trainables.rollout.batch import REQUESTABLE
from trainables.rollout.callbacks import CLASSIC_NAMES, PHASE_ARGUMENTS
from trainables.rollout.episodes.agent_records import AgentRecords

PAGE = (Path(__file__).parents[1] / "docs/callbacks.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^```python\n# (\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))


def test_the_class_of_the_page_measures_episodes_of_training_and_of_evaluations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, body in FILES.items():
        (tmp_path / name).write_text(body)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    ran = runpy.run_path(str(tmp_path / "train.py"))
    while_training, while_evaluating = map(float, capsys.readouterr().out.split())
    assert 0.3 < while_training < 0.7  # drawn by an untrained policy, nearly alike
    assert 0.0 <= while_evaluating <= 1.0
    result = ran["result"]
    assert result["twice_the_reward"] == 2 * result["episode_reward_mean"]
    assert set(result["custom_metrics"]) >= {"length_in_training_mean", "same_max"}
    assert "length_in_evaluation_mean" in result["evaluation"]["custom_metrics"]


def test_the_page_names_every_phase_fact_question_and_column() -> None:
    named = set(re.findall(r"`(\w+)", PAGE))
    questions = {name for name in vars(AgentRecords) if name.endswith("_for") and name[0] != "_"}
    facts = {fact for given in PHASE_ARGUMENTS.values() for fact in given}
    for known in (PHASE_ARGUMENTS, facts, questions, CLASSIC_NAMES.values(), REQUESTABLE):
        assert set(known) <= named

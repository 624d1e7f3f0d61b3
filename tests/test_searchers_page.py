"""docs/searchers.md: it recommends searchers that there are (its table: tests/test_docs.py)."""

import re
from pathlib import Path

from sweep import searchers
from sweep.core import plugins

PAGE = (Path(__file__).parents[1] / "docs" / "searchers.md").read_text()


def test_each_searcher_that_is_recommended_exists() -> None:
    recommended = PAGE.partition("| your situation | searcher |")[2]
    advice = recommended.partition("| searcher | proposes")[0]
    answers = [line.split("|")[2] for line in advice.splitlines() if line.count("|") == 3]
    named = set(re.findall(r"`(\w+)`", " ".join(answers)))
    assert len(named) > 5
    assert named <= set(plugins.names(searchers.PACKAGE))

"""docs/searchers.md: its table says what the searchers say of themselves."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sweep import plugins, searchers

PAGE = (Path(__file__).parents[1] / "docs" / "searchers.md").read_text()
NAMES = plugins.names(searchers.PACKAGE)


def cells(name: str) -> Iterator[str]:
    supports = searchers.find(name).supports
    yield f"`{name}`"
    yield from (supports.proposes, supports.conditions, supports.choices, supports.unfinished)
    yield "yes" if supports.objectives else "refused"
    yield "kept to" if supports.constraints else "in the ranking only"


@pytest.mark.parametrize("name", NAMES)
def test_the_table_says_what_the_searcher_supports(name: str) -> None:
    assert f"| {' | '.join(cells(name))} |" in PAGE.splitlines()


def test_each_searcher_is_recommended_for_something() -> None:
    advice = PAGE.split("| searcher | proposes")[0]
    assert all(f"`{name}`" in advice for name in NAMES)

"""Each row of the tables about the search space can be written as it stands there."""

import re
from pathlib import Path

import pytest

from sweep.spec import yaml_source
from sweep.spec.space import Space

DOCS = Path(__file__).parents[4] / "docs"
#: What the rows speak of beside their own parameter.
AROUND = {"y": {"uniform": [0.25, 1], "step": 0.25}, "z": {"choice": ["a", "b"]}}


def rows() -> list[str]:
    page = (DOCS / "search-space.md").read_text()
    return re.findall(r"^\| `(_?x: .*?)` \|", page, re.MULTILINE)


@pytest.mark.parametrize("row", rows())
def test_every_row_is_a_parameter(row: str) -> None:
    raw, source = yaml_source.read(row, "search-space.md")
    assert Space.parse({**AROUND, **raw}, source).draw(0)


def test_the_tables_are_found() -> None:
    assert len(rows()) > 25

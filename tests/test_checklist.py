"""The trainer's checklist names every item once, and each test that it names is there."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent / "trainables"
PAGE = (Path(__file__).parents[1] / "docs" / "trainer-checklist.md").read_text()
LENGTHS = {"T": 25, "K": 8, "W": 20, "B": 16, "P": 21, "E": 16, "F": 4}
ITEMS = [f"{letter}{i}" for letter, count in LENGTHS.items() for i in range(1, count + 1)]
ROW = re.compile(r"^\| ([A-Z]\d+) \| (.*) \|$", re.MULTILINE)
NAMED = re.compile(r"`((?:\w+/)*\w+\.py)?(?:::)?(test_[\w*]+)?`")

SHOWN, OPEN = PAGE.split("\n## Open\n")


def named_tests(row: str) -> Iterator[tuple[str, str]]:
    """(file or empty, pattern or empty) of each test in a row."""
    for file, pattern in NAMED.findall(row.split(" | ")[1]):
        if file or pattern:
            yield file, pattern


def exists(file: str, pattern: str) -> bool:
    paths = [TESTS / file, TESTS.parent / file] if file else sorted(TESTS.glob("test_*.py"))
    wanted = re.compile(rf"^def {(pattern or 'test_').replace('*', '')}", re.MULTILINE)
    return any(path.is_file() and wanted.search(path.read_text()) for path in paths)


def test_every_item_stands_there_once() -> None:
    items = [item for item, _ in ROW.findall(SHOWN)] + [item for item, _ in ROW.findall(OPEN)]
    assert sorted(items) == sorted(ITEMS)


@pytest.mark.parametrize(("item", "row"), ROW.findall(SHOWN), ids=lambda value: value[:3])
def test_the_tests_of_an_item_are_there(item: str, row: str) -> None:
    found = list(named_tests(row))
    assert found, f"{item} names no test"
    for file, pattern in found:
        assert exists(file, pattern), f"{item}: {file}::{pattern}"

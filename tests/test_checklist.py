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
NAMED = re.compile(r"`((?:\w+/)*test_\w+\.py)?(?:::)?(test_[\w*]+)?`")
ITEM_OF_TEST = re.compile(r"(?<=_)[TKWBPEF]\d+(?=_)")

ROWS = dict(ROW.findall(PAGE))


def named_tests(text: str) -> Iterator[tuple[str, str]]:
    """(file, pattern or empty) of each test that is named; one without a file is in the latest."""
    latest = ""
    for file, pattern in NAMED.findall(text):
        latest = file or latest
        if file or pattern:
            yield latest, pattern


def paths_of(file: str) -> list[Path]:
    return sorted(TESTS.parent.rglob(Path(file).name)) if file else []


def functions(path: Path) -> list[str]:
    return re.findall(r"^def (test_\w+)\(", path.read_text(), re.MULTILINE)


def matches(pattern: str, name: str) -> bool:
    """Whether a test's name is meant; without a star it is the whole name.

    ``test_P16_*`` means every test that bears the item's name, as ``test_E8_P16_…`` does.
    """
    if not pattern.endswith("*"):
        return not pattern or name == pattern
    items = ITEM_OF_TEST.findall(pattern)
    return name.startswith(pattern[:-1]) or (
        pattern == f"test_{'_'.join(items)}_*" and set(items) <= set(ITEM_OF_TEST.findall(name))
    )


def test_every_item_stands_there_once_with_the_tests_that_show_it() -> None:
    assert sorted(item for item, _ in ROW.findall(PAGE)) == sorted(ITEMS)


@pytest.mark.parametrize(("item", "row"), ROWS.items(), ids=lambda value: value[:3])
def test_the_tests_of_an_item_are_there(item: str, row: str) -> None:
    assert list(named_tests(row.split(" | ")[1])), f"{item} names no test"
    for file, pattern in named_tests(row):
        found = [name for path in paths_of(file) for name in functions(path)]
        assert any(matches(pattern, name) for name in found), f"{item}: {file}::{pattern}"


@pytest.mark.parametrize("path", sorted(TESTS.rglob("test_*.py")), ids=lambda path: path.stem)
def test_a_test_named_after_an_item_is_listed_in_the_row_of_the_item(path: Path) -> None:
    for name in functions(path):
        items = ITEM_OF_TEST.findall(name)
        named = [
            pattern
            for item in items
            for file, pattern in named_tests(ROWS[item])
            if path in paths_of(file)
        ]
        assert not items or any(matches(pattern, name) for pattern in named), (
            f"{path.name}::{name} stands in no row of {', '.join(items)}"
        )

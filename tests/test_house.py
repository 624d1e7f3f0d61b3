"""The house rules that no linter knows."""

import ast
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1]
MODULES = sorted([*(HERE / "sweep").rglob("*.py"), *(HERE / "trainables").rglob("*.py")])
TOP_LEVEL = {
    *("pyproject.toml", "constraints.txt", "sweep", "trainables", "search_spaces", "tests"),
    *("docker", "README.md", "Makefile", "docs", "benchmarks", "CHANGELOG.md", "LICENSE"),
    "CONTRIBUTING.md",
}
#: A room that grows past this has a seam with a name.
MOST_LINES = 300


def name(path: Path) -> str:
    return str(path.relative_to(HERE))


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_a_module_is_short_and_opens_with_one_sentence(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= MOST_LINES
    opening = (ast.get_docstring(ast.parse(text)) or "").split("\n\n")[0]
    assert opening, "a module says first what it owns"
    assert opening.endswith((".", ":")), opening


def test_only_what_people_expect_lies_at_the_top() -> None:
    ignored = {"sweeps", "checkpoints", "build", "MUJOCO_LOG.TXT"}
    found = {p.name for p in HERE.iterdir() if not p.name.startswith((".", "_"))}
    assert {n for n in found if not n.endswith(".egg-info")} - ignored <= TOP_LEVEL

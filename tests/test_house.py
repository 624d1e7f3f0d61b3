"""The house rules that no linter knows."""

import ast
from pathlib import Path

HERE = Path(__file__).parents[1]
MODULES = sorted([*(HERE / "sweep").rglob("*.py"), *(HERE / "trainables").rglob("*.py")])
TOP_LEVEL = {
    *("pyproject.toml", "constraints.txt", "sweep", "trainables", "search_spaces", "tests"),
    *("docker", "README.md", "Makefile", "docs", "benchmarks", "CHANGELOG.md", "LICENSE"),
    "CONTRIBUTING.md",
}


def test_every_module_opens_with_one_sentence_that_says_what_it_owns() -> None:
    openings = {
        str(path.relative_to(HERE)): (ast.get_docstring(ast.parse(path.read_text())) or "")
        for path in MODULES
    }
    without = [name for name, text in openings.items() if not _is_sentence(text)]
    assert not without, f"modules without an opening sentence: {without}"


def _is_sentence(docstring: str) -> bool:
    return docstring.split("\n\n")[0].endswith((".", ":"))


def test_only_what_people_expect_lies_at_the_top() -> None:
    ignored = {"sweeps", "checkpoints", "build", "MUJOCO_LOG.TXT"}
    found = {p.name for p in HERE.iterdir() if not p.name.startswith((".", "_"))}
    assert {n for n in found if not n.endswith(".egg-info")} - ignored <= TOP_LEVEL

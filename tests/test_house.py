"""The rules of the house that no linter knows: rooms, their sizes, their maps, no circles."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

HERE = Path(__file__).parents[1]
TOP_LEVEL = {
    *("pyproject.toml", "constraints.txt", "sweep", "trainables", "search_spaces", "tests"),
    *("docker", "README.md", "Makefile", "docs", "benchmarks", "CHANGELOG.md", "LICENSE"),
    *("CONTRIBUTING.md", "MANIFEST.in"),
}
#: Modules and folders at the top of each package, at most.
MOST_AT_THE_TOP = {"sweep": (1, 15), "trainables": (2, 12)}
#: Modules in any other folder, at most; folders of plugins excepted, which grow by themselves.
MOST_IN_A_FOLDER = 14
PLUGINS = {
    *("sweep.schedulers", "sweep.searchers", "sweep.pools", "sweep.trackers"),
    *("trainables.algorithms", "sweep.ledger.migrations"),
}
#: A module with fewer lines and one importer is a part of that importer.
SHORT = 60


@cache
def modules() -> Mapping[str, Path]:
    """Dotted name → file, of both packages."""
    files = [*(HERE / "sweep").rglob("*.py"), *(HERE / "trainables").rglob("*.py")]
    return {_name(file): file for file in sorted(files)}


@cache
def imports() -> Mapping[str, frozenset[str]]:
    """Module → what it imports of both packages, inside functions and for types, too."""
    return {name: frozenset(_imports(name, file)) for name, file in modules().items()}


def _name(file: Path) -> str:
    parts = file.relative_to(HERE).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


def _imports(name: str, file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            found = [one if one in modules() else node.module for one in whole]
        else:
            continue
        yield from (one for one in found if one in modules() and one != name)


def _is_package(name: str) -> bool:
    return modules()[name].name == "__init__.py"


def _children() -> Mapping[str, list[str]]:
    """Package → the modules and packages right below it."""
    below = defaultdict(list)
    for name in modules():
        if "." in name:
            below[name.rpartition(".")[0]].append(name)
    return below


def _circles(graph: Mapping[str, frozenset[str]]) -> list[str]:
    """Those that can be reached from themselves."""

    @cache
    def reached(start: str) -> frozenset[str]:
        seen: set[str] = set()
        todo = list(graph.get(start, ()))
        while todo:
            if (one := todo.pop()) not in seen:
                seen.add(one)
                todo += graph.get(one, ())
        return frozenset(seen)

    return [name for name in graph if name in reached(name)]


def test_every_module_opens_with_one_sentence_that_says_what_it_owns() -> None:
    def opens(file: Path) -> bool:
        docstring = ast.get_docstring(ast.parse(file.read_text())) or ""
        return docstring.split("\n\n")[0].endswith((".", ":"))

    without = [name for name, file in modules().items() if not opens(file)]
    assert not without, f"modules without an opening sentence: {without}"


def test_a_level_has_few_entries() -> None:
    for package, names in _children().items():
        folders = [name for name in names if _is_package(name)]
        files = [name for name in names if not _is_package(name)]
        if package in MOST_AT_THE_TOP:
            most_files, most_folders = MOST_AT_THE_TOP[package]
            assert len(files) <= most_files, f"{package} has {len(files)} modules: {files}"
            assert len(folders) <= most_folders, f"{package} has {len(folders)} folders: {folders}"
        elif package not in PLUGINS:
            assert len(files) <= MOST_IN_A_FOLDER, f"{package} has {len(files)} modules: {files}"


def test_the_docstring_of_a_package_is_the_map_of_its_rooms() -> None:
    for package, names in _children().items():
        if package in PLUGINS:
            continue
        told = ast.get_docstring(ast.parse(modules()[package].read_text())) or ""
        words = {line.split()[0] for line in told.splitlines() if line.strip()}
        missing = {name.rpartition(".")[2] for name in names} - words
        assert not missing, f"the docstring of {package} does not name {sorted(missing)}"


def test_a_short_module_with_one_importer_is_a_part_of_it() -> None:
    importers = defaultdict(set)
    for name, found in imports().items():
        for one in found:
            importers[one].add(name)
    short = {
        name: next(iter(importers[name]))
        for name, file in modules().items()
        if len(importers[name]) == 1
        if len(file.read_text().splitlines()) < SHORT
        if not _is_package(name) and name.rpartition(".")[0] not in PLUGINS
    }
    assert not short, f"module → its only importer: {short}"


def test_no_imports_go_in_a_circle() -> None:
    assert not _circles(imports()), "modules in a circle"
    rooms: dict[str, set[str]] = defaultdict(set)
    for name, found in imports().items():
        room = ".".join(name.split(".")[:2])
        rooms[room] |= {other for one in found if (other := ".".join(one.split(".")[:2])) != room}
    whole = {room: frozenset(below - set(MOST_AT_THE_TOP)) for room, below in rooms.items()}
    assert not _circles({room: whole[room] for room in whole if "." in room}), "rooms in a circle"


def test_only_what_people_expect_lies_at_the_top() -> None:
    """And what `sweep` writes where it is called, which git leaves out."""
    written = [line.strip("/") for line in (HERE / ".gitignore").read_text("utf-8").split()]
    found = {p.name for p in HERE.iterdir() if not p.name.startswith((".", "_"))}
    assert {n for n in found if not any(fnmatch(n, one) for one in written)} <= TOP_LEVEL


def test_settings_are_frozen_and_their_mistakes_put_into_words_in_one_module() -> None:
    freeze, translate = set(), set()
    for name, file in modules().items():
        text = file.read_text()
        freeze |= {name} if "ConfigDict(frozen" in text else set()
        translate |= {name} if ".errors(" in text else set()
    assert freeze == {"trainables.core.settings"}
    assert translate == freeze | {"sweep.ledger.codec"}, "a ledger's mistakes have no lines of YAML"

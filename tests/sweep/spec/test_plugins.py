from pathlib import Path

import pytest

from sweep import plugins
from sweep.errors import UnknownName, UsageError


def find(folder: Path, name: str, text: str) -> None:
    (folder / f"{name}.py").write_text(text)
    plugins.find_trainable(f"{name}:Thing", [str(folder)])


def test_a_module_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no module 'nowhere_x' beside the spec file"):
        plugins.find_trainable("nowhere_x:Thing", [str(tmp_path)])


def test_a_module_that_imports_one_that_is_not_installed_is_told_apart(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'abc_x1' imports the module 'abc_x', which is not"):
        find(tmp_path, "abc_x1", "import abc_x")


def test_a_module_that_raises_is_answered_with_the_place(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"raised ValueError: no \(.*raises_x\.py:2\)"):
        find(tmp_path, "raises_x", "x = 1\nraise ValueError('no')")


def test_a_name_that_the_module_does_not_have_is_answered_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="did you mean 'Think'"):
        find(tmp_path, "names_x", "class Think: pass")


def test_what_is_neither_class_nor_function_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a int; expected a subclass"):
        find(tmp_path, "number_x", "Thing = 3")


def test_folders_are_appended_to_the_import_path_never_put_first(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit")
    find(
        tmp_path,
        "first_x",
        "import json\nfrom trainables import Trainable\n"
        "class Thing(Trainable): text = json.dumps(1)",
    )


def test_an_unknown_algorithm_is_answered_with_those_there_are() -> None:
    with pytest.raises(UnknownName, match=r"known: .*ppo"):
        plugins.find_trainable("pppo", [])

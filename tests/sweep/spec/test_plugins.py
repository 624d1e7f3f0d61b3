import re
from pathlib import Path
from typing import Any

import pytest

from sweep import pools, schedulers, searchers, trackers
from sweep.core import plugins
from sweep.core.errors import UnknownName, UsageError
from sweep.core.plugins import Kind
from tests.support.installed import install
from trainables.algorithms.ppo import PPO
from trainables.errors import ConfigError
from trainables.policies.filters import FilterConfig, make_filter


def find(folder: Path, name: str, text: str) -> None:
    (folder / f"{name}.py").write_text(text)
    plugins.find_trainable(f"{name}:Thing", [str(folder)])


def test_a_module_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no module 'nowhere_x' beside the spec file"):
        plugins.find_trainable("nowhere_x:Thing", [str(tmp_path)])


def test_a_module_that_imports_one_that_is_not_installed_is_told_apart(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'abc_x1' imports the module 'abc_x', which is not"):
        find(tmp_path, "abc_x1", "import abc_x")


def test_a_module_that_raises_is_answered_with_the_place(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"raised ValueError: no \(.*raises_x\.py:2\)"):
        find(tmp_path, "raises_x", "x = 1\nraise ValueError('no')")


def test_a_name_that_the_module_does_not_have_is_answered_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(
        UnknownName, match=r"names_x has no trainable 'Thing'; .* did you mean 'Think'"
    ):
        find(tmp_path, "names_x", "class Think: pass")


def test_what_is_neither_class_nor_function_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is an int; expected a subclass"):
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
    with pytest.raises(UnknownName, match=r"expected one of .*ppo"):
        plugins.find_trainable("pppo", [])


# ---- all kinds alike ----------------------------------------------------------------------------

KINDS = (schedulers.KIND, searchers.KIND, pools.KIND, trackers.KIND, plugins.trainables())


@pytest.fixture(params=KINDS, ids=lambda kind: kind.noun)
def kind(request: pytest.FixtureRequest) -> Kind[Any]:
    found: Kind[Any] = request.param
    return found


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages."""
    monkeypatch.syspath_prepend(tmp_path / "site")
    return tmp_path / "site"


def test_every_shipped_one_is_derived_from_what_is_asked_of_others(kind: Kind[Any]) -> None:
    assert plugins.names(kind.package)
    for name in plugins.names(kind.package):
        assert kind.base in kind.find(name).__mro__[1:]


def test_entry_points_are_among_the_known_names_and_the_nearest_is_told(
    kind: Kind[Any], site: Path
) -> None:
    install(site, "known_x", {}, {kind.package: {"their-own": "known_x.nowhere:Thing"}})
    with pytest.raises(
        UnknownName, match=r"one of \w.*their-own; .*; did you mean 'their-own'"
    ) as got:
        kind.find("theirown")
    assert set(plugins.names(kind.package)) < set(got.value.known)


def test_what_is_not_derived_from_the_base_is_refused_by_path_and_by_entry_point(
    kind: Kind[Any], site: Path
) -> None:
    path = "stranger_x.parts:Stranger"
    install(
        site,
        "stranger_x",
        {"parts": "class Stranger: pass"},
        {group.package: {"stranger": path} for group in KINDS},
    )
    base = f"{kind.base.__module__}.{kind.base.__name__}"
    for name in (path, "stranger"):
        told = f"{kind.noun}: '{name}' is the class Stranger; expected a subclass of {base}"
        with pytest.raises(UsageError, match=re.escape(told)):
            kind.find(name)


def test_a_plugin_without_a_required_definition_is_refused(kind: Kind[Any], tmp_path: Path) -> None:
    for own in kind.defines:
        name = f"without_{own}_{kind.noun}"
        others = "".join(f"    {other} = None\n" for other in kind.defines if other != own)
        text = f"from {kind.base.__module__} import {kind.base.__name__}\n"
        text += f"class Mine({kind.base.__name__}):\n    pass\n{others}"
        (tmp_path / f"{name}.py").write_text(text)
        with pytest.raises(
            UsageError, match=f"'{name}:Mine' does not define {own}; define it as sweep."
        ):
            kind.find(f"{name}:Mine", [str(tmp_path)])


def test_the_base_itself_is_none(kind: Kind[Any]) -> None:
    with pytest.raises(UsageError, match="expected a subclass"):
        kind.find(f"{kind.base.__module__}:{kind.base.__name__}")


def test_a_name_that_two_packages_have_is_refused_with_both_meanings(
    kind: Kind[Any], site: Path
) -> None:
    for package in ("first_y", "second_y"):
        install(site, package, {}, {kind.package: {"twice": f"{package}:Thing"}})
    with pytest.raises(UsageError, match="both first_y:Thing and second_y:Thing 'twice'; write"):
        kind.find("twice")


def test_what_is_shipped_is_never_hidden_by_an_entry_point(kind: Kind[Any], site: Path) -> None:
    shipped = plugins.names(kind.package)[0]
    install(site, "hiding_x", {}, {kind.package: {shipped: "hiding_x.nowhere:Thing"}})
    assert kind.find(shipped).__module__ == f"{kind.package}.{shipped}"


def test_an_entry_point_that_leads_nowhere_is_answered_with_what_is_missing(
    kind: Kind[Any], site: Path
) -> None:
    install(site, "empty_x", {}, {kind.package: {"gone": "empty_x.gone:Thing"}})
    with pytest.raises(UsageError, match=rf"{kind.noun}: there is no module 'empty_x.gone'"):
        kind.find("gone")


def test_settings_name_what_is_installed_and_are_answered_with_it(site: Path) -> None:
    groups = {"trainables.filters": {"theirs": "set_x:F"}, "trainables.envs": {"maze": "set_x:M"}}
    install(site, "set_x", {}, groups)
    with pytest.raises(ConfigError, match="'ConcurrentMeanStdFilter', 'theirs', package"):
        PPO.check_config({"env": "CartPole-v1", "observation_filter": "their"})
    with pytest.raises(ConfigError, match=r"observation_filter: .* class or callable in set_x"):
        make_filter(FilterConfig(observation_filter="theirs"), (1,))
    with pytest.raises(ConfigError, match="did you mean 'maze'"):
        PPO.check_config({"env": "mazes"})
    with pytest.raises(ConfigError, match="set_x has no 'M'; expected an environment"):
        PPO.check_config({"env": "maze"})


@pytest.mark.parametrize(
    ("kind", "name", "ours"),
    [
        (searchers.KIND, "bayes", "tpe"),
        (searchers.KIND, "TPESampler", "tpe"),
        (searchers.KIND, "RandomSampler", "random"),
        (searchers.KIND, "sobol", "qmc"),
        (schedulers.KIND, "ASHAScheduler", "asha"),
        (schedulers.KIND, "MedianPruner", "median"),
        (schedulers.KIND, "population_based", "pbt"),
    ],
)
def test_a_name_of_another_tool_is_answered_with_ours(
    kind: Kind[Any], name: str, ours: str
) -> None:
    with pytest.raises(UnknownName, match=f"did you mean '{ours}'"):
        kind.find(name)

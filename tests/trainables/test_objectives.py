"""Objectives of Optuna are trained as they are, and what they ask for is found before."""

import functools
import math
import re
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.trainables.test_forms import results
from trainables import get_checkpoint
from trainables.errors import TrainableError
from trainables.function import forms, wrap
from trainables.function.exploration import Exploration, explore
from trainables.trainable import TrialContext


class TrialPruned(Exception):
    """Optuna's, by its name."""


# ---- with the settings of a trial ---------------------------------------------------------------


def objective(trial: Any) -> float:
    x = trial.suggest_float("x", 1e-3, 1.0, log=True)
    layers = trial.suggest_int("net.layers", 1, 3)
    if trial.suggest_categorical("kind", ["a", "b"]) == "b":
        trial.suggest_uniform("more", 0.0, 1.0)
    for step in (10, 20):
        trial.report(x * layers / step, step)
        if trial.should_prune():
            raise AssertionError
    trial.set_user_attr("seen", 7)
    return float(x)


CONFIG = {"x": 0.5, "net": {"layers": 2}, "kind": "a"}


def test_an_objective_takes_its_settings_from_the_trial() -> None:
    assert results(objective, CONFIG) == [
        {"loss": 0.1, "step": 10, "training_iteration": 1},
        {"loss": 0.05, "step": 20, "training_iteration": 2},
        {"loss": 0.5, "seen": 7, "training_iteration": 3},
    ]
    assert not forms.signature_problem(objective)
    assert not wrap(objective).can_save()


def test_a_missing_setting_is_told_with_what_to_write() -> None:
    with pytest.raises(TrainableError, match=r"asks for 'kind'.*\{kind: \{choice: \['a', 'b'\]\}"):
        results(objective, {"x": 0.5, "net": {"layers": 2}})


def test_a_choice_is_the_member_that_the_objective_wrote() -> None:
    def chooses(trial: Any) -> float:
        assert trial.suggest_categorical("sizes", [(64, 64), [1], 1, True]) == (64, 64)
        assert trial.suggest_categorical("flag", [1.0, True]) is True
        assert trial.params == {"sizes": [64, 64], "flag": True}
        return float(trial.number)

    trained = wrap(chooses)(
        {"sizes": [64, 64], "flag": True}, TrialContext(metric="loss", number=4)
    )
    assert trained.train()["loss"] == 4.0
    trained.stop()


def pruned(trial: Any) -> float:
    if trial.suggest_float("x", 0, 1) > 0.5:
        trial.report(1.0, 1)
    raise TrialPruned


def test_a_pruned_objective_keeps_what_it_reported_and_is_nan_before() -> None:
    assert results(pruned, {"x": 0.7}) == [{"loss": 1.0, "step": 1, "training_iteration": 1}]
    (only,) = results(pruned, {"x": 0.3})
    assert math.isnan(only["loss"])


seen: list[str] = []


def tidies(trial: Any) -> None:
    for step in range(3):
        trial.report(0.0, step)
        if trial.should_prune():
            seen.append(f"told at {step}")
            raise TrialPruned
        seen.append(f"after {step}")


def trusts(trial: Any) -> None:
    for step in range(3):
        trial.report(0.0, step)
        seen.append(f"after {step}")


@pytest.mark.parametrize(("function", "told"), [(tidies, ["told at 1"]), (trusts, [])])
def test_an_objective_that_asks_is_told_when_its_trial_is_stopped(
    function: Callable[[Any], None], told: list[str]
) -> None:
    seen.clear()
    trained = wrap(function)({}, TrialContext(metric="loss"))
    trained.train()
    trained.train()
    trained.stop()
    assert seen == ["after 0", *told]


def several(trial: Any) -> tuple[float, float]:
    return trial.number, 1.0


def asks_the_study(trial: Any) -> float:
    return float(trial.study.best_value)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (several, "returned 2 values, but the spec names loss; name"),
        (asks_the_study, "no 'study', as it sees no"),
    ],
)
def test_what_a_trial_cannot_do_is_told(function: Callable[[Any], Any], said: str) -> None:
    with pytest.raises((TrainableError, AttributeError), match=said):
        results(function, {})


def test_several_values_are_named_in_the_order_of_the_spec() -> None:
    context = TrialContext(metric="loss", objectives=("size",), number=3)
    trained = wrap(several)({}, context)
    result = trained.train()
    assert (result["loss"], result["size"]) == (3, 1.0)
    trained.stop()


def half_known(trial: Any) -> Any:
    return 1.0, None


def test_a_value_that_is_no_number_stands_under_its_name() -> None:
    context = TrialContext(metric="loss", objectives=("size",))
    trained = wrap(half_known)({}, context)
    result = trained.train()
    assert (result["loss"], result["size"]) == (1.0, None)
    trained.stop()


def with_checkpoints(trial: Any) -> None:
    get_checkpoint()


def test_an_objective_that_reads_checkpoints_may_save() -> None:
    assert wrap(with_checkpoints).can_save()


# ---- finding what it asks for -------------------------------------------------------------------


def entries(function: Callable[[Any], Any], **config: Any) -> dict[str, Any]:
    """What an objective asks for, as it is written in a space."""
    found = explore(function, config, 60.0)
    assert found.is_finished
    assert not found.problem
    assert not [run.error for run in found.runs if run.error]
    return {name: one.entry for name, one in found.suggestions.items()}


def ranges(trial: Any) -> float:
    trial.suggest_float("plain", 0, 1)
    trial.suggest_float("log", 1e-5, 1, log=True)
    trial.suggest_float("steps", 0.0, 1.05, step=0.1)
    trial.suggest_float("one", 0.5, 0.5)
    trial.suggest_int("int", 1, 9)
    trial.suggest_int("even", 2, 9, step=2)
    trial.suggest_int("log_int", 1, 1000, log=True)
    trial.suggest_categorical("choice", ["a", None, (1, 2)])
    trial.suggest_loguniform("old_log", 0.1, 1)
    trial.suggest_discrete_uniform("old_steps", 0, 1, 0.5)
    return float(trial.suggest_float("fixed", 0, 1))


def test_each_kind_of_call_becomes_an_entry_of_the_space() -> None:
    assert entries(ranges, fixed=0.3) == {
        "plain": {"uniform": [0.0, 1.0]},
        "log": {"loguniform": [1e-5, 1.0]},
        "steps": {"uniform": [0.0, 1.0], "step": 0.1},
        "one": 0.5,
        "int": {"randint": [1, 9]},
        "even": {"randint": [2, 8], "step": 2},
        "log_int": {"lograndint": [1, 1000]},
        "choice": {"choice": ["a", None, [1, 2]]},
        "old_log": {"loguniform": [0.1, 1.0]},
        "old_steps": {"uniform": [0.0, 1.0], "step": 0.5},
    }


def branches(trial: Any) -> float:
    total = 0.0
    if trial.suggest_categorical("kind", ["line", "net"]) == "net":
        for layer in range(trial.suggest_int("layers", 1, 12)):
            total += trial.suggest_float(f"width{layer}", 0, 1)
    if total > 8:
        trial.suggest_float("wide", 0, 1)
    return total


def test_branches_are_followed_however_deep() -> None:
    found = entries(branches)
    assert {f"width{layer}" for layer in range(12)} <= found.keys()


def test_user_attributes_of_numpy_are_part_of_results() -> None:
    numbers = {"f1": np.float32(0.5), "rows": np.int64(3)}
    others = {"by": {"a": 1}, "is_ok": True, "names": ["a"], "all": np.zeros(2)}

    def scored(trial: Any) -> float:
        for name, value in {**numbers, **others}.items():
            trial.set_user_attr(name, value)
        return 1.0

    trainable = wrap(scored)({}, TrialContext(seed=1, metric="loss"))
    found = trainable.train()
    assert (found["loss"], found["f1"], found["rows"]) == (1.0, 0.5, 3)
    assert not others.keys() & found.keys()


def test_a_parameter_without_a_value_is_refused() -> None:
    def upside_down(trial: Any) -> float:
        return float(trial.suggest_int("n", 5, 2))

    def nothing(trial: Any) -> float:
        return float(trial.suggest_categorical("c", []))

    what = r"asks for 'n' with \{randint: \[5, 2\]\}, which has no value"
    assert re.search(what, explore(upside_down, {}, 60.0).problem)
    assert re.search(
        r"asks for 'c' with .*, which has no value", explore(nothing, {}, 60.0).problem
    )


def test_equal_objectives_are_explored_equally() -> None:
    one, other = explore(branches, {}, 60.0), explore(branches, {}, 60.0)
    assert one == other


trained: list[Any] = []


def train(trial: Any, x: float) -> float:
    trained.append(x)
    trial.set_user_attr("x", x)
    return x


def model(trial: Any, part: int) -> float:
    x = trial.suggest_float(f"x{part}", 0, 1)
    trial.set_user_attr("part", part)
    return float(x)


def plain(trial: Any) -> float:
    x = trial.suggest_float("x0", 0, 1)
    return train(trial, x)


def in_a_loop(trial: Any) -> float:
    x = 0.0
    for part in range(2):
        x += model(trial, part)
    return train(trial, x)


def in_an_expression(trial: Any) -> float:
    x = sum([model(trial, part) for part in range(2)])
    trained.append(x)
    return x


def in_a_block(trial: Any) -> float:
    with pytest.MonkeyPatch.context():
        x = 2.0
        if trial.number == 0:
            x = model(trial, 0)
        return train(trial, x)


def in_a_function_of_its_own(trial: Any) -> float:
    def inner() -> float:
        return float(trial.suggest_float("x0", 0, 1))

    x = inner()
    trained.append(x)
    return x


def of_more(data: list[int], trial: Any) -> float:
    return plain(trial)


class Object:
    def __call__(self, trial: Any) -> float:
        return plain(trial)


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (plain, ["x0"]),
        (in_a_loop, ["x0", "x1"]),
        (in_an_expression, ["x0", "x1"]),
        (in_a_block, ["x0"]),
        (in_a_function_of_its_own, ["x0"]),
        (functools.partial(of_more, [1]), ["x0"]),
        (lambda trial: of_more([1], trial), ["x0"]),
        (Object(), ["x0"]),
    ],
)
def test_it_is_run_up_to_its_last_suggestion_only(function: Any, names: list[str]) -> None:
    trained.clear()
    assert list(entries(function)) == names
    assert not trained


def reports(trial: Any) -> None:
    while True:
        trial.report(trial.suggest_float("x", 0, 1), 1)
        trained.append(1)


def test_it_is_run_up_to_its_first_report_at_most() -> None:
    trained.clear()
    assert list(entries(reports)) == ["x"]
    assert not trained


def never_ends(trial: Any) -> None:
    while True:
        trial.suggest_float("x", 0, 1)
        time.sleep(0.01)


def test_one_that_does_not_end_is_left_with_what_was_seen() -> None:
    found = explore(never_ends, {}, 0.2)
    assert not found.is_finished
    assert list(found.suggestions) == ["x"]


def changes(trial: Any) -> float:
    return float(trial.suggest_float("x", 0, trial.suggest_int("most", 1, 2)))


def chooses_classes(trial: Any) -> float:
    return float(trial.suggest_categorical("kind", [int, float])())


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (changes, "asks for 'x' with .* a parameter has one range"),
        (chooses_classes, "the names of these values"),
    ],
)
def test_what_no_space_can_express_is_told(function: Callable[[Any], Any], said: str) -> None:
    found: Exploration = explore(function, {}, 60.0)
    assert len(found.runs) <= 2
    with pytest.raises(AssertionError, match=said):
        raise AssertionError(found.problem)


def test_a_name_that_the_spec_has_may_be_asked_for_with_any_range() -> None:
    assert not explore(changes, {}, 60.0, fixed_names=["x"]).problem

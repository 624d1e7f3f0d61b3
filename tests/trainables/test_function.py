"""A function as a Trainable: it takes turns with its caller and continues from what it reported."""

import contextlib
import functools
import json
import multiprocessing
import random
import threading
import traceback
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import trainables
from tests.support.quadratic import expected_loss, quadratic_function
from trainables import Trainable, get_checkpoint, get_context, report
from trainables.errors import StateError, TrainableError
from trainables.function import thread as function_thread
from trainables.function import wrap
from trainables.trainable import TrialContext

CONFIG = {"noise": 0.3}
CONTEXT = TrialContext(seed=7, trial_id="t1")


def run(trainable: Trainable, limit: int = 100) -> list[dict[str, Any]]:
    """Results until the function is done."""
    results = []
    for _ in range(limit):
        results.append(trainable.train())
        if results[-1]["done"]:
            break
    trainable.stop()
    return results


def values(function: Any, config: dict[str, Any] | None = None) -> list[Any]:
    return [result.get("x") for result in run(wrap(function)(config or {}, CONTEXT))]


# ---- reports ------------------------------------------------------------------------------------


def test_one_report_is_one_iteration_and_the_return_ends_the_trial() -> None:
    results = run(wrap(quadratic_function)({**CONFIG, "iterations": 4}, CONTEXT))
    losses = [result["loss"] for result in results]
    assert losses[:4] == [expected_loss(CONFIG, k, 7) for k in (1, 2, 3, 4)]
    assert [result["done"] for result in results] == [False] * 4 + [True]


def test_the_end_of_a_function_is_no_iteration_and_repeats_its_last_result() -> None:
    results = run(wrap(quadratic_function)({**CONFIG, "iterations": 12}, CONTEXT))
    last, final = results[-2:]
    assert [result["training_iteration"] for result in results] == [*range(1, 13), 12]
    assert (last["done"], final["done"]) == (False, True)
    assert final["loss"] == last["loss"]
    assert final["timesteps_total"] == last["timesteps_total"] == 120
    assert final["timesteps_this_iter"] == 0


def test_a_logger_is_given_each_report_once() -> None:
    logged: list[dict[str, Any]] = []
    logger = SimpleNamespace(on_result=logged.append)
    run(wrap(quadratic_function)({**CONFIG, "iterations": 3}, CONTEXT, lambda config: logger))
    assert [result["training_iteration"] for result in logged] == [1, 2, 3]


@pytest.mark.parametrize("saves", [True, False])
def test_a_function_that_has_ended_stands_where_its_last_report_left_it(
    saves: bool, tmp_path: Path
) -> None:
    config = {**CONFIG, "iterations": 4, "save_every": 1 if saves else 3}
    trainable = wrap(quadratic_function)(config, CONTEXT)
    for _ in range(4):
        trainable.train()
    before = trainable.save(tmp_path / "before").read_bytes()
    assert not trainable.has_ended
    trainable.train()
    assert (trainable.has_ended, trainable.at_checkpoint) == (True, saves)
    assert trainable.save(tmp_path / "after").read_bytes() == before
    trainable.stop()


def test_a_returned_dict_is_the_last_report() -> None:
    def train(config: dict[str, Any]) -> dict[str, Any]:
        report({"x": 1})
        return {"x": 2}

    assert values(train) == [1, 2]


def test_a_function_that_only_returns_a_dict_is_done_at_once() -> None:
    assert values(lambda config: {"x": config["y"]}, {"y": 3}) == [3]


@pytest.mark.parametrize(
    "returned", [2, 2.0, np.float32(2), np.array(2), torch.tensor(2.0), Fraction(2)]
)
def test_a_returned_number_is_the_metric_of_the_sweep(returned: Any) -> None:
    def train(config: dict[str, Any]) -> Any:
        for value in config["before"]:
            report({"x": value})
        return returned

    context = TrialContext(metric="x")
    for before in ([], [0, 1]):
        results = run(wrap(train)({"before": before}, context))
        assert [result["x"] for result in results] == [*before, 2]
        assert [result["training_iteration"] for result in results] == [*range(1, len(before) + 2)]


class Adds:
    """An object that can be called."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __call__(self, config: dict[str, Any]) -> dict[str, Any]:
        return {"x": config["y"] + self.number}

    def method(self, config: dict[str, Any]) -> dict[str, Any]:
        return self(config)


def adds(config: dict[str, Any], number: int) -> dict[str, Any]:
    """Add two numbers."""
    return {"x": config["y"] + number}


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (functools.partial(functools.partial(adds), number=2), "adds"),
        *((Adds(2), "Adds"), (Adds(2).method, "method")),
    ],
)
def test_whatever_can_be_called_is_a_function(given: Any, name: str) -> None:
    assert values(given, {"y": 3}) == [5]
    kind = wrap(given)
    assert (kind.__name__, kind.__module__, kind.can_save()) == (name, __name__, True)


def test_nothing_runs_between_two_steps() -> None:
    seen: list[int] = []

    def train(config: dict[str, Any]) -> None:
        for i in range(3):
            seen.append(i)
            report({"x": i})

    trainable = wrap(train)()
    assert seen == []
    for i in range(3):
        trainable.train()
        assert seen == list(range(i + 1))
    trainable.stop()


def test_the_context_is_the_trials() -> None:
    def train(config: dict[str, Any]) -> dict[str, Any]:
        return {"x": (get_context().seed, get_context().trial_id)}

    assert values(train) == [(7, "t1")]


def test_two_functions_at_once_do_not_meet() -> None:
    kind = wrap(quadratic_function)
    one, other = kind(CONFIG, CONTEXT), kind(CONFIG, TrialContext(seed=8))
    for k in (1, 2, 3):
        assert one.train()["loss"] == expected_loss(CONFIG, k, 7)
        assert other.train()["loss"] == expected_loss(CONFIG, k, 8)
    one.stop()
    other.stop()


def test_a_class_made_of_a_function_keeps_its_name() -> None:
    kind = wrap(quadratic_function)
    assert (kind.__name__, kind.__module__) == ("quadratic_function", quadratic_function.__module__)
    assert trainables.report is report


# ---- mistakes -----------------------------------------------------------------------------------


def test_an_error_is_raised_from_step_with_its_own_traceback() -> None:
    def breaks_here() -> None:
        raise KeyError("oh")

    def train(config: dict[str, Any]) -> None:
        report({"x": 1})
        breaks_here()

    trainable = wrap(train)()
    trainable.train()
    with pytest.raises(KeyError, match="oh") as caught:
        trainable.train()
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert names[-2:] == ["train", "breaks_here"]
    with pytest.raises(TrainableError, match="has ended"):
        trainable.train()


def test_a_function_that_exits_is_an_error_of_its_trial() -> None:
    def train(config: dict[str, Any]) -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        wrap(train)().train()


def test_a_function_that_is_called_by_hand_prints_what_it_reports(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def train(config: dict[str, Any]) -> int:
        start = get_checkpoint() or {"i": 0}
        assert get_context().trial_id == "default"
        for i in range(start["i"] + 1, 3):
            metrics = {"loss": torch.tensor(config["k"] / i), "eval": {"n": i, "of": "all"}}
            report(metrics, checkpoint={"i": i})
        return int(start["i"])

    run(wrap(train)({"k": 1.0}, TrialContext(metric="loss")))
    assert capsys.readouterr().out == ""
    assert [train({"k": 1}), train({"k": 1})] == [0, 0], "nothing is left of the first call"
    lines = ["report: loss 1, eval/n 1, eval/of 'all'", "report: loss 0.5, eval/n 2, eval/of 'all'"]
    assert capsys.readouterr().out.splitlines() == 2 * lines


def test_by_hand_mistakes_are_those_of_a_sweep() -> None:
    with pytest.raises(TrainableError, match=r"report\(\) was given 3; expected a dict"):
        report(3)  # type: ignore[arg-type]
    with pytest.raises(StateError, match=r"^checkpoint\.a: "):
        report({}, checkpoint={"a": object()})


def test_a_process_of_the_function_cannot_report() -> None:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        for call in (get_checkpoint, get_context):
            with pytest.raises(TrainableError, match="not in threads or processes that it starts"):
                pool.submit(call).result()


def test_a_thread_of_the_function_cannot_report() -> None:
    errors: list[str] = []

    def helper() -> None:
        try:
            report({})
        except TrainableError as error:
            errors.append(str(error))

    def train(config: dict[str, Any]) -> None:
        thread = threading.Thread(target=helper)
        thread.start()
        thread.join()
        report({})

    run(wrap(train)())
    assert "thread" in errors[0]


def reports_nothing(config: dict[str, Any]) -> None:
    pass


def reports_to_others(config: dict[str, Any]) -> None:
    if config:
        import wandb  # type: ignore[import-not-found]  # to be named is enough

        wandb.log({"x": 1})


#: Its global name `report` is something else, as another library's import leaves it.
calls_another_report = FunctionType(
    reports_nothing.__code__.replace(co_names=("report",)), {"report": contextlib.suppress}
)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (reports_nothing, r"^reports_nothing\(\) ended without a result; call report\({'x': "),
        (functools.partial(reports_nothing), r"^reports_nothing\(\) ended without a result; "),
        (lambda config: None, r"^<lambda>\(\) ended without a result; .* trainables .* return x$"),
        (reports_to_others, "; sweep does not see what it logs to wandb$"),
        (calls_another_report, r"; it calls the report\(\) of contextlib instead$"),
    ],
)
def test_a_function_without_a_result_is_told_how_to_report(function: Any, words: str) -> None:
    with pytest.raises(TrainableError, match=words):
        wrap(function)({}, TrialContext(metric="x")).train()


@pytest.mark.parametrize("wrong", [3, None, [("x", 1)]])
def test_metrics_must_be_a_dict(wrong: Any) -> None:
    with pytest.raises(TrainableError, match="expected a dict of metrics"):
        wrap(lambda config: report(wrong))().train()


@pytest.mark.parametrize("wrong", [True, np.True_, "x", [1.0], np.zeros(1)])
def test_a_function_must_return_a_dict_a_number_or_nothing(wrong: Any) -> None:
    with pytest.raises(TrainableError, match=r"the training function returned .*; expected a dict"):
        wrap(lambda config: wrong)({}, TrialContext(metric="x")).train()


def test_outside_a_sweep_a_returned_number_has_no_name() -> None:
    with pytest.raises(TrainableError, match="the training function returned 3; expected a dict"):
        wrap(lambda config: 3)().train()


@pytest.mark.parametrize(
    ("checkpoint", "place"),
    [({"a": [object()]}, "checkpoint.a[0]"), ("no folder", "checkpoint"), (3j, "checkpoint")],
)
def test_a_checkpoint_that_cannot_be_kept_is_refused_where_it_is_reported(
    checkpoint: Any, place: str
) -> None:
    def train(config: dict[str, Any]) -> None:
        report({"x": 1}, checkpoint=checkpoint)

    trainable = wrap(train)()
    with pytest.raises(StateError) as caught:
        trainable.train()
    assert caught.value.path == place
    assert not trainable.at_checkpoint
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert "train" in names


def test_of_a_file_the_folder_is_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "model.pt"
    file.write_text("weights")
    with pytest.raises(
        StateError, match=r"model.pt', a file, .*; give the folder that contains it"
    ):
        report({}, checkpoint=file)


@pytest.mark.parametrize(
    "held", [torch.nn.Linear(1, 1), torch.optim.SGD(torch.nn.Linear(1, 1).parameters())]
)
def test_what_has_a_state_dict_is_saved_by_it(held: Any) -> None:
    with pytest.raises(StateError, match=r"^checkpoint.held: .*; pass its state_dict\(\), "):
        report({}, checkpoint={"held": held})
    report({}, checkpoint={"held": held.state_dict()})


def test_a_folder_without_files_is_no_checkpoint_of_a_function(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        report({"x": 1}, checkpoint=tmp_path)

    with pytest.raises(StateError, match="a folder without files"):
        wrap(train)().train()


# ---- checkpoints --------------------------------------------------------------------------------


def test_a_checkpoint_is_a_copy_of_the_moment(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        weights = {"w": np.zeros(200)}
        report({"x": 0}, checkpoint=weights)
        assert get_checkpoint()["w"][0] == 0
        weights["w"][0] = 1
        assert get_checkpoint()["w"][0] == 0
        report({"x": 1})

    trainable = wrap(train)()
    trainable.train()
    path = trainable.save(tmp_path)
    trainable.train()
    assert trainable.save(tmp_path) == path
    trainable.stop()


@pytest.mark.parametrize("stopped_after", [3, 4, 5])
def test_a_restored_function_continues_from_its_last_checkpoint(
    stopped_after: int, tmp_path: Path
) -> None:
    config = {**CONFIG, "save_every": 3}
    kind = wrap(quadratic_function)
    first = kind(config, CONTEXT)
    for _ in range(stopped_after):
        first.train()
    assert first.at_checkpoint == (stopped_after == 3)
    path = first.save(tmp_path)
    first.stop()
    second = kind(config, CONTEXT)
    second.restore(path)
    assert second.at_checkpoint
    assert second.iteration == 3
    assert second.save(tmp_path) == path
    for k in (4, 5, 6, 7):
        result = second.train()
        assert result["training_iteration"] == k
        assert result["loss"] == expected_loss(config, k, 7)
        assert result["timesteps_total"] == 10 * k
    second.stop()


def test_a_function_stopped_at_its_very_end_gives_the_same_last_result(tmp_path: Path) -> None:
    config = {**CONFIG, "iterations": 3}
    kind = wrap(quadratic_function)
    expected = run(kind(config, CONTEXT))[-1]
    first = kind(config, CONTEXT)
    for _ in range(3):
        first.train()
    second = kind(config, CONTEXT)
    second.restore(first.save(tmp_path))
    first.stop()
    final = second.train()
    second.stop()
    for key in ("loss", "done", "training_iteration", "timesteps_total", "timesteps_this_iter"):
        assert final[key] == expected[key]


def test_without_a_checkpoint_nothing_can_be_saved(tmp_path: Path) -> None:
    trainable = wrap(lambda config: report({"x": 1}))()
    assert trainable.can_save()
    assert not trainable.at_checkpoint
    trainable.train()
    assert not trainable.at_checkpoint
    with pytest.raises(StateError, match=r"call report\(metrics, checkpoint=\.\.\.\)"):
        trainable.save(tmp_path)
    trainable.stop()


def test_a_folder_is_read_at_once_and_given_back_as_a_folder(tmp_path: Path) -> None:
    given: list[Path] = []

    def train(config: dict[str, Any]) -> None:
        start = get_checkpoint()
        first = 0
        if start is not None:
            given.append(Path(start))
            first = json.loads((Path(start) / "sub" / "i.json").read_text()) + 1
        for i in range(first, 5):
            (tmp_path / "sub").mkdir(exist_ok=True)
            (tmp_path / "sub" / "i.json").write_text(str(i))
            report({"x": i}, checkpoint=tmp_path)
            (tmp_path / "sub" / "i.json").unlink()

    kind = wrap(train)
    first = kind()
    first.train()
    first.train()
    second = kind()
    second.restore(first.save(tmp_path / "saved"))
    first.stop()
    assert second.train()["x"] == 2
    assert given[0].is_dir()
    second.stop()
    assert not given[0].exists()


def _drawing(config: dict[str, Any]) -> None:
    """Builds with random draws, then continues, and draws from the global streams at every step."""
    weight = random.random() + np.random.random()  # noqa: NPY002, S311 as users do
    start, first = get_checkpoint(), 0
    if start is not None:
        weight, first = start["weight"], start["i"] + 1
    for i in range(first, 6):
        weight += random.gauss(0, 1) + np.random.standard_normal()  # noqa: NPY002
        get_checkpoint()  # only the first one puts the streams back
        report({"x": weight}, checkpoint={"weight": weight, "i": i} if i % 2 else None)


def test_what_is_drawn_to_build_a_model_changes_nothing_after_a_restore(tmp_path: Path) -> None:
    expected = values(_drawing)
    kind = wrap(_drawing)
    first = kind({}, CONTEXT)
    for _ in range(3):
        first.train()
    path = first.save(tmp_path)
    first.stop()
    second = kind({}, CONTEXT)
    second.restore(path)
    assert [second.train()["x"] for _ in range(4)] == expected[2:6]
    second.stop()


def test_after_a_report_the_streams_are_not_put_back(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        get_checkpoint()
        for _ in range(4):
            report({"x": random.random()}, checkpoint={})  # noqa: S311
            get_checkpoint()

    kind = wrap(train)
    first = kind({}, CONTEXT)
    expected = [first.train()["x"] for _ in range(2)]
    path = first.save(tmp_path)
    expected += [first.train()["x"] for _ in range(2)]
    first.stop()
    second = kind({}, CONTEXT)
    second.restore(path)
    assert [second.train()["x"] for _ in range(2)] == expected[2:]
    second.stop()


def test_the_global_streams_of_a_checkpoint_are_those_of_its_report(tmp_path: Path) -> None:
    trainable = wrap(_drawing)({}, CONTEXT)
    trainable.train()
    trainable.train()
    at_report = trainable.get_state()["streams"]["python"]
    trainable.train()
    assert trainable.get_state()["streams"]["python"] == at_report
    trainable.stop()


# ---- the end ------------------------------------------------------------------------------------


def test_stopping_ends_the_thread_and_lets_the_function_clean_up() -> None:
    left: list[str] = []

    def train(config: dict[str, Any]) -> None:
        try:
            while True:
                with contextlib.suppress(Exception):
                    report({"x": 1})
        finally:
            left.append("cleaned up")

    before = set(threading.enumerate())
    trainable = wrap(train)()
    trainable.train()
    (thread,) = set(threading.enumerate()) - before
    trainable.stop()
    assert left == ["cleaned up"]
    assert not thread.is_alive()


def test_stopping_before_the_first_step_or_twice_is_fine() -> None:
    trainable = wrap(quadratic_function)()
    trainable.stop()
    trainable.train()
    trainable.stop()
    trainable.stop()


def test_a_function_that_does_not_leave_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function_thread, "STOP_TIMEOUT_S", 0.01)
    end = threading.Event()

    def train(config: dict[str, Any]) -> None:
        try:
            report({"x": 1})
        finally:
            end.wait(60)

    trainable = wrap(train)()
    trainable.train()
    trainable.stop()
    end.set()


def test_an_interrupted_wait_can_be_taken_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the caller does not put it and the function out of step."""
    trainable = wrap(quadratic_function)(CONFIG, CONTEXT)
    trainable.train()
    thread = trainable._thread  # type: ignore[attr-defined]  # the wait has no other door
    paused = thread._paused

    def interrupted() -> None:
        monkeypatch.setattr(thread, "_paused", paused)
        raise KeyboardInterrupt

    monkeypatch.setattr(thread, "_paused", SimpleNamespace(get=interrupted, put=paused.put))
    with pytest.raises(KeyboardInterrupt):
        trainable.train()
    assert trainable.train()["loss"] == expected_loss(CONFIG, 2, 7)
    assert trainable.train()["loss"] == expected_loss(CONFIG, 3, 7)
    trainable.stop()


# ---- without checkpoints ------------------------------------------------------------------------


def without(config: dict[str, Any]) -> None:
    for i in range(4):
        report({"x": i})


def by_a_helper(config: dict[str, Any]) -> None:
    report({"x": 0})
    _reports_with_one()


def _reports_with_one() -> None:
    report({"x": 1}, checkpoint={"i": 1})


def by_position(config: dict[str, Any]) -> None:
    report({"x": 1}, {"i": 1})


def by_keywords(config: dict[str, Any]) -> None:
    report({"x": 1}, **config)


def by_another_name(config: dict[str, Any]) -> None:
    tell = report
    report({"x": 0})
    tell({"x": 1}, {"i": 1})


def by_a_class(config: dict[str, Any]) -> None:
    report({"x": 0})
    _Reporter().tell()


class _Reporter:
    def tell(self) -> None:
        trainables.report({"x": 1}, checkpoint={})


def through_the_module(config: dict[str, Any]) -> None:
    trainables.report({"x": 1})


def reports_elsewhere(config: dict[str, Any]) -> None:
    by_position(config)


@pytest.mark.parametrize("function", [without, through_the_module])
def test_a_function_whose_reports_have_no_checkpoint_cannot_save(function: Any) -> None:
    assert not wrap(function).can_save()


@pytest.mark.parametrize(
    "function",
    [
        *(quadratic_function, by_a_helper, by_position, by_keywords, by_another_name, by_a_class),
        *(reports_elsewhere, lambda config: report({"x": 1})),
    ],
)
def test_where_that_is_not_sure_it_may_save(function: Any) -> None:
    assert wrap(function).can_save()


def forgetful(config: dict[str, Any]) -> None:
    for i in range(6):
        with contextlib.suppress(ValueError):
            report({"x": i}, checkpoint={"i": i})


def ends_at_once(config: dict[str, Any]) -> None:
    if config.get("reports"):
        report({"x": 1}, checkpoint={})


@pytest.mark.parametrize("function", [forgetful, ends_at_once])
def test_a_restored_function_that_does_not_ask_for_its_checkpoint_is_refused(
    function: Any, tmp_path: Path
) -> None:
    trainable = wrap(function)({"reports": True}, CONTEXT)
    trainable.train()
    path = trainable.save(tmp_path)
    trainable.stop()
    again = wrap(function)({}, CONTEXT)
    again.restore(path)
    with pytest.raises(TrainableError) as caught:
        again.train()
    again.stop()
    said = str(caught.value)
    assert said.startswith(
        f"{function.__name__}() continues from a checkpoint but has not called get_checkpoint()"
    )
    assert '`start = get_checkpoint()` and `first = 0 if start is None else start["i"] + 1`' in said

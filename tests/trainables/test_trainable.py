"""What every Trainable provides: results, counters, and checkpoints that change nothing."""

import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from tests.support.quadratic import Quadratic, RayStyle, expected_loss, quadratic_function
from tests.support.trainers import SMALL, differences, make, stable
from trainables import Trainable
from trainables.algorithms.ppo import PPO
from trainables.checkpoint import file
from trainables.checkpoint.signing import Opaque, Trust
from trainables.core.results import TRAINERS_OWN, VOLATILE_KEYS
from trainables.errors import CheckpointError, ConfigError, StateError, TrainableError
from trainables.function import get_checkpoint, report, wrap
from trainables.trainable import TrialContext, gives_data

CONFIG = {"noise": 0.3, "lr": 0.05}
CONTEXT = TrialContext(seed=7)
ITERATIONS = 6
KINDS: list[type[Trainable]] = [Quadratic, RayStyle, wrap(quadratic_function)]

every_kind = pytest.mark.parametrize("kind", KINDS, ids=["class", "ray class", "function"])


def steady(result: dict[str, Any]) -> dict[str, Any]:
    """The part of a result that two equal runs share."""
    return {key: value for key, value in result.items() if key not in VOLATILE_KEYS}


def straight(kind: type[Trainable], iterations: int = ITERATIONS) -> list[dict[str, Any]]:
    trainable = kind(CONFIG, CONTEXT)
    results = [steady(trainable.train()) for _ in range(iterations)]
    trainable.stop()
    return results


# ---- equality: never saved, saved every iteration, restored -------------------------------------


@every_kind
def test_saving_every_iteration_changes_nothing(kind: type[Trainable], tmp_path: Path) -> None:
    expected = straight(kind)
    trainable = kind(CONFIG, CONTEXT)
    results = []
    for _ in range(ITERATIONS):
        results.append(steady(trainable.train()))
        trainable.save(tmp_path)
    trainable.stop()
    assert results == expected


@every_kind
def test_a_restored_trainable_equals_the_uninterrupted_one(
    kind: type[Trainable], tmp_path: Path
) -> None:
    expected = straight(kind)
    trainable, results = kind(CONFIG, CONTEXT), []
    for _ in range(ITERATIONS):
        results.append(steady(trainable.train()))
        path = trainable.save(tmp_path)
        trainable.stop()
        random.seed(1)  # noqa: TID251 somebody else's chance in between
        np.random.standard_normal(3)  # noqa: NPY002
        trainable = kind(CONFIG, CONTEXT)
        trainable.restore(path)
    trainable.stop()
    assert results == expected


@pytest.mark.parametrize("name", ["Quadratic", "RayStyle", "quadratic_function"])
def test_a_fresh_process_continues_equally(name: str, tmp_path: Path) -> None:
    course = (
        "import json, sys; from pathlib import Path; from tests.support import quadratic as q\n"
        "from trainables.function import wrap; from trainables.trainable import TrialContext\n"
        f"kind = q.{name} if isinstance(q.{name}, type) else wrap(q.{name})\n"
        f"t = kind({CONFIG!r}, TrialContext(seed=7)); folder = Path({str(tmp_path)!r})\n"
        "for path in folder.glob('*.swck'): t.restore(path); path.unlink()\n"
        "losses = [t.train()['loss'] for _ in range(3)]; t.save(folder); t.stop()\n"
        "print(json.dumps(losses))"
    )
    losses: list[float] = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", course], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        losses += eval(done.stdout)  # noqa: S307 a list of numbers that the line above printed
    kinds = dict(zip(["Quadratic", "RayStyle", "quadratic_function"], KINDS, strict=True))
    assert losses == [result["loss"] for result in straight(kinds[name])]


@every_kind
def test_a_trainable_after_three_others_in_one_process_is_the_same(kind: type[Trainable]) -> None:
    expected = straight(kind)
    for seed in (1, 2, 3):
        other = kind(CONFIG, TrialContext(seed=seed))
        other.train()
        other.stop()
    assert straight(kind) == expected


@pytest.mark.parametrize("kind", [Quadratic, wrap(quadratic_function)], ids=["class", "function"])
def test_the_results_are_the_known_ones(kind: type[Trainable]) -> None:
    losses = [result["loss"] for result in straight(kind)]
    assert losses == [expected_loss(CONFIG, k + 1, 7) for k in range(ITERATIONS)]


@pytest.mark.parametrize("entry", ["x", "stream"])
def test_the_equality_fails_when_a_part_of_the_state_is_left_out(
    entry: str, tmp_path: Path
) -> None:
    class Forgetful(Quadratic):
        def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
            fresh = self.save_checkpoint("")
            super().load_checkpoint({**checkpoint, entry: fresh[entry]})

    first = Forgetful(CONFIG, CONTEXT)
    results = [steady(first.train()) for _ in range(3)]
    second = Forgetful(CONFIG, CONTEXT)
    second.restore(first.save(tmp_path))
    results += [steady(second.train()) for _ in range(3)]
    assert results != straight(Quadratic)


def test_the_equality_fails_when_the_global_streams_are_left_out() -> None:
    expected = straight(RayStyle, 2)[1]["loss"]
    first = RayStyle(CONFIG, CONTEXT)
    first.train()
    state = first.get_state()
    second = RayStyle(CONFIG, CONTEXT)
    fresh = second.get_state()["streams"]
    second.set_state({**state, "streams": fresh})
    assert second.train()["loss"] != expected
    second.set_state(state)
    assert second.train()["loss"] == expected


def test_random_draws_in_saving_change_nothing() -> None:
    class ActionDistribution(RayStyle):
        def save_checkpoint(self, checkpoint_dir: str) -> None:
            random.random()  # noqa: S311
            super().save_checkpoint(checkpoint_dir)

    trainable, losses = ActionDistribution(CONFIG, CONTEXT), []
    for _ in range(3):
        losses.append(trainable.train()["loss"])
        trainable.get_state()
    assert losses == [result["loss"] for result in straight(RayStyle, 3)]


# ---- results and counters -----------------------------------------------------------------------


@every_kind
def test_results_carry_the_usual_keys(kind: type[Trainable]) -> None:
    trainable = kind(CONFIG, TrialContext(seed=7, trial_id="t1", trial_name="lr=0.05"))
    trainable.train()
    result = trainable.train()
    trainable.stop()
    assert result["training_iteration"] == 2
    assert result["timesteps_total"] == 20
    assert result["timesteps_this_iter"] == 10
    assert result["done"] is False
    assert result["trial_id"] == "t1"
    assert result["experiment_tag"] == "lr=0.05"
    assert result["config"] == CONFIG
    assert result["iterations_since_restore"] == 2
    assert result.keys() >= VOLATILE_KEYS - TRAINERS_OWN


@every_kind
def test_counters_continue_after_a_restore(kind: type[Trainable], tmp_path: Path) -> None:
    first = kind(CONFIG, CONTEXT)
    for _ in range(3):
        first.train()
    second = kind(CONFIG, CONTEXT)
    second.restore(first.save(tmp_path))
    assert second.iteration == 3
    result = second.train()
    first.stop()
    second.stop()
    assert result["training_iteration"] == 4
    assert result["timesteps_total"] == 40
    assert result["iterations_since_restore"] == 1
    assert result["timesteps_since_restore"] == 10


def test_totals_and_steps_follow_from_each_other() -> None:
    class Totals(Trainable):
        def step(self) -> dict[str, Any]:
            return {"timesteps_total": 7 * (self.iteration + 1), "episodes_this_iter": 2}

    trainable = Totals()
    trainable.train()
    result = trainable.train()
    assert (result["timesteps_this_iter"], result["episodes_total"]) == (7, 4)


@pytest.mark.parametrize("number", [torch.tensor, np.array, np.float32])
def test_counts_may_be_numbers_of_numpy_and_torch(number: Callable[[int], Any]) -> None:
    class Counting(Trainable):
        def step(self) -> dict[str, Any]:
            return {"timesteps_this_iter": number(5), "episodes_total": number(3)}

    trainable = Counting()
    first, second = trainable.train(), trainable.train()
    assert [one["timesteps_total"] for one in (first, second)] == [5, 10]
    assert type(second["timesteps_total"]) in (int, float)
    assert (second["episodes_total"], second["episodes_this_iter"]) == (3, 0)


@pytest.mark.parametrize("key", ["timesteps_total", "episodes_this_iter"])
@pytest.mark.parametrize("value", ["12", [1], True])
def test_a_count_that_is_no_number_is_named(key: str, value: Any) -> None:
    class Wrong(Trainable):
        def step(self) -> dict[str, Any]:
            return {key: value}

    with pytest.raises(TrainableError, match=f"the result's {key} is .*; expected a number"):
        Wrong().train()


def test_a_step_that_returns_no_dict_is_named() -> None:
    class Wrong(Trainable):
        def step(self) -> Any:
            return 3

    with pytest.raises(TrainableError, match=r"Wrong\.step\(\) returned 3; expected a dict"):
        Wrong().train()


def test_an_error_in_a_step_is_raised_as_it_is() -> None:
    trainable = Quadratic({"fail_at": 2})
    trainable.train()
    with pytest.raises(RuntimeError, match="fail_at: 2"):
        trainable.train()


# ---- saving, restoring, resetting ---------------------------------------------------------------


def test_only_classes_that_define_how_can_save() -> None:
    class CannotSave(Trainable):
        pass

    assert not CannotSave.can_save()
    assert all(kind.can_save() for kind in KINDS)
    with pytest.raises(NotImplementedError, match="CannotSave must define save_checkpoint"):
        CannotSave().get_state()


def test_state_that_is_no_data_is_refused_by_path(tmp_path: Path) -> None:
    class Careless(Quadratic):
        def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
            return {"agent": {"lock": object()}}

    with pytest.raises(StateError, match=r"^state\.trainable\.data\.agent\.lock: "):
        Careless().save(tmp_path)


def test_no_folder_is_made_for_a_save_that_is_known_to_write_no_files(tmp_path: Path) -> None:
    class Counts(Quadratic):
        folders: ClassVar[list[str]] = []

        @gives_data
        def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
            self.folders.append(checkpoint_dir)
            return super().save_checkpoint(checkpoint_dir)

    class WritesFiles(Counts):
        def save_checkpoint(self, checkpoint_dir: str) -> Any:
            self.folders.append(checkpoint_dir)
            (Path(checkpoint_dir) / "x").write_text("1")

        def load_checkpoint(self, checkpoint: Any) -> None:
            assert (Path(checkpoint) / "x").read_text() == "1"

    again = Counts(CONFIG, CONTEXT)
    again.restore(Counts(CONFIG, CONTEXT).save(tmp_path))
    assert Counts.folders == [""]
    files = WritesFiles(CONFIG, CONTEXT)
    files.restore(files.save(tmp_path))
    assert Counts.folders[-1]


def test_files_in_subfolders_come_back(tmp_path: Path) -> None:
    class Files(RayStyle):
        def save_checkpoint(self, checkpoint_dir: str) -> None:
            (Path(checkpoint_dir) / "a" / "b").mkdir(parents=True)
            (Path(checkpoint_dir) / "a" / "b" / "c.bin").write_bytes(b"\0" * 5000)

        def load_checkpoint(self, checkpoint: str) -> None:
            assert (Path(checkpoint) / "a" / "b" / "c.bin").read_bytes() == b"\0" * 5000

    trainable = Files()
    trainable.restore(trainable.save(tmp_path))


class OlderRayStyle(RayStyle):
    """Returns where it wrote, as older documentation of Ray Tune has it."""

    #: What is returned, made of the folder.
    where: ClassVar[Callable[[str], Any]] = str
    file = "."
    given: Any = None

    def save_checkpoint(self, checkpoint_dir: str) -> Any:
        target = Path(checkpoint_dir) / self.file
        target.parent.mkdir(exist_ok=True)
        super().save_checkpoint(str(target.parent))
        return type(self).where(checkpoint_dir)

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.given = checkpoint
        folder = Path(checkpoint)
        super().load_checkpoint(str(folder.parent if folder.is_file() else folder))


@pytest.mark.parametrize(
    ("file", "where", "is_file"),
    [
        ("weights.json", str, False),
        ("weights.json", Path, False),
        ("weights.json", lambda folder: f"{folder}/", False),
        ("weights.json", lambda folder: os.path.join(folder, "weights.json"), True),  # noqa: PTH118
        ("weights.json", lambda folder: Path(folder) / "weights.json", True),
        ("last/weights.json", lambda folder: f"{folder}/last", False),
        ("last/weights.json", lambda folder: f"{folder}/last/weights.json", True),
    ],
    ids=["text", "path", "slash", "file", "file's path", "folder in it", "file in that"],
)
def test_a_path_in_the_folder_that_is_returned_is_given_back(
    file: str,
    where: Callable[[str], Any],
    is_file: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(OlderRayStyle, "file", file)
    monkeypatch.setattr(OlderRayStyle, "where", where)
    first, second = OlderRayStyle(CONFIG, CONTEXT), OlderRayStyle(CONFIG, CONTEXT)
    first.train()
    second.restore(first.save(tmp_path))
    assert second.x == first.x
    assert isinstance(second.given, str)
    assert second.given.endswith("weights.json") == is_file


def _nothing(folder: Path) -> None:
    """Writes and returns nothing."""


def _writes(returned: object) -> Callable[[Path], object]:
    def save(folder: Path) -> object:
        (folder / "a.bin").write_bytes(b"a")
        return returned

    return save


def _links(folder: Path) -> None:
    (folder / "5.bin").write_bytes(b"5")
    (folder / "newest.bin").symlink_to(folder / "5.bin")


def _pipes(folder: Path) -> None:
    os.mkfifo(folder / "pipe")


@pytest.mark.parametrize(
    ("saves", "words"),
    [
        (_nothing, "None, without a file in the folder"),
        (str, "None, without a file in the folder"),
        (lambda folder: folder / "a.bin", "a.bin', which is not in the folder"),
        (_writes("/"), "the path '/', which is not in the folder"),
        (_writes("a.bin"), "the path 'a.bin', which is not in the folder"),
        (_writes(""), "which is not in the folder"),
        (_writes({"x": 1}), r"in addition to files \(a.bin\)"),
        (lambda _: [1, 2], r"a list, \[1, 2\], .*return a dict of plain data"),
        (lambda _: 3, "an int, 3,"),
        (_links, "'newest.bin', a link"),
        (_pipes, "'pipe', a link, pipe or device"),
    ],
    ids=[
        *("nothing", "empty", "absent", "outside", "relative", "no path", "dict and files"),
        *("list", "number", "link", "pipe"),
    ],
)
@pytest.mark.parametrize("pickles", [False, True])
def test_what_could_not_be_given_back_is_refused_when_it_is_saved(
    saves: Callable[[Path], object], words: str, pickles: bool, tmp_path: Path
) -> None:
    class Careless(RayStyle):
        unsafe_pickle = pickles

        taken: Any = None

        def save_checkpoint(self, checkpoint_dir: str) -> Any:
            return saves(Path(checkpoint_dir))

        def load_checkpoint(self, checkpoint: Any) -> None:
            self.taken = checkpoint

    trainable = Careless()
    if pickles and words.startswith(("a ", "an ")):
        trainable.restore(trainable.save(tmp_path))
        assert trainable.taken in ([1, 2], 3)
        return
    with pytest.raises(StateError, match=words) as caught:
        trainable.save(tmp_path)
    assert str(caught.value).startswith("Careless.save_checkpoint(): ")
    assert list(tmp_path.iterdir()) == []


def test_a_class_that_saves_and_cannot_load_is_refused_at_its_first_save() -> None:
    class Oneway(Trainable):
        def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
            return {"x": 1}

    with pytest.raises(StateError, match=r"define Oneway.load_checkpoint\(checkpoint\)"):
        Oneway().get_state()


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x"])
@pytest.mark.parametrize("entry", ["files", "path"])
def test_a_file_that_leads_out_of_its_folder_is_refused(name: str, entry: str) -> None:
    trainable = RayStyle()
    state = trainable.get_state()
    state["trainable"][entry] = {name: Opaque(b"x")} if entry == "files" else name
    with pytest.raises(TrainableError, match="inside its folder"):
        trainable.set_state(state)


def _saves_files(config: dict[str, Any]) -> None:
    """Report a folder as the checkpoint of each of two iterations."""
    get_checkpoint()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "weights.json").write_text("{}")
        for _ in range(2):
            report({"x": 1.0}, checkpoint=folder)


@pytest.mark.parametrize("kind", [RayStyle, wrap(_saves_files)])
def test_files_of_a_checkpoint_that_nobody_signed_are_not_written(
    kind: type[Trainable], tmp_path: Path
) -> None:
    """An array has an attribute `data` too, and needs no signature to be read."""
    one = kind(CONFIG, TrialContext(logdir=tmp_path / "one"))
    one.train()
    state = one.get_state()
    one.stop()
    kept = _kept_files(state)
    assert kept
    kept.update({name: np.frombuffer(content.data, np.uint8) for name, content in kept.items()})
    path = file.write(tmp_path, 1, {}, state, trust=Trust(b"")).path
    other = kind(CONFIG, TrialContext(logdir=tmp_path / "other"))
    with pytest.raises(TrainableError, match="a ndarray in place of a file's bytes"):
        other.restore(path)
        other.train()
    other.stop()


def _kept_files(state: Any) -> Any:
    """Return the mapping of files that stands somewhere in a state."""
    if not isinstance(state, dict):
        return None
    return state.get("files") or next(filter(None, map(_kept_files, state.values())), None)


def test_restoring_from_what_is_no_checkpoint_says_so(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("hello")
    with pytest.raises(CheckpointError, match="SWCK"):
        Quadratic().restore(tmp_path / "x")


@pytest.mark.parametrize("kind", [Quadratic, RayStyle])
def test_a_reset_trainable_equals_a_new_one(kind: type[Trainable]) -> None:
    used = kind({"lr": 0.2}, TrialContext(seed=1))
    used.train()
    assert used.reset(CONFIG, CONTEXT)
    assert [steady(used.train()) for _ in range(ITERATIONS)] == straight(kind)


def test_a_trainable_that_cannot_be_reset_says_so() -> None:
    assert not wrap(quadratic_function)().reset(CONFIG, CONTEXT)


def test_settings_are_copied() -> None:
    config: dict[str, Any] = {"nested": {"x": 1}}

    class Meddling(Trainable):
        def setup(self, config: dict[str, Any]) -> None:
            config["nested"]["x"] = 2

    trainable = Meddling(config)
    assert config == trainable.config == {"nested": {"x": 1}}


def test_T6_without_a_folder_one_is_named_after_the_trainer_and_made_when_something_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first, second = (make({"env": "CartPole-v1", "evaluation_interval": None}) for _ in range(2))
    for trainer in (first, second):
        trainer.train()
        trainer.get_state()
    assert list(tmp_path.iterdir()) == []
    written = first.save()
    assert written.parent == Path(first.logdir)
    assert re.fullmatch(r"PPO_CartPole-v1_\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d", written.parent.name)
    assert written.parent.parent == tmp_path / "results"
    assert second.save().parent != written.parent
    first.stop()
    second.stop()


class Log:
    """A logger of the classic kind, which remembers what it is told."""

    def __init__(self, config: dict[str, Any], logdir: Path) -> None:
        self.config = config
        self.logdir = str(logdir)
        self.told: list[dict[str, Any]] = []
        self.ends: list[str] = []

    def on_result(self, result: dict[str, Any]) -> None:
        self.told.append(result)
        result["episode_reward_mean"] = "changed"

    def flush(self) -> None:
        self.ends.append("flush")

    def close(self) -> None:
        self.ends.append("close")


def changed(told: dict[str, Any]) -> None:
    told["result"]["more"] = 1


def test_T6_a_logger_of_ones_own_is_told_every_result_and_names_the_folder(tmp_path: Path) -> None:
    made: list[Log] = []

    def logger_creator(config: dict[str, Any]) -> Log:
        made.append(Log(config, tmp_path / "mine"))
        config["env"] = "changed"
        return made[-1]

    context = TrialContext(seed=7, logdir=tmp_path / "other")
    given = {**SMALL, "evaluation_interval": None, "callbacks": {"on_train_result": changed}}
    trainer, plain = PPO(given, context, logger_creator), make(given)
    result, expected = stable(trainer.train()), stable(plain.train())
    (log,) = made
    assert differences(result, expected) == []
    assert result["more"] == log.told[0]["more"] == 1
    assert log.config["train_batch_size"] == 96
    assert trainer.config["env"] == "CartPole-v1"
    assert trainer.save().parent == tmp_path / "mine"
    assert not (tmp_path / "other").exists()
    trainer.stop()
    trainer.stop()
    assert log.ends == ["flush", "close"]
    plain.stop()


def test_T1_T6_what_is_no_logger_is_refused_and_one_of_a_trainer_that_fails_is_closed(
    tmp_path: Path,
) -> None:
    with pytest.raises(TrainableError, match=r"logger_creator returned 5; expected an object with"):
        PPO(SMALL, logger_creator=lambda config: 5)  # type: ignore[arg-type,return-value]  # wrong
    log = Log({}, tmp_path)
    with pytest.raises(ConfigError):
        PPO({**SMALL, "lr": -1.0}, logger_creator=lambda config: log)
    assert log.ends == ["flush", "close"]

"""A trainable that only its script can make: kept, signed, found again, never loaded by a look."""

import functools
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sweep
from sweep.cli.main import main
from sweep.core import pickled
from sweep.core.errors import BadConfig, UsageError
from sweep.core.pickled import PickledTrainable
from sweep.driver.start import launch
from sweep.history.events import TrainableReplaced
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from tests.support import quadratic, scripts, sweeps
from tests.support.processes import run_python
from trainables import report
from trainables.checkpoint import file as checkpoint_file
from trainables.checkpoint import signing
from trainables.errors import CorruptCheckpoint, UntrustedCheckpoint
from trainables.trainable import Trainable

ID = "0123"


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a script that ran to its end; tests copy it."""
    at = tmp_path_factory.mktemp("straight")
    done = scripts.run(scripts.write(at), "trap")
    assert done.returncode == 0, done.stderr
    return at


@pytest.fixture
def at(straight: Path, tmp_path: Path) -> Path:
    """A copy of it, in which nothing was loaded yet."""
    copy = tmp_path / "copy"
    shutil.copytree(straight, copy)
    (copy / "LOADED").rmdir()
    return copy


def make(shift: float = 1.0) -> Callable[[dict[str, Any]], None]:
    def train(config: dict[str, Any]) -> None:
        report({"loss": config["x"] + shift}, checkpoint={"i": 1})

    return train


# ---- where its bytes are loaded -----------------------------------------------------------------

LOOKS = [
    ("ls",),
    ("status", "demo"),
    ("results", "demo"),
    ("best", "demo"),
    ("show", "demo", "0"),
    ("explain", "demo", "0"),
    ("export-schedule", "demo"),
    ("verify", "demo"),
    ("verify", "demo", "--repair"),
    ("sync", "demo"),
    ("set", "demo", "--trials", "12"),
]


@pytest.mark.parametrize("command", LOOKS, ids=" ".join)
def test_a_command_that_looks_loads_nothing(
    at: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(at)  # the trap leaves its trace in the current folder
    assert main([*command]) == 0
    assert not (at / "LOADED").exists()
    launch.trainable_of(scripts.folder_of(at))
    assert (at / "LOADED").exists(), "the trap works"


def test_looking_from_python_loads_nothing(at: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(at)
    found = sweep.load("demo")
    best = found.best()
    assert best.checkpoint().load()["i"] == 9
    assert len(found.results()) == len(found.trials) == 9
    assert (found.status, best.status) == ("finished", "COMPLETED")
    assert not found.curves().empty
    assert not best.results().empty
    assert repr(found)
    assert best.log() == ""
    assert not (at / "LOADED").exists()
    best.load().stop()
    assert (at / "LOADED").exists(), "the trap works"


def test_resuming_loads_it_and_goes_on(at: Path) -> None:
    resumed = scripts.command(at, "resume", "demo", "--trials", "10")
    assert resumed.returncode == 0, resumed.stderr
    assert (at / "LOADED").exists()
    assert len(sweeps.history(scripts.folder_of(at)).trials) == 10


@pytest.mark.slow
def test_somebody_elses_is_refused_unloaded_until_it_is_trusted(at: Path) -> None:
    other = {"XDG_CONFIG_HOME": str(at / "other")}
    refused = scripts.command(at, "resume", "demo", "--trials", "10", **other)
    (file,) = (at / "sweeps" / "demo" / "trainable").iterdir()
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert "is signed by the key " in refused.stderr
    assert "sweep trust" in refused.stderr
    assert str(file.relative_to(at)) in refused.stderr
    assert not (at / "LOADED").exists()
    trusted = scripts.command(at, "trust", str(file), **other)
    assert trusted.returncode == 0, trusted.stderr
    assert not (at / "LOADED").exists()
    resumed = scripts.command(at, "resume", "demo", "--trials", "10", **other)
    assert resumed.returncode == 0, resumed.stderr
    assert (at / "LOADED").exists()


@pytest.mark.slow
def test_a_damaged_or_missing_one_is_found_by_verify(at: Path) -> None:
    (file,) = (at / "sweeps" / "demo" / "trainable").iterdir()
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    damaged = scripts.command(at, "verify", "demo")
    assert damaged.returncode == 6
    assert f"trainable/{file.name}" in damaged.stdout
    file.unlink()
    missing = scripts.command(at, "verify", "demo")
    assert missing.returncode == 6
    assert "the file with the script's function or class is missing" in missing.stdout


def test_one_of_another_sweep_is_refused(tmp_path: Path) -> None:
    kept = pickled.write(tmp_path, pickled.class_of(make()), ID)
    with pytest.raises(CorruptCheckpoint, match="does not contain the trainable of this sweep"):
        pickled.load("__main__:train", PickledTrainable(kept.file, "another"))


def test_one_that_nobody_signed_is_refused(tmp_path: Path) -> None:
    kept = pickled.write(tmp_path, pickled.class_of(make()), ID)
    stranger = signing.Trust(b"x" * signing.KEY_BYTES)
    with pytest.raises(UntrustedCheckpoint, match="sweep trust"):
        pickled.load("__main__:train", PickledTrainable(kept.file, ID, stranger))


def test_other_libraries_are_named_with_the_script_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, script = tmp_path / "demo" / "trainable", str(tmp_path / "train.py")
    monkeypatch.setattr(sys.modules["__main__"], "__file__", script, raising=False)
    kept = pickled.write(folder, pickled.class_of(make()), ID)
    now = pickled.libraries()
    assert set(now) == {"python", "cloudpickle", "torch", "numpy", "gymnasium", "sweep"}
    for name in now:
        monkeypatch.setattr(pickled, "libraries", lambda name=name: {**now, name: "99.1"})
        with pytest.raises(UsageError) as caught:
            pickled.load("__main__:train", kept)
        said = str(caught.value)
        assert f"{name} {now[name]}, but 99.1 is installed here" in said
        assert f"the script {script}" in said
        assert "sweep.resume('demo', trainable=train)" in said


@pytest.mark.slow
def test_a_module_that_is_gone_is_named(tmp_path: Path) -> None:
    (tmp_path / "gone_helper.py").write_text("def shift():\n    return 1.0\n")
    script = scripts.write(
        tmp_path,
        scripts.FUNCTION.replace(
            "SHARE = 0.5", "from gone_helper import shift\nSHARE = 0.5"
        ).replace("TRAP\n", "shift()\n"),
    )
    assert scripts.run(script).returncode == 0
    (tmp_path / "gone_helper.py").unlink()
    shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
    resumed = scripts.command(tmp_path, "resume", "demo", "--trials", "10")
    assert resumed.returncode == 2
    assert resumed.stderr.count("\n") == 1
    assert "No module named 'gone_helper'" in resumed.stderr
    assert str(script) in resumed.stderr


# ---- what is kept -------------------------------------------------------------------------------


def test_what_is_loaded_is_what_was_written(tmp_path: Path) -> None:
    cls = pickled.class_of(make(2.0))
    kept = pickled.write(tmp_path, cls, ID)
    found = pickled.load("__main__:train", kept)
    assert found is not cls
    assert found({"x": 1.0}).train()["loss"] == cls({"x": 1.0}).train()["loss"] == 3.0
    assert found.can_save() == cls.can_save()
    assert pickled.source_of(kept) == pickled.digest_of(cls)
    assert pickled.newest(tmp_path, ID) == kept


def test_whether_it_saves_does_not_depend_on_its_source(tmp_path: Path) -> None:
    script = tmp_path / "written.py"
    script.write_text(
        "from trainables import report\ndef train(config):\n    report({'loss': 1.0})\n"
    )
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(script.read_text(), str(script), "exec"), space)  # noqa: S102 a script's function
    cls = pickled.class_of(space["train"])
    assert not cls.can_save()
    kept = pickled.write(tmp_path / "kept", cls, ID)
    script.unlink()
    assert not pickled.load("__main__:train", kept).can_save()


def test_a_second_one_lies_beside_the_first_and_counts(tmp_path: Path) -> None:
    first = pickled.write(tmp_path, pickled.class_of(make(1.0)), ID)
    second = pickled.write(tmp_path, pickled.class_of(make(2.0)), ID)
    assert pickled.newest(tmp_path, ID) == second != first
    assert Path(first.file).exists()


def test_what_cannot_be_pickled_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    import threading

    lock = threading.Lock()

    def train(config: dict[str, Any]) -> None:
        with lock:
            report({"loss": 1.0})

    with pytest.raises(UsageError, match="train cannot be sent to another process"):
        pickled.write(tmp_path, pickled.class_of(train), ID)
    assert not list(tmp_path.iterdir())


class Counting(Trainable):
    def step(self) -> dict[str, Any]:
        return {"loss": 1.0}


NAMES = [
    (quadratic.Quadratic, "tests.support.quadratic:Quadratic"),
    (make(), "__main__:train"),
    (lambda config: None, "__main__:lambda"),
    (functools.partial(make(), {}), "__main__:train"),
]


@pytest.mark.parametrize(("given", "name"), NAMES)
def test_what_can_be_imported_is_named_by_its_path(given: object, name: str) -> None:
    assert pickled.name_of(given) == name


@pytest.mark.parametrize("given", [3, Trainable, dict])
def test_an_object_that_cannot_be_trained_is_refused(given: object) -> None:
    with pytest.raises(BadConfig, match=r"^trainable: .*a function of one argument"):
        pickled.class_of(given)


# ---- whether it is the same ---------------------------------------------------------------------


def of_text(text: str, name: str = "train") -> str:
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(text, space)  # noqa: S102 a script's function
    return pickled.digest(space[name])


TEXT = """
import math
RATE = 0.5
NAMES = {"a", "b", "c"}
def helper(x, y=1):
    return x * RATE + y
class Net:
    size = 3
    def forward(self, x):
        return helper(x)
def train(config):
    if config["name"] in {"one", "two", "three"} or config["name"] in NAMES:
        return [helper(v) for v in range(3)], Net().forward(1), math.pi
"""
SAME = [
    ("\n" * 7 + TEXT, "lines above"),
    ("OTHER = 4\n" + TEXT, "what it does not name"),
    (TEXT.replace("def helper", "# a remark\ndef helper"), "a remark"),
]
OTHER = [
    ("RATE = 0.5", "RATE = 0.6"),
    ("x * RATE", "x / RATE"),
    ("y=1", "y=2"),
    ("size = 3", "size = 4"),
    ("return helper(x)", "return helper(x + 1)"),
    ("range(3)", "range(4)"),
    ('"c"}', '"d"}'),
    ("math.pi", "math.e"),
    ("import math", "import cmath as math"),
]


@pytest.mark.parametrize("text", [text for text, _ in SAME], ids=[why for _, why in SAME])
def test_what_changes_nothing_is_the_same_trainable(text: str) -> None:
    assert of_text(text) == of_text(TEXT)


@pytest.mark.parametrize(("before", "after"), OTHER)
def test_a_change_in_whatever_it_names_is_another_trainable(before: str, after: str) -> None:
    assert TEXT.count(before) == 1
    assert of_text(TEXT.replace(before, after)) != of_text(TEXT)


def test_the_digest_is_the_same_in_every_process(tmp_path: Path) -> None:
    code = (
        "from sweep.core import pickled\n"
        f"space = {{'__name__': '__main__'}}\nexec({TEXT!r}, space)\n"
        "print(pickled.digest(space['train']))"
    )
    told = {run_python(code, variables={"PYTHONHASHSEED": seed}) for seed in ("1", "2", "3")}
    assert told == {f"{of_text(TEXT)}\n"}


def test_what_names_itself_has_a_digest() -> None:
    text = "def train(config):\n    return train if config else again\ndef again(): return train\n"
    assert of_text(text) != of_text(text.replace("if config", "if not config"))


def recoded(folder: Folder) -> list[str]:
    return [
        r.event.source
        for r in Ledger(folder.ledger).read()
        if isinstance(r.event, TrainableReplaced)
    ]


@pytest.mark.slow
def test_a_changed_function_is_an_event_said_once_and_refused_with_strict(at: Path) -> None:
    folder = scripts.folder_of(at)
    changed = scripts.FUNCTION.replace("SHARE = 0.5", "SHARE = 0.6")
    call = scripts.CALL.replace("trials=9", "trials=11")
    script = scripts.write(at, changed, call)
    before = Ledger(folder.ledger).last
    refused = scripts.run(script, "strict")
    assert refused.returncode == 1
    assert "--strict: the trainable's code has changed" in refused.stderr
    assert Ledger(folder.ledger).last == before
    done = scripts.run(script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("the trainable's code has changed") == 1
    assert len(recoded(folder)) == 1
    assert len(list(folder.trainable.iterdir())) == 2
    again = scripts.run(script, "strict")
    assert again.returncode == 0, again.stderr
    assert len(recoded(folder)) == 1
    shell = scripts.command(at, "resume", "demo", "--trials", "12", "--strict")
    assert shell.returncode == 0, shell.stderr
    assert len(recoded(folder)) == 1


@pytest.mark.slow
def test_a_script_that_says_the_same_elsewhere_is_no_event(at: Path) -> None:
    folder = scripts.folder_of(at)
    script = scripts.write(at, "\n\n# moved\n" + scripts.FUNCTION)
    done = scripts.run(script, "strict", "trap")
    assert done.returncode == 0, done.stderr
    assert "has changed" not in done.stdout
    assert not recoded(folder)
    assert len(list(folder.trainable.iterdir())) == 1


DAMAGES: list[Callable[[Path], object]] = [Path.unlink, lambda path: path.write_bytes(b"torn")]


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES, ids=["missing", "damaged"])
def test_a_lost_one_is_kept_anew_when_its_script_is_run(
    at: Path, damage: Callable[[Path], object]
) -> None:
    folder = scripts.folder_of(at)
    (file,) = folder.trainable.iterdir()
    damage(file)
    lost = scripts.command(at, "resume", "demo")
    assert lost.returncode == 2
    assert lost.stderr.count("\n") == 1
    script = scripts.write(at, call=scripts.CALL.replace("trials=9", "trials=10"))
    done = scripts.run(script, "strict", "trap")
    assert done.returncode == 0, done.stderr
    assert not recoded(folder)
    assert scripts.command(at, "resume", "demo", "--trials", "11").returncode == 0


@pytest.mark.slow
def test_one_that_somebody_else_signed_is_kept_anew_under_ones_own_key(at: Path) -> None:
    other = {"XDG_CONFIG_HOME": str(at / "other")}
    script = scripts.write(at, call=scripts.CALL.replace("trials=9", "trials=10"))
    done = scripts.run(script, "strict", "trap", **other)
    assert done.returncode == 0, done.stderr
    assert len(list(scripts.folder_of(at).trainable.iterdir())) == 2
    assert scripts.command(at, "resume", "demo", "--trials", "11", **other).returncode == 0


@pytest.mark.parametrize(
    "state", [{}, {"pickle": b"no signature"}, {"pickle": signing.Opaque(b"no pickle")}]
)
def test_what_is_no_trainable_is_refused_in_one_line(state: dict[str, Any], tmp_path: Path) -> None:
    saved = checkpoint_file.write(tmp_path, 0, {"sweep": ID, "libraries": {}}, state)
    with pytest.raises((UsageError, CorruptCheckpoint)) as caught:
        pickled.load("__main__:train", PickledTrainable(str(saved.path), ID))
    assert "\n" not in str(caught.value)


def test_the_newest_is_the_one_with_the_greatest_number(tmp_path: Path) -> None:
    for step in (9999999999, 10000000000, 3):
        checkpoint_file.write(tmp_path, step, {"sweep": ID}, {})
    kept = pickled.newest(tmp_path, ID)
    assert kept is not None
    assert "-10000000000-" in kept.file


@pytest.mark.slow
def test_other_commands_that_run_it_find_it(at: Path) -> None:
    cloned = scripts.command(at, "clone", "demo", "0", "--set", "lr=0.3")
    assert cloned.returncode == 0, cloned.stderr
    tested = scripts.command(at, "best", "demo", "--test-seeds", "2", "--top", "1")
    assert tested.returncode == 0, tested.stderr
    exported = scripts.command(at, "export-model", "demo", "--out", "model")
    assert exported.returncode == 2
    assert "train cannot export onnx" in exported.stderr


@pytest.mark.slow
def test_a_kill_between_the_new_file_and_its_event_loses_neither(at: Path) -> None:
    folder = scripts.folder_of(at)
    changed = scripts.FUNCTION.replace("SHARE = 0.5", "SHARE = 0.6")
    script = scripts.write(at, changed, scripts.CALL.replace("trials=9", "trials=11"))
    killed = scripts.run(script, failpoint="checkpoint whole:1:self")
    assert killed.returncode == -9
    assert (len(list(folder.trainable.iterdir())), recoded(folder)) == (2, [])
    resumed = scripts.command(at, "resume", "demo", "--trials", "11")
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stdout.count("the trainable's code has changed") == 1
    kept = pickled.newest(folder.trainable, Ledger(folder.ledger).sweep_id)
    assert kept is not None
    assert recoded(folder) == [pickled.source_of(kept)]

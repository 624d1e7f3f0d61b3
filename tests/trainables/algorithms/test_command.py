"""A program in any language is trained, paused, continued and ended like everything else."""

import contextlib
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from sweep.core.errors import UsageError
from sweep.history.events import Status
from sweep.history.seeds import seed_of
from tests.support import sweeps
from tests.support.command_line import environment
from tests.support.waiting import wait_until
from trainables.algorithms import command
from trainables.algorithms.command import Command
from trainables.errors import ConfigError, TrainableError
from trainables.trainable import TrialContext

PROGRAM = str(Path(__file__).parents[2] / "support" / "program.py")


def config(how: str = "data", settings: str = "arguments", **own: Any) -> dict[str, Any]:
    command = [sys.executable, PROGRAM, how]
    return {"command": command, "settings": settings, "lr": 0.1, **own}


def made(folder: Path, **changes: Any) -> Command:
    return Command(config(**changes), TrialContext(5, "7", "trial 7", folder))


def losses(trainable: Command, iterations: int) -> list[float]:
    return [trainable.train()["loss"] for _ in range(iterations)]


@pytest.mark.parametrize("settings", ["arguments", "environment", "stdin"])
def test_settings_reach_it_in_every_way(
    settings: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    trainable = made(tmp_path, settings=settings, a={"b": [1, 2]}, text="x y")
    assert trainable.train()["loss"] > 0
    trainable.stop()
    out = capfd.readouterr().out
    told = json.loads(next(line for line in out.splitlines() if "settings" in line)[8:])
    if settings == "stdin":
        assert told == {"lr": 0.1, "a": {"b": [1, 2]}, "text": "x y"}
    elif settings == "arguments":
        assert told == {"lr": "0.1", "a.b": "[1, 2]", "text": "x y"}
    else:
        assert told == {"lr": "0.1", "a_b": "[1, 2]"}


@pytest.mark.parametrize(
    ("booleans", "told"),
    [
        ("value", ["--use-bn=true", "--bias=false", "--text=true"]),
        ("flag", ["--use-bn", "--text=true"]),
        ("flag_or_no", ["--use-bn", "--no-bias", "--text=true"]),
    ],
)
def test_true_and_false_can_be_given_as_flags(
    booleans: str, told: list[str], tmp_path: Path
) -> None:
    program = "import json, sys; print(json.dumps({'told': ' '.join(sys.argv[1:])}))"
    given = {"use-bn": True, "bias": False, "text": "true"}
    command = {"command": [sys.executable, "-c", program], "booleans": booleans}
    trainable = Command({**command, **given}, TrialContext(5, "7", "trial 7", tmp_path))
    assert trainable.train()["told"] == " ".join(told)
    trainable.stop()


@pytest.mark.parametrize(
    ("given", "is_told"),
    [
        ({"use-bn": True}, True),
        ({"use-bn": True, "booleans": "flag"}, False),
        ({"use-bn": 1}, False),
    ],
)
def test_who_passes_a_boolean_to_a_flag_is_told_of_booleans(
    given: dict[str, Any], is_told: bool, tmp_path: Path
) -> None:
    program = (
        "import argparse; parser = argparse.ArgumentParser(); "
        "parser.add_argument('--use-bn', action='store_true'); "
        "parser.add_argument('--missing', required=True); parser.parse_args()"
    )
    command = {"command": [sys.executable, "-c", program]}
    trainable = Command({**command, **given}, TrialContext(5, "7", "trial 7", tmp_path))
    with pytest.raises(TrainableError, match="exit code 2") as caught:
        trainable.train()
    trainable.stop()
    reason = str(caught.value).splitlines()[0]
    assert ("it got --use-bn=true; " in reason and "set booleans: flag" in reason) is is_told


@pytest.mark.parametrize("how", ["data", "files"])
def test_it_goes_on_from_its_checkpoint_exactly(how: str, tmp_path: Path) -> None:
    straight = made(tmp_path, how=how)
    whole = losses(straight, 9)
    last = straight.train()
    assert last["done"] is True
    assert last["loss"] == whole[-1]
    straight.stop()
    first = made(tmp_path, how=how)
    begun = losses(first, 4)
    path = first.save(tmp_path)
    first.stop()
    second = made(tmp_path, how=how)
    second.restore(path)
    assert begun + losses(second, 5) == whole
    second.stop()


def test_without_checkpoints_it_stands_at_none(tmp_path: Path) -> None:
    trainable = made(tmp_path, how="never")
    trainable.train()
    assert not trainable.at_checkpoint
    trainable.stop()


#: Reports once and then neither reads nor writes, so that nothing but a signal ends it.
SLEEPS: dict[str, Any] = {"command": ["sh", "-c", """echo '{"loss": 1}'; exec sleep 600"""]}


def has_ended(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def sleepers() -> list[psutil.Process]:
    """Programs of this process that have become `sleep`; between the two they have no name."""
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):  # it has ended meanwhile
            if child.cmdline() == ["sleep", "600"]:
                found.append(child)
    return found


def test_it_ends_when_its_trainable_does(tmp_path: Path) -> None:
    trainable = Command(SLEEPS, TrialContext(5, "7", "trial 7", tmp_path))
    assert trainable.train()["loss"] == 1
    wait_until(lambda: bool(sleepers()))
    (process,) = sleepers()
    trainable.stop()
    assert not trainable.lingers
    assert has_ended(process)


def test_it_ends_with_a_process_that_is_killed(tmp_path: Path) -> None:
    code = (
        "import os, psutil\n"
        "from trainables.algorithms.command import Command\n"
        f"Command({SLEEPS!r}).train()\n"
        "print(psutil.Process().children()[0].pid, flush=True)\n"
        "os.read(0, 1)"
    )
    words, pipe = [sys.executable, "-c", code], subprocess.PIPE
    options: dict[str, Any] = {"cwd": tmp_path, "env": environment(), "stdin": pipe, "stdout": pipe}
    with subprocess.Popen(words, **options) as parent:
        assert parent.stdout is not None
        program = psutil.Process(int(parent.stdout.readline()))
        assert program.is_running()
        parent.kill()
    wait_until(lambda: has_ended(program))


@pytest.mark.parametrize(
    ("how", "last", "words"),
    [
        ("fails", 2, "ended with exit code 3: Oh no: line 3\n"),
        ("data", 0, "ended without a result: no line of its output is a JSON obj"),
    ],
)
def test_how_it_ends_is_said(how: str, last: int, words: str, tmp_path: Path) -> None:
    trainable = made(tmp_path, how=how, last=last)
    losses(trainable, last)
    with pytest.raises(TrainableError, match=words):
        trainable.train()
    trainable.stop()


@pytest.mark.parametrize(
    ("program", "pattern", "words"),
    [
        ("echo acc=high; echo", {}, "no line of its output is a JSON object; .* 'acc=high'$"),
        (
            "echo acc=high; echo",
            {"pattern": "acc=(?P<acc>.+)"},
            r"has numbers where pattern 'acc=\(\?P<acc>\.\+\)' has groups; .* 'acc=high'$",
        ),
        ("true", {}, "it printed nothing$"),
    ],
)
def test_of_a_program_whose_lines_are_no_results_the_last_line_is_told(
    program: str, pattern: dict[str, str], words: str, tmp_path: Path
) -> None:
    config = {"command": ["sh", "-c", program], **pattern}
    trainable = Command(config, TrialContext(5, "7", "7", tmp_path))
    with pytest.raises(TrainableError, match=f"ended without a result: .*{words}"):
        trainable.train()
    trainable.stop()


def test_of_a_program_that_fails_the_last_lines_of_its_error_output_are_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    trainable = made(tmp_path, how="fails", last=0)
    with pytest.raises(TrainableError) as caught:
        trainable.train()
    trainable.stop()
    below = "  not a result: {\n  line 1\n  line 2 of \\x1b[31mred\n  Oh no: line 3"
    assert str(caught.value).endswith(f"\nThe last lines of its error output:\n{below}")
    written = capfd.readouterr().err
    assert written == "not a result: {\nline 1\n\nline 2 of \x1b[31mred\n\nOh no: line 3\n"


#: Fills its standard error, kills itself, and leaves a process behind that holds it for ever.
DIES = "seq 30000 >&2; sleep 600 > left & echo $! > pid; kill -9 $$"


def test_what_a_program_leaves_behind_does_not_hold_up_the_end_of_its_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "_ERRORS_S", 3.0)
    monkeypatch.chdir(tmp_path)
    trainable = Command({"command": ["sh", "-c", DIES]}, TrialContext(5, "7", "7", tmp_path))
    with pytest.raises(TrainableError, match=r"was ended by SIGKILL: 30000\n"):
        trainable.train()
    trainable.stop()
    left = psutil.Process(int((tmp_path / "pid").read_text()))
    assert left.is_running()
    left.kill()
    wait_until(lambda: has_ended(left))
    assert capfd.readouterr().err.splitlines() == [str(n + 1) for n in range(30000)]


#: Prints more than a pipe holds, and leaves a process behind that holds its output for ever.
ENDS = """
sleep 600 & echo $! > pid
seq 30000
echo '{"loss": 1}'
printf '{"loss": 2}'
"""


def test_what_a_program_leaves_behind_does_not_hold_up_what_it_printed_and_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    trainable = Command({"command": ["sh", "-c", ENDS]}, TrialContext(5, "7", "7", tmp_path))
    assert losses(trainable, 2) == [1, 2]
    trainable.train()
    assert trainable.has_ended
    left = psutil.Process(int((tmp_path / "pid").read_text()))
    trainable.stop()
    left.kill()
    assert capfd.readouterr().out.splitlines() == [str(n + 1) for n in range(30000)]


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"lr": 0.1}, "command: is missing; set it to a program"),
    ({"command": []}, r"command: \(\) is not allowed"),
    ({"command": "no-such-program --x"}, "command: there is no program 'no-such-program'"),
    ({"command": [3]}, "command"),
    ({"command": "true", "settings": "stdn"}, "settings: 'stdn' .*did you mean 'stdin'"),
    ({"command": "true", "pattern": "loss=(.*)"}, "has no named groups"),
    ({"command": "true", "pattern": "(?P<x>"}, "is not a regular expression: missing"),
    (
        {"command": "true", "settings": "environment", "SEED": 3},
        "SEED: cannot be passed as the variable SWEEP_SEED, which sweep sets itself; rename it",
    ),
    (
        {"command": "true", "settings": "environment", "a": {"b": 1}, "a_b": 2},
        r"a_b: cannot be passed as the variable SWEEP_a_b, which a\.b uses; rename it",
    ),
]


#: Prints its arguments and some variables as a result, or lines as other programs print them.
TELLS = "import json, os, sys; print(json.dumps({'told': sys.argv[1:], **os.environ}))"
PRINTS = (
    "print('at=12, return=[2.5] fast'); print('nothing'); print('at=x, return=nan'); print('at=')"
)


def test_hydra_gets_its_overrides_and_every_program_its_seed(tmp_path: Path) -> None:
    texts = {"name": "a.b/c", "text": "it's, 1\\\\", "number": "1", "empty": "", "word": "null"}
    settings = {
        "command": [sys.executable, "-c", TELLS],
        "settings": "overrides",
        "seed_as": "seed",
    }
    given = {**settings, "opt": {"lr": 1e-05, "sizes": [64, "a"]}, "none": None, **texts}
    trainable = Command(given, TrialContext(2**40 + 5, "7", "trial 7", tmp_path))
    result = trainable.train()
    assert result["told"] == [
        *("opt.lr=1e-05", 'opt.sizes=[64, "a"]', "none=null", "name=a.b/c"),
        *("text='it\\'s, 1\\\\\\\\'", "number='1'", "empty=''", "word='null'", "seed=5"),
    ]
    assert result["SWEEP_FOLDER"] == str(tmp_path)
    assert result["PYTHONUNBUFFERED"] == "1"
    trainable.stop()


def test_lines_in_which_a_pattern_is_found_are_results(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pattern = r"at=(?P<at>\w*)(, return=\[?(?P<reward>[-.\w]+))?"
    given = {"command": [sys.executable, "-c", PRINTS], "pattern": pattern}
    trainable = Command(given, TrialContext(5, "7", "trial 7", tmp_path))
    first, second = trainable.train(), trainable.train()
    assert (first["at"], first["reward"]) == (12, 2.5)
    assert "at" not in second
    assert math.isnan(second["reward"])
    assert trainable.train()["done"]
    assert capfd.readouterr().out == "nothing\nat=\n"
    trainable.stop()


def test_a_line_that_only_begins_like_a_result_is_none(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    prints = "print('{'); print('{\"a\":' * 100_000); print('{\"x\": 1}')"
    trainable = Command(
        {"command": [sys.executable, "-c", prints]}, TrialContext(5, "7", "trial 7", tmp_path)
    )
    assert trainable.train()["x"] == 1
    trainable.stop()
    assert capfd.readouterr().out.startswith('{\n{"a":{"a":')


def test_a_results_own_count_does_not_replace_the_iteration_number(tmp_path: Path) -> None:
    prints = "[print('{\"training_iteration\": %d}' % k, flush=True) for k in (0, 10, 10)]"
    trainable = Command(
        {"command": [sys.executable, "-c", prints]}, TrialContext(5, "7", "trial 7", tmp_path)
    )
    assert [trainable.train()["training_iteration"] for _ in range(3)] == [1, 2, 3]
    trainable.stop()


@pytest.mark.parametrize(("given", "words"), MISTAKES)
def test_a_mistake_is_told(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Command.check_config(given)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"note": "long " * 100_000}, "Argument list too long; set settings: stdin"),
        ({"note": "a\0b"}, "embedded null byte; set settings: stdin"),
        ({"a=b": 1, "settings": "environment"}, "illegal environment variable name"),
    ],
)
def test_settings_with_which_no_program_can_be_started_are_told(
    more: dict[str, Any], words: str, tmp_path: Path
) -> None:
    context = TrialContext(5, "7", "trial 7", tmp_path)
    trainable = Command({"command": [sys.executable, "-c", ""], **more}, context)
    before = psutil.Process().num_fds()
    with pytest.raises(ConfigError, match=words):
        trainable.train()
    trainable.stop()
    assert psutil.Process().num_fds() == before


def test_a_command_in_one_text_is_split_as_in_a_shell(tmp_path: Path) -> None:
    given = {"command": f"'{sys.executable}' {PROGRAM} data", "lr": 0.1}
    trainable = Command(given, TrialContext(5, "7", "trial 7", tmp_path))
    assert trainable.train()["loss"] > 0
    trainable.stop()


def test_a_sweep_pauses_and_promotes_programs(tmp_path: Path) -> None:
    own = {key: value for key, value in config("files").items() if key != "lr"}
    folder = sweeps.make(tmp_path, trainable="command", config=own, trackers=[])
    assert sweeps.run(folder) == "finished"
    past = sweeps.history(folder)
    assert past.with_status(Status.FAILED) == []
    assert len(past.with_status(Status.PRUNED)) >= 4
    best = past.ranked()[0]
    context = TrialContext(seed_of(7, best.number, 0), "7", "7", tmp_path)
    alone = Command(config("files", lr=best.config["lr"]), context)
    assert losses(alone, 9) == [row.metrics["loss"] for row in sweeps.curve(folder, best.number)]
    alone.stop()


def test_programs_without_checkpoints_are_ended_early(tmp_path: Path) -> None:
    own = {key: value for key, value in config("never").items() if key != "lr"}
    stopping = {"name": "asha", "type": "stopping", "grace_period": 1, "reduction_factor": 3}
    same = {"trainable": "command", "trackers": []}
    for said in ({"checkpoints": False}, {"pattern": "loss.: (?P<loss>[-.0-9]+)"}):
        with pytest.raises(UsageError, match="pauses trials, but Command saves no checkpoints"):
            sweeps.make(tmp_path, config={**own, **said}, **same)
    folder = sweeps.make(tmp_path, config={**own, "checkpoints": False}, scheduler=stopping, **same)
    assert sweeps.run(folder) == "finished"
    past = sweeps.history(folder)
    assert past.with_status(Status.FAILED) == []
    assert len(past.with_status(Status.PRUNED)) >= 4
    assert past.ranked()[0].replicas[0].curve[-1].iteration == 9

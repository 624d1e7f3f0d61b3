"""The commands: what they print, what they write, and their exit codes."""

import atexit
import contextlib
import errno
import gc
import json
import os
import re
import socket
import sqlite3
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from sweep.cli import main
from sweep.driver.driver import Driver
from sweep.driver.start import prepare
from sweep.driver.tracking import sync
from sweep.ledger.folder import Folder
from sweep.operations.mlflow.page import Page
from sweep.views import lookup
from tests.support import sweeps
from tests.support.command_line import Here, environment, start, write_spec
from tests.support.processes import run_python

HEAVY = {"pydantic", "sqlalchemy", "rich", "optuna", "torch", "numpy", "mlflow", "joblib"}


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    return write_spec(tmp_path)


def imported(*arguments: object, cwd: Path) -> set[str]:
    """Top-level modules that a command imports."""
    program = (
        "import sys; from sweep.cli.main import main; main(sys.argv[1:]); "
        "print('imported', *{m.split('.')[0] for m in sys.modules})"
    )
    return set(run_python(program, *arguments, cwd=cwd).splitlines()[-1].split()[1:])


# ---- help -----------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["check-env", "-h"], []])
def test_help_imports_nothing_heavy(arguments: list[str], tmp_path: Path) -> None:
    assert not imported(*arguments, cwd=tmp_path) & HEAVY


def test_a_command_ends_without_freeing_what_it_had_piece_by_piece(tmp_path: Path) -> None:
    program = """
import atexit
import sys
from sweep.cli import main as cli

class Held:
    def __del__(self):
        print("freed")

def main():
    cli.held = Held()
    atexit.register(print, "told of the end")
    print("done", end=", ")
    return 7

cli.main = main
sys.exit(cli.entry())
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (7, "done, told of the end\n", "")


def test_a_command_looks_for_garbage_rarely_and_does_look(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[tuple[int, int, int], bool]] = []
    usual = gc.get_threshold()
    monkeypatch.setattr(main, "main", lambda: seen.append((gc.get_threshold(), gc.isenabled())))
    monkeypatch.setattr(atexit, "register", lambda *_given: None)
    try:
        main.entry()
    finally:
        gc.set_threshold(*usual)
    assert seen == [((main.GARBAGE_AFTER, *usual[1:]), True)]
    assert usual[0] < main.GARBAGE_AFTER


@pytest.mark.slow
def test_looking_at_sweeps_needs_neither_torch_nor_optuna(here: Here, spec: Path) -> None:
    here("run", spec, "--pool", "inline")
    for command in (["ls"], ["status", "demo"], ["results", "demo"], ["show", "demo", 0]):
        found = imported(*command, "--root", here.root, cwd=here.root)
        assert "sqlite3" in found
        # Of numpy all have need: trials rank by what their settings are expected to score.
        assert not found & {"torch", "optuna", "mlflow", "gymnasium", "sqlalchemy"}
    assert not imported("explain", "demo", "--root", here.root, cwd=here.root) & HEAVY


@pytest.mark.slow
def test_looking_where_nothing_has_a_score_needs_no_numpy(tmp_path: Path) -> None:
    found = imported("ls", "--root", tmp_path / "none", cwd=tmp_path)
    assert not found & (HEAVY - {"rich", "pydantic"})


# ---- a sweep, from its start to its best trial ----------------------------------------------


def test_run_searches_and_says_what_it_found(here: Here, spec: Path) -> None:
    code, out, err = here("run", spec, "--pool", "inline")
    assert (code, err) == (0, "")
    assert "trial 0 starts: lr=" in out
    assert "promoted to rung 3: loss" in out
    assert "finished: 9 of 9 trials" in out
    assert "90 environment steps" not in out  # all trials together, not one
    assert "sweep export-model" not in out  # a quadratic has nothing to export
    assert "\x1b" not in out
    assert Folder(here.root, "demo").spec.read_text() == spec.read_text()


def test_what_the_command_line_changes_is_used_and_kept_with_the_spec(
    here: Here, spec: Path
) -> None:
    options = ["--trials", 2, "--seed", 5, "--name", "other", "--set", "config.noise=0.5"]
    assert here("run", spec, *options, "--pool", "inline")[0] == 0
    rows = here.json("results", "other")["trials"]
    assert len(rows) == 2
    assert {row["config"]["noise"] for row in rows} == {0.5}
    head = Folder(here.root, "other").spec.read_text().splitlines()[:4]
    assert head == [
        "# given on the command line: --set config.noise=0.5",
        "# given on the command line: --trials 2",
        "# given on the command line: --seed 5",
        "# given on the command line: --name other",
    ]


def test_what_a_trainable_prints_at_the_exit_is_not_in_the_json(tmp_path: Path) -> None:
    (tmp_path / "noisy.py").write_text(
        "import atexit, os\n"
        "from tests.support.quadratic import Quadratic as Noisy\n"
        "print('hello')\n"
        "atexit.register(print, 'goodbye')\n"
        "atexit.register(os.write, 1, b'farewell ')\n"
    )
    spec = write_spec(tmp_path, trainable="noisy:Noisy")
    out, err = start("validate", spec, "--json", cwd=tmp_path).communicate()
    assert json.loads(out)["metric"] == "loss"
    assert err.endswith("farewell goodbye\n")


def test_every_table_is_one_json_document_with_json(here: Here, spec: Path) -> None:
    code, out, err = here("run", spec, "--pool", "inline", "--json")
    ended = json.loads(out)
    assert code == 0
    assert "trial 0 starts" in err
    assert (ended["outcome"], ended["trials"]) == ("finished", 9)

    (row,) = here.json("ls")
    assert (row["name"], row["state"], row["done"], row["wanted"]) == ("demo", "finished", 9, 9)
    trials = here.json("results", "demo")["trials"]
    assert sorted(trial["trial"] for trial in trials) == list(range(9))
    scores = [trial["score"] for trial in trials]
    assert scores == sorted(scores)
    best = here.json("best", "demo")
    assert best["trial"] == trials[0]["trial"] == row["best"]["trial"] == ended["top"][0]["trial"]
    assert best["score"] == scores[0]
    assert (here.root / "demo" / best["checkpoint"]["file"]).is_file()
    shown = here.json("show", "demo", best["trial"])
    assert shown["curve"][-1]["value"] == best["score"]
    assert shown["decisions"][0]["what"] == "proposed"
    assert here.json("status", "demo")["fraction"] == 1.0


@pytest.mark.slow
def test_the_settings_of_the_best_trial_can_stand_in_a_spec(here: Here, spec: Path) -> None:
    here("run", spec, "--pool", "inline")
    _, out, _ = here("best", "demo")
    assert re.search(r"^# checkpoint of iteration \d+, loss [\d.e-]+: trials/", out, re.M), out
    again = spec.parent / "again.yaml"
    again.write_text(out + "name: again\ntrials: 1\nmetric: loss\nmode: min\nspace: {}\n"
        "trainable: tests.support.quadratic:Quadratic\nstop: {training_iteration: 1}\n"
    )  # fmt: skip
    assert here("run", again, "--pool", "inline")[0] == 0
    (trial,) = here.json("results", "again")["trials"]
    assert trial["config"] == here.json("best", "demo")["config"]


def test_the_metric_is_named_by_its_whole_path(here: Here, tmp_path: Path) -> None:
    """Its last part alone may be another result."""
    changes: dict[str, Any] = {
        "trainable": "tests.support.mishaps:evaluates",
        "metric": "evaluation/value",
        "mode": "max",
        "trials": 1,
        "config": {},
        "space": {"x": {"uniform": [0.5, 1.0]}},
        "scheduler": "fifo",
        "deterministic": None,
    }
    _, out, _ = here("run", write_spec(tmp_path, **changes), "--pool", "inline")
    assert "trial 0 finished after 1 iteration, evaluation/value 0." in out
    assert "evaluation/value" in here("ls")[1]


def test_looking_writes_nothing(here: Here, spec: Path) -> None:
    here("run", spec, "--pool", "inline")
    ledger = Folder(here.root, "demo").ledger
    before = sha256(ledger.read_bytes()).hexdigest()
    for command in (["ls"], ["status", "demo"], ["results", "demo"], ["best", "demo"]):
        assert here(*command)[0] == 0
    assert here("show", "demo", 0)[0] == 0
    assert sha256(ledger.read_bytes()).hexdigest() == before


def test_resume_adds_trials_up_to_the_new_total(here: Here, spec: Path) -> None:
    here("run", spec, "--pool", "inline", "--trials", 3)
    code, out, _ = here("resume", "demo", "--pool", "inline", "--trials", 5)
    assert code == 0
    assert "finished: 5 of 5 trials" in out
    assert len(here.json("results", "demo")["trials"]) == 5


def test_failed_trials_make_exit_code_1_and_show_their_traceback(
    here: Here, tmp_path: Path
) -> None:
    broken = write_spec(tmp_path, trials=1, scheduler="fifo", config={"fail_at": 2})
    code, out, _ = here("run", broken, "--pool", "inline")
    assert code == 1
    assert "trial 0 is tried again: iteration 2 raised RuntimeError" in out
    assert "trial 0 failed after 1 iteration" in out
    _, shown, _ = here("show", "demo", 0)
    assert "RuntimeError: fail_at: 2" in shown
    assert "Traceback" in shown


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("run fitting.py", "'fitting.py' is not a YAML file; `sweep init` writes one whose"),
        ("run book.ipynb", "names a function as book:NAME; from Python, sweep.run(NAME"),
        ("run specs", "'specs' is a folder; name a YAML file, such as specs/a.yaml"),
        ("run spec.yaml -j two", "'two' is not a whole number"),
        ("run spec.yaml --timeout long", "'long' is not a number"),
        ("run spec.yaml --name my=exp", "beginning with a letter or digit, such as my-exp"),
        ("run spec.yaml --set mode=minimize", "expected 'min' or 'max'; did you mean 'min'?"),
        ("run spec.yaml --set trainable=./a/b.py:f", "package.module:Class, such as a.b:f"),
        ("run spec.yaml --set trainable=b.py:f", "a module is named without .py, as b:f"),
        ("run spec.yaml --set trainable=mine", "or name your own as package.module:Name"),
        ("logs demo", "use `sweep show NAME TRIAL --log`"),
        ("show demo worst", "TRIAL: 'worst' is not allowed; expected best, or the number of"),
    ],
)
def test_ordinary_mistakes_are_told_with_what_to_write(
    command: str, said: str, here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_spec(tmp_path, trials=1)
    for file in ("fitting.py", "book.ipynb", "specs/a.yaml"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    if "demo" in command:
        here("run", "spec.yaml", "--pool", "inline")
    code, _, err = here(*command.split())
    assert (code, said in err) == (2, True), err


def test_the_best_trial_is_shown_and_explained_without_its_number(here: Here, spec: Path) -> None:
    here("run", spec, "--pool", "inline")
    best = here.json("best", "demo")["trial"]
    assert here.json("show", "demo", "best")["trial"] == best
    assert here.json("explain", "demo", "best")["trial"] == best


def test_the_help_of_run_names_the_shipped_search_spaces(here: Here) -> None:
    for command in ("run", "validate"):
        assert "cartpole_ppo, connect_four_ppo" in " ".join(here(command, "--help")[1].split())


MENDED_LATER = """
from pathlib import Path
from trainables import report

def train(config):
    if not Path("mended").exists():
        raise RuntimeError("not mended yet")
    report({"loss": config["lr"]})
"""


def test_a_sweep_that_is_run_again_after_a_mistake_says_how_its_failed_trials_are_tried_again(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mended_later.py").write_text(MENDED_LATER)
    spec = write_spec(
        tmp_path, trials=2, scheduler="fifo", trainable="mended_later:train", config=None
    )
    _, first, _ = here("run", spec, "--pool", "inline")
    again = "sweep resume demo --retry-failed"
    assert f"try again   {again}" in first
    assert "nothing was trained" not in first
    Path("mended").touch()
    code, _, err = here("run", spec)
    assert code == 2
    assert "delete it with `sweep rm demo`, or give another --name" in err
    assert f"`{again}` tries its 2 failed trials again" in err
    code, out, _ = here("resume", "demo", "--pool", "inline")
    assert code == 1
    assert f"had ended before: `{again}` tries the failed ones again; to start again" in out
    code, out, _ = here("resume", "demo", "--pool", "inline", "--retry-failed")
    assert (code, "2 completed" in out, "nothing was trained" in out) == (0, True, False)
    code, out, _ = here("resume", "demo", "--pool", "inline")
    assert code == 0
    assert "`sweep resume demo --trials TOTAL` adds some" in out
    assert "failed trial" not in here("run", spec)[2]


def test_a_dry_run_shows_space_rungs_and_samples_and_writes_nothing(here: Here, spec: Path) -> None:
    code, out, _ = here("run", spec, "--dry-run", "--jobs", 3)
    assert code == 0
    assert "rungs at 1, 3, 9 training_iteration" in out
    assert "3 at once" in out
    assert "on a log scale" in out
    told = here.json("run", spec, "--dry-run")
    assert (len(told["samples"]), told["rungs"]) == (10, [1, 3, 9])
    assert told["points"] is None
    assert not here.root.exists()


def test_another_scheduler_on_the_command_line_leaves_the_options_of_the_former(
    here: Here, spec: Path
) -> None:
    code, out, err = here("run", spec, "--dry-run", "--set", "scheduler.name=median")
    said = "sweep: scheduler: median replaces asha, whose options are ignored: "
    assert (code, err) == (0, f"{said}grace_period, reduction_factor\n")
    assert "median" in out
    same = here("run", spec, "--dry-run", "--set", "scheduler.name=asha")
    assert (same[0], same[2]) == (0, "")


def test_jobs_default_to_no_more_than_there_are_trials(here: Here, spec: Path) -> None:
    assert here.json("run", spec, "--dry-run", "--trials", 1)["jobs"] == 1


def test_a_time_limit_ends_the_sweep_resumable(here: Here, tmp_path: Path) -> None:
    endless = write_spec(tmp_path, scheduler="fifo", stop={"training_iteration": 10**9})
    limits = ["--set", "limits.slice_s=0.01"]
    code, out, _ = here("run", endless, *limits, "--pool", "inline", "--timeout", 0.05)
    assert code == 0
    assert "continue    sweep resume demo" in out
    assert here.json("status", "demo")["state"] == "stopped"


def test_where_no_trial_has_a_score_the_end_says_where_to_look(here: Here, tmp_path: Path) -> None:
    path = write_spec(tmp_path, trials=1, config={"fail_at": 1})
    code, out, _ = here("run", path, "--pool", "inline")
    assert code == 1
    assert "no trial has a score in loss\n" in out
    assert "look into   sweep show demo 0" in out
    assert "fail_at: 1" in here("show", "demo", 0)[1]


def test_a_sweep_whose_trials_all_diverged_ends_with_1_and_says_so(
    here: Here, tmp_path: Path
) -> None:
    """Its trials are trained to their ends, so none of them has failed."""
    keys: dict[str, Any] = {"trainable": "tests.support.mishaps:Diverges", "metric": "value"}
    keys |= {"config": {}, "stop": {"training_iteration": 3}, "scheduler": "fifo", "trials": 2}
    code, out, _ = here("run", write_spec(tmp_path, **keys), "--pool", "inline")
    assert code == 1
    assert "2 completed" in out
    assert (
        "no trial has a score in value: it was NaN or infinite wherever trials are compared\n"
        in out
    )
    assert here("resume", "demo", "--pool", "inline")[0] == 1


def test_ctrl_c_while_the_last_results_are_sent_changes_no_exit_code(
    here: Here, spec: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted = sweeps.interrupt_sending(monkeypatch)
    assert here.json("run", spec, "--pool", "inline")["outcome"] == "finished"
    assert interrupted


FORGETFUL = """
from trainables import Trainable
class Forgetful(Trainable):
    def setup(self, config): self.x = 0
    def step(self):
        self.x += 1
        return {"loss": self.x}
    def save_checkpoint(self, folder): return {}
    def load_checkpoint(self, state): pass
"""


@pytest.mark.slow
def test_validate_says_what_a_trainable_forgets(here: Here, tmp_path: Path) -> None:
    (tmp_path / "forgetful.py").write_text(FORGETFUL)
    forgetful = write_spec(tmp_path, trainable="forgetful:Forgetful")
    code, out, _ = here("validate", forgetful)
    assert code == 0
    assert "loss: 2 without an interruption, 1 after save" in out


@pytest.mark.slow
def test_validate_names_the_setting_by_which_a_clock_decides(here: Here, tmp_path: Path) -> None:
    config = {"env": "CartPole-v1", "num_workers": 2, "env_level": "C"}
    metric = {"metric": "episode_reward_mean", "space": {"lr": {"loguniform": [1e-4, 1e-2]}}}
    asynchronous = write_spec(tmp_path, trainable="impala", config=config, **metric)
    code, out, _ = here("validate", asynchronous)
    assert code == 0
    assert "a trial is D not bit-exact: a clock steers (num_workers)" in out


@pytest.mark.slow
def test_validate_finds_that_a_good_trainable_restores_exactly(here: Here, spec: Path) -> None:
    code, out, _ = here("validate", spec)
    assert code == 0
    assert "the next iteration is the same, to the bit" in out
    assert not here.root.exists()


@pytest.mark.slow
def test_validate_says_where_a_trainable_raises(here: Here, tmp_path: Path) -> None:
    code, out, err = here("validate", write_spec(tmp_path, config={"fail_at": 1}))
    assert (code, out) == (2, "")
    *progress, error = err.splitlines()
    assert all(line.startswith("sweep: trying ") for line in progress)  # on a slow machine
    assert "RuntimeError: fail_at: 1" in error
    assert "quadratic.py:" in error


def test_settings_are_shown_in_the_order_of_the_spec(here: Here, tmp_path: Path) -> None:
    space = {"lr": {"uniform": [0.1, 0.5]}, "b": {"uniform": [0.0, 1.0]}, "_a": {"randint": [1, 9]}}
    here("run", write_spec(tmp_path, space=space), "--pool", "inline", "--trials", 1)
    (trial,) = here.json("results", "demo")["trials"]
    assert list(trial["settings"]) == ["lr", "b", "_a"]


def test_show_prints_what_a_trial_printed(here: Here, spec: Path) -> None:
    here("run", spec, "--pool", "inline", "--trials", 1)
    assert here("show", "demo", 0, "--log")[1] == "it printed nothing\n"
    (here.root / "demo" / "trials" / "0" / "log.txt").write_text("one\n\x1b[2Jtwo\n")
    assert here("show", "demo", 0, "--log")[1] == "one\n\\x1b[2Jtwo\n"


def test_watching_a_sweep_in_a_pipe_is_one_look(here: Here, spec: Path) -> None:
    here("run", spec, "--pool", "inline", "--trials", 1)
    assert here("status", "demo", "--watch") == here("status", "demo")


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_an_answer_that_the_disk_does_not_take_is_an_error(
    here: Here, spec: Path, options: list[str]
) -> None:
    here("run", spec, "--pool", "inline", "--trials", 1)
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "sweep.cli.main",
                "results",
                "demo",
                "--root",
                here.root,
                *options,
            ],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 4
    assert "No space left on device; free some space on that disk" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_an_answer_whose_reader_has_gone_is_no_error(
    here: Here, spec: Path, options: list[str]
) -> None:
    here("run", spec, "--pool", "inline", "--trials", 1)
    reader, writer = os.pipe()
    os.close(reader)
    process = start("results", "demo", "--root", here.root, *options, cwd=here.root, stdout=writer)
    os.close(writer)
    assert (process.communicate(timeout=240)[1], process.returncode) == ("", 0)


NOISY = """
import os
import sys
from gymnasium.envs.classic_control import CartPoleEnv
from trainables import report
def say(words):
    print("python:", words)
    sys.__stdout__.write(f"kept: {words}\\n")
    os.write(1, f"c: {words}\\n".encode())
    os.system(f"echo child: {words}")
say("imported")
def train(config):
    say("trained")
    report({"loss": 1.0})
class Env(CartPoleEnv):
    def __init__(self, **given):
        say("made")
        super().__init__(**given)
"""


@pytest.mark.slow
@pytest.mark.parametrize("command", ["run", "check-env"])
def test_what_a_persons_code_prints_by_whatever_way_is_no_part_of_the_json(
    command: str, tmp_path: Path
) -> None:
    (tmp_path / "noisy.py").write_text(NOISY)
    spec = write_spec(tmp_path, trainable="noisy:train", trials=1, scheduler="fifo")
    options = {"run": (spec, "--pool", "inline"), "check-env": ("noisy:Env", "--steps", 8)}
    process = start(command, *options[command], "--json", cwd=tmp_path)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0
    assert isinstance(json.loads(out), dict)
    happened = {"run": "trained", "check-env": "made"}[command]
    assert {f"{way}: {happened}" for way in ("python", "kept", "c", "child")} <= {*err.splitlines()}


@pytest.mark.slow
def test_a_warning_that_nobody_reads_ends_no_sweep(here: Here, tmp_path: Path) -> None:
    spec = write_spec(tmp_path, trials=1, scheduler="fifo", stop={})
    options = ("--pool", "inline", "--timeout", 0.05, "--root", here.root)
    reader, writer = os.pipe()
    os.close(reader)
    process = start("run", spec, *options, cwd=tmp_path, stderr=writer)
    os.close(writer)
    out, _ = process.communicate(timeout=240)
    assert process.returncode == 0
    assert "demo stopped" in out


@pytest.mark.slow
def test_a_command_whose_streams_were_closed_ends_as_ever(here: Here, tmp_path: Path) -> None:
    """Worker processes, which inherit what is closed, included."""
    path = write_spec(tmp_path, trials=1, scheduler="fifo")

    def code(closed: str, *words: object) -> int:
        program = f'"{sys.executable}" -m sweep.cli.main "$@" {closed}'
        command = ["bash", "-c", program, "sweep", *map(str, words), "--root", str(here.root)]
        return subprocess.run(command, cwd=tmp_path, env=environment(), check=False).returncode

    assert code("<&- >&- 2>&-", "run", path, "--jobs", 1) == 0
    assert here.json("status", "demo")["counts"] == {"COMPLETED": 1}
    assert code(">&-", "results", "demo", "--json") == 0
    assert code("2>&-", "show", "demo", 99) == 2


def test_streams_that_were_closed_are_closed_again(
    here: Here, spec: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert here("run", spec, "--pool", "inline", "--trials", 1)[0] == 0
    assert sys.stdout is None


# ---- where the runs are recorded ------------------------------------------------------------


def test_a_tracking_uri_is_remembered_in_a_file_that_only_its_owner_reads(
    here: Here, spec: Path
) -> None:
    uri = "http://user:secret@127.0.0.1:1"
    folder = Folder(here.root, "demo")
    prepare.create(*prepare.prepare(str(spec), []), folder, "inline", uri)
    assert sync.read_tracking(folder) == (uri, True)
    assert (folder.path / "tracking-uri").stat().st_mode & 0o777 == 0o600
    assert here("ui", "demo")[:2] == (
        0,
        "demo is recorded at http://***@127.0.0.1:1, in the experiment demo\n",
    )


@pytest.mark.parametrize(
    ("trackers", "uri", "words"),
    [
        ([], "http://u:secret@127.0.0.1:1", "trackers do not include mlflow"),
        (["mlflow"], "foo://u:secret@127.0.0.1:1", "a URI that begins with http"),
    ],
)
def test_a_tracking_uri_to_which_nothing_would_be_sent_is_refused_without_its_password(
    here: Here, tmp_path: Path, trackers: list[str], uri: str, words: str
) -> None:
    spec = write_spec(tmp_path, trackers=trackers)
    code, _, err = here("run", spec, "--pool", "inline", "--tracking-uri", uri)
    assert code == 2
    assert words in err
    assert "secret" not in err
    assert not here.root.exists()


def test_a_port_that_is_in_use_is_refused(here: Here, tmp_path: Path) -> None:
    here.root.mkdir()
    (here.root / "mlflow.db").touch()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, out, err = here("ui", "--port", port)
    assert (code, out) == (2, "")
    assert str(port) in err


@pytest.mark.parametrize("name", ["other", None])
def test_the_page_of_no_sweep_lists_all_experiments(tmp_path: Path, name: str | None) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "mlflow.db")) as database, database:
        database.execute("CREATE TABLE experiments (experiment_id INTEGER, name TEXT)")
        database.execute("INSERT INTO experiments VALUES (7, 'demo')")
    everything = "http://127.0.0.1:5001/#/experiments?workflowType=machine_learning"
    assert Page(tmp_path, name, 5001).url == everything


# ---- mistakes -------------------------------------------------------------------------------

MISTAKES: list[tuple[dict[str, Any], list[str], list[str]]] = [
    ({"trails": 9}, [], ["'trails'", "trials"]),
    ({"trials": "nine"}, [], ["trials", "'nine'"]),
    ({"space": {"lr": {"uniform": [2, 1]}}}, [], ["space.lr", "2"]),
    ({"space": {"lr": {"loguniform": [0, 1]}}}, [], ["space.lr", "0"]),
    ({"space": {"lr": {"choice": []}}}, [], ["space.lr.choice"]),
    ({"trainable": "pppo"}, [], ["spec.yaml:", "'pppo'", "'ppo'"]),
    ({"trainable": "nowhere.at:All"}, [], ["nowhere.at"]),
    ({"searcher": "tpee"}, [], ["spec.yaml:", "searcher", "'tpee'", "'tpe'"]),
    ({"scheduler": "ashaa"}, [], ["spec.yaml:", "scheduler", "'ashaa'", "'asha'"]),
    ({"scheduler": {"name": "asha", "grace": 1}}, [], ["'grace'", "grace_period"]),
    ({"trackers": ["mlfow"]}, [], ["spec.yaml:", "trackers[0]", "'mlfow'", "'mlflow'"]),
    ({"racing": True}, [], ["spec.yaml:", "'racing'", "seeds"]),
    ({"replicas": 3}, [], ["spec.yaml:", "'replicas'", "seeds"]),
    ({"seeds": "auto", "scheduler": "fifo"}, [], ["spec.yaml:", "seeds", "asha, bohb, hyperband"]),
    ({"scheduler": {"name": "asha", "seeds": "auto"}}, [], ["spec.yaml:", "scheduler", "'seeds'"]),
    ({"resources": {"gpu": 1}}, [], ["gpu"]),
    ({}, ["--trials", "0"], ["--trials 0"]),
    ({}, ["--trials", "x"], ["--trials", "'x'"]),
    ({}, ["--name", "../up"], ["--name ../up", "letters a-z or A-Z"]),
    ({}, ["--name", "x" * 10_000], [f"--name {'x' * 79}…: name: ", "1 to 100 letters"]),
    ({}, ["--set", "lr"], ["--set lr", "key=value"]),
    ({}, ["--set", "config.lr=[1"], ["--set config.lr=[1"]),
    ({}, ["--pool", "lokyy"], ["'lokyy'", "'loky'"]),
    ({}, ["--jobs", "0"], ["--jobs", "0"]),
    ({}, ["--timeout", "nan"], ["--timeout", "nan"]),
    ({}, ["--timeout", "inf"], ["--timeout", "inf"]),
    ({}, ["--timeout", "1e300"], ["--timeout", "1e+300"]),
    ({}, ["--timeout", "0"], ["--timeout", "0.0"]),
    ({}, ["--storage", "x"], ["--storage"]),
    ({}, ["--trialz", "1"], ["--trialz", "--trials", "See sweep run --help"]),
]


@pytest.mark.parametrize(("changes", "options", "words"), MISTAKES)
def test_a_mistake_is_one_line_with_exit_code_2_and_nothing_written(
    here: Here,
    tmp_path: Path,
    changes: dict[str, Any],
    options: list[str],
    words: list[str],
) -> None:
    code, out, err = here("run", write_spec(tmp_path, **changes), *options)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    for word in words:
        assert word in err
    assert not here.root.exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["run", "quikstart"], ["'quikstart'", "'quickstart'"]),
        (["resume", "demi"], ["'demi'", "'demo'"]),
        (["show", "demo", "99"], ["99", "trials 0 to 2"]),
        (["shw", "demo"], ["shw", "show"]),
        (["resume", "demo", "--trials", "1"], ["1", "3 trials"]),
        (
            ["export-model", "demo", "--out", "x", "--format", "torchscript"],
            ["torchscript", "onnx"],
        ),
        (["export-model", "demo"], ["--out"]),
        (["ui"], ["no runs are recorded"]),
    ],
)
def test_a_mistake_about_existing_sweeps_is_one_line(
    here: Here, spec: Path, command: list[str], words: list[str]
) -> None:
    here("run", spec, "--pool", "inline", "--trials", 3)
    code, out, err = here(*command)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    for word in words:
        assert word in err


def test_a_file_that_is_not_there_is_answered_with_the_nearest_beside_it(
    here: Here, spec: Path
) -> None:
    for given, nearest in (
        (spec.with_suffix(".yam"), f"there is no such file; did you mean '{spec}'?"),
        (spec.parent / "no" / "spec.yaml", "there is no such file\n"),
        ("nothing.yaml", "'nothing.yaml': there is no such file"),
        ("quickstrat", "unknown search space 'quickstrat'"),
    ):
        code, out, err = here("run", given)
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert nearest in err


def test_a_seed_of_episodes_is_not_negative(here: Here) -> None:
    code, out, err = here("play", "demo", "--seed", -1)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert "'--seed': -1 is not in the range x>=0" in err


def test_what_click_finds_is_followed_by_where_help_is(here: Here, spec: Path) -> None:
    for command, words in (
        (["explain", "demo"], "Missing argument 'TRIAL'; see sweep explain --help"),
        (["export-schedule", "demo", "0", "1"], "see sweep export-schedule --help"),
        (["shw"], "Did you mean 'show'? See sweep --help"),
        (["watch", "demo"], "No such command 'watch'; use `sweep status --watch`; see"),
        (["report", "demo", "--out", "no/x.html"], "there is no folder 'no'; create it first; see"),
    ):
        code, _, err = here(*command)
        assert (code, words in err) == (2, True), err


def test_a_name_that_exists_is_refused_and_left_alone(here: Here, spec: Path) -> None:
    here("run", spec, "--pool", "inline", "--trials", 3)
    before = here.json("results", "demo")
    code, _, err = here("run", spec, "--pool", "inline")
    assert code == 2
    assert "sweep resume demo" in err
    assert here.json("results", "demo") == before


@pytest.mark.slow
def test_a_mistake_on_the_real_command_line(tmp_path: Path) -> None:
    write_spec(tmp_path, metrik="loss")
    process = start("run", "spec.yaml", cwd=tmp_path)
    out, err = process.communicate(timeout=240)
    assert (process.returncode, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert "spec.yaml:" in err
    assert "'metrik'" in err
    assert not (tmp_path / "sweeps").exists()


def test_control_characters_in_arguments_do_not_reach_the_terminal(
    here: Here, spec: Path, tmp_path: Path
) -> None:
    """A bell, since click itself removes colours where nobody would see them."""
    here.root = tmp_path / "a\afile"
    here.root.write_text("")
    for arguments in (["resume", "\ared"], ["run", spec, "--na\ame", "x"], ["ls"]):
        code, _, err = here(*arguments)
        assert code == 2
        assert "\a" not in err
        assert "\\x07" in err


# ---- other ends -----------------------------------------------------------------------------


def test_a_sweep_that_another_driver_holds_is_exit_code_3(here: Here, spec: Path) -> None:
    here("run", spec, "--pool", "inline", "--trials", 3)
    with Folder(here.root, "demo").lock():
        code, _, err = here("resume", "demo", "--pool", "inline")
    assert code == 3
    assert "is in use" in err
    assert len(err.splitlines()) == 1


def test_a_disk_that_refuses_is_exit_code_4(here: Here, spec: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    here.root = tmp_path / "file" / "sweeps"
    code, _, err = here("run", spec, "--pool", "inline")
    assert code == 4
    assert len(err.splitlines()) == 1
    assert f"cannot create the folder {here.root} in {tmp_path / 'file'}: it is not a folder" in err


def test_a_root_in_which_no_folder_can_be_made_is_named_with_the_reason(
    here: Here, spec: Path
) -> None:
    here.root = Path("/proc/sweeps")
    code, _, err = here("run", spec, "--pool", "inline")
    assert (code, len(err.splitlines())) == (4, 1)
    assert (
        "cannot create the folder /proc/sweeps in /proc: its file system does not allow new" in err
    )


def test_whatever_the_outside_says_is_one_printable_line(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_root: Path) -> None:
        raise OSError("a bell \a\nand a second line")

    monkeypatch.setattr(lookup, "read_all", refuse)
    assert here("ls") == (4, "", "sweep: a bell \\x07 and a second line\n")


@pytest.mark.parametrize("mine", [True, False])
def test_a_right_that_is_missing_is_one_line_with_whose_it_is_and_what_to_do(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mine: bool
) -> None:
    def refuse(_root: Path) -> None:
        raise PermissionError(13, "Permission denied", str(tmp_path / "demo" / "run.lock"))

    monkeypatch.setattr(lookup, "read_all", refuse)
    monkeypatch.setattr("os.getuid", lambda: tmp_path.stat().st_uid + (not mine))
    code, _, err = here("ls")
    assert code == 4
    assert "Errno" not in err
    assert err.startswith(f"sweep: {tmp_path / 'demo' / 'run.lock'}: permission denied; ")
    owner = tmp_path.owner()
    then = f"{tmp_path} is yours" if mine else f"{tmp_path} belongs to {owner}; run this as {owner}"
    assert then in err


def test_a_command_that_is_interrupted_while_it_imports_says_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupts:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "sweep.cli.main":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "sweep.cli.main", raising=False)
    monkeypatch.delattr("sweep.cli.main", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupts(), *sys.meta_path])
    from sweep.__main__ import entry

    assert entry() == 130
    assert capsys.readouterr().err == "sweep: interrupted\n"


def test_our_own_error_leaves_its_traceback_in_the_sweep_and_is_exit_code_5(
    here: Here, spec: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_self: Driver) -> str:
        raise ValueError("never seen before")

    monkeypatch.setattr(Driver, "run", broken)
    code, _, err = here("run", spec, "--pool", "inline")
    assert code == 5
    assert len(err.splitlines()) == 1
    assert "never seen before" in err
    traceback = (here.root / "demo" / "error.txt").read_text()
    assert "ValueError: never seen before" in traceback


@pytest.mark.parametrize("obstacle", ["full disk", "folder"])
def test_an_error_is_told_also_if_its_traceback_cannot_be_written(
    here: Here, spec: Path, obstacle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_self: Driver) -> str:
        raise ValueError("never seen before")

    def full(path: Path, flags: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(Driver, "run", broken)
    if obstacle == "folder":
        monkeypatch.setattr(
            Driver,
            "run",
            lambda self: (self.context.folder.path / "error.txt").mkdir() or broken(self),
        )
    else:
        monkeypatch.setattr("sweep.driver.session.disk.open_file", full)
    code, _, err = here("run", spec, "--pool", "inline")
    assert (code, len(err.splitlines())) == (5, 1)
    assert "ValueError: never seen before; raised in " in err
    assert "error.txt cannot be written: " in err


RAISING = """
from sweep.schedulers import fifo
from sweep.searchers import random

class Scheduler(fifo.Scheduler):
    def plan(self, history, free):
        return [][free]

class Searcher(random.Searcher):
    def suggest(self, request):
        return [][request.number]
"""


@pytest.mark.parametrize(("what", "method"), [("scheduler", "plan"), ("searcher", "suggest")])
def test_an_error_of_a_plugin_of_ones_own_names_it_and_is_no_internal_one(
    here: Here, tmp_path: Path, what: str, method: str
) -> None:
    module = f"raising_{what}"
    (tmp_path / f"{module}.py").write_text(RAISING)
    name = f"{module}:{what.title()}"
    path = write_spec(tmp_path, **{"scheduler": "fifo", "searcher": "random", what: name})
    code, _, err = here("run", path, "--pool", "inline")
    assert (code, len(err.splitlines())) == (2, 1)
    said = f"sweep: {method}() of the {what} '{name}' raised IndexError: list index out of range; "
    assert err.startswith(f"{said}the traceback is in {here.root}")
    traceback = (here.root / "demo" / "error.txt").read_text()
    assert f"return [][{'free' if method == 'plan' else 'request.number'}]" in traceback


def test_a_sweep_that_cannot_be_read_does_not_hide_the_others(here: Here, spec: Path) -> None:
    here("run", spec, "--pool", "inline", "--trials", 3)
    (here.root / "broken").mkdir()
    (here.root / "broken" / "sweep.db").write_text("this is not a database")
    code, out, err = here("ls")
    assert code == 0
    assert "demo" in out
    assert "broken" in err

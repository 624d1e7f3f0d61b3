"""From a finished sweep to a folder that needs none of it."""

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing, nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from sweep.cli.main import main
from sweep.core.errors import StorageError, UsageError
from sweep.driver.start import launch
from sweep.driver.tracking import sync
from sweep.history.events import Saved
from sweep.history.replica import Replica
from sweep.ledger.folder import Folder
from sweep.operations.models import register, trained
from sweep.trackers._shared.mlflow_store import store_url
from sweep.views import lookup, reading
from tests.support.command_line import REPOSITORY, Here, environment, write_spec
from trainables.algorithms import ppo
from trainables.checkpoint import file as checkpoint_file
from trainables.errors import MissingCheckpoint
from trainables.trainable import TrialContext

# MLflow 3.17 uses a loader that SQLAlchemy 2.1 deprecates; it says so when its tables are imported.
pytestmark = pytest.mark.filterwarnings(
    "ignore:The ``noload`` loader strategy:sqlalchemy.exc.SADeprecationWarning"
)

PPO: dict[str, Any] = {
    "trainable": "ppo",
    "metric": "episode_reward_mean",
    "mode": "max",
    "trials": 2,
    "config": {
        "env": "CartPole-v1",
        "num_envs_per_worker": 2,
        "rollout_fragment_length": 64,
        "sgd_minibatch_size": 64,
        "num_sgd_iter": 1,
        "model": {"hidden": [8]},
        "observation_filter": "MeanStdFilter",
    },
    "stop": {"training_iteration": 4},
    "scheduler": "fifo",
}


@pytest.mark.slow
def test_the_best_trial_becomes_a_folder_with_a_model_and_a_card(
    here: Here, tmp_path: Path
) -> None:
    assert here("run", write_spec(tmp_path, **PPO), "--pool", "inline")[0] == 0
    out = tmp_path / "deep" / "winner"
    code, said, err = here("export-model", "demo", "--checkpoint", "best", "--out", out)
    assert (code, err) == (0, "")
    assert f"onnx         {out}/policy.onnx" in said
    assert sorted(path.name for path in out.iterdir()) == ["card.json", "card.md", "policy.onnx"]

    card = json.loads((out / "card.json").read_text())
    best = here.json("best", "demo")
    assert (card["trial"], card["score"]) == (best["trial"], best["score"])
    assert card["checkpoint"] == best["checkpoint"]
    assert card["config"]["env"] == "CartPole-v1"
    assert set(card["versions"]) >= {"torch", "numpy", "python"}
    page = (out / "card.md").read_text()
    given, _, chosen = page.partition("# The spec does not set these; sweep chose their values")
    assert 'env: "CartPole-v1"' in given
    assert "learner:" not in given
    assert "in numpy) or compiled (in C)\nlearner: " in chosen

    _check_formats(here, tmp_path)
    _check_playing(here, tmp_path)
    _check_choices(here, tmp_path)
    _check_refusals(here, tmp_path, out)


#: What each format's program must not need.
WITHOUT = {
    "onnx": ("torch", "mlflow"),
    "safetensors": ("torch", "onnx", "onnxruntime", "mlflow"),
    "torch-export": ("onnx", "onnxruntime", "mlflow"),
    "mlflow": (),
}


def _check_formats(here: Here, tmp_path: Path) -> None:
    """The card's whole loop runs without this project, and every format plays the same episodes."""
    played = here.json("play", "demo", "--episodes", 2)
    returns = set()
    for form, without in WITHOUT.items():
        folder = tmp_path / form
        words = ["--checkpoint", "best", "--format", form, "--out", folder]
        assert here("export-model", "demo", *words)[0] == 0
        returns.add(_run_card(folder, *without))
        again = here.json("play", folder, "--episodes", 2)
        assert (again["format"], again["episodes"]) == (form, played["episodes"])
        assert {key: again[key] for key in played} == played
    assert len(returns) == 1
    assert re.fullmatch(r"(return \d+\.0\n){3}", returns.pop())


def _run_card(folder: Path, *without: str) -> str:
    """What the program on an exported folder's card prints where modules are missing."""
    (program,) = re.findall(r"```python\n(.*?)```", (folder / "card.md").read_text(), re.DOTALL)
    missing = dict.fromkeys(("sweep", "trainables", *without))
    guard = f"import sys; sys.modules.update({missing}); sys.path.insert(0, '')\n"
    done = subprocess.run(
        [sys.executable, "-I", "-W", "ignore", "-c", guard + program],
        cwd=folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout


@pytest.mark.proof
def test_a_continuous_policy_with_a_memory_plays_from_every_format(
    here: Here, tmp_path: Path
) -> None:
    config = {
        **PPO["config"],
        "env": "Pendulum-v1",
        "env_config": {"g": 9.81},
        "model": {
            "hidden": [8],
            "use_lstm": True,
            "lstm_cell_size": 8,
            "lstm_use_prev_action": True,
            "lstm_use_prev_reward": True,
        },
        "connectors": ["FrameStack"],
        "normalize_actions": True,
    }
    changes = {"trials": 1, "config": config}
    assert here("run", write_spec(tmp_path, **PPO | changes), "--pool", "inline")[0] == 0
    expected = here.json("play", "demo", "--episodes", 2)["mean"]
    for form, without in WITHOUT.items():
        folder = tmp_path / form
        assert here("export-model", "demo", "--format", form, "--out", folder)[0] == 0
        assert here.json("play", folder, "--episodes", 2)["mean"] == pytest.approx(expected, 1e-3)
        assert len(re.findall(r"^return -\d", _run_card(folder, *without), re.MULTILINE)) == 3


@pytest.mark.slow
def test_a_policy_with_action_masks_reads_them_as_an_input(here: Here, tmp_path: Path) -> None:
    config = {**PPO["config"], "env": "Taxi-v4", "action_mask": "info"}
    changes = {"trials": 1, "config": config}
    assert here("run", write_spec(tmp_path, **PPO | changes), "--pool", "inline")[0] == 0
    expected = here.json("play", "demo", "--episodes", 2)["mean"]
    assert expected >= -200  # a step costs 1, a passenger who is not there 10
    for form in ("onnx", "safetensors"):
        folder = tmp_path / form
        assert here("export-model", "demo", "--format", form, "--out", folder)[0] == 0
        assert here.json("play", folder, "--episodes", 2)["mean"] == expected
        returns = re.findall(r"^return (.+)", _run_card(folder, *WITHOUT[form]), re.MULTILINE)
        assert len(returns) == 3
        assert min(map(float, returns)) >= -200


#: An environment in RLlib's style, of which the settings are one dict.
SHOP = """\
import gymnasium
import numpy as np


class Shop(gymnasium.Env):
    observation_space = gymnasium.spaces.Dict({"stock": gymnasium.spaces.Box(0.0, 9.0, (2,))})
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, config=None):
        self.days = config["days"]

    def reset(self, *, seed=None, options=None):
        self.day = 0
        return {"stock": np.zeros(2, np.float32)}, {}

    def step(self, action):
        self.day += 1
        return {"stock": np.ones(2, np.float32)}, 1.0, self.day == self.days, False, {}
"""


@pytest.mark.slow
def test_the_cards_program_gives_an_environment_its_settings_as_one_dict(
    here: Here, tmp_path: Path
) -> None:
    (tmp_path / "shop_of_cards.py").write_text(SHOP)
    config = {**PPO["config"], "env": "shop_of_cards:Shop", "env_config": {"days": 3}}
    spec = write_spec(tmp_path, **PPO | {"trials": 1, "config": config})
    assert here("run", spec, "--pool", "inline")[0] == 0
    folder = tmp_path / "winner"
    assert here("export-model", "demo", "--checkpoint", "last", "--out", folder)[0] == 0
    shutil.copy(tmp_path / "shop_of_cards.py", folder)
    assert _run_card(folder, *WITHOUT["onnx"]) == "return 3.0\n" * 3


@pytest.fixture
def exported(here: Here, tmp_path: Path) -> Path:
    """A folder with an untrained policy."""
    changes = {"trials": 1, "stop": {"training_iteration": 1}}
    assert here("run", write_spec(tmp_path, **PPO | changes), "--pool", "inline")[0] == 0
    assert here("export-model", "demo", "--out", tmp_path / "out")[0] == 0
    return tmp_path / "out"


@pytest.mark.slow
def test_a_model_that_another_person_exported_is_played_once_it_is_trusted(
    here: Here, tmp_path: Path, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "another"))
    code, out, err = here("play", exported)
    assert (code, out) == (2, "")
    assert re.fullmatch(r"sweep: \S+card.json.* is signed by the key .* sweep trust FILE\n", err)
    assert main(["trust", str(exported / "card.json")]) == 0
    assert here("play", exported, "--episodes", 1)[0] == 0
    card = exported / "card.json"
    card.write_text(card.read_text().replace("CartPole-v1", "Pendulum-v1"))
    assert here("play", exported)[0] == 2


@pytest.mark.slow
def test_another_file_than_the_cards_is_not_played(here: Here, exported: Path) -> None:
    with (exported / "policy.onnx").open("ab") as file:
        file.write(b"!")
    code, _, err = here("play", exported)
    assert (code, "policy.onnx: this file does not match its card" in err) == (2, True)
    (exported / "policy.onnx").unlink()
    assert here("play", exported)[0] == 2
    assert here("play", exported, "--trial", 3)[0] == 2


#: The function of the page, and a class.
PAGE = (REPOSITORY / "docs/export.md").read_text()
OWN = """
from trainables import Trainable


class Class(Trainable):
    def setup(self, config):
        self.x = config["lr"]

    def step(self):
        return {"loss": 1.0}

    def save_checkpoint(self, folder):
        return {"x": self.x}

    def load_checkpoint(self, saved):
        self.x = saved["x"]

    def export_model(self, folder):
        if self.config.get("writes", True):
            (folder / "weights").mkdir()
            (folder / "weights" / "model.json").write_text(json.dumps({"x": self.x}))
"""
OWN = "\n\n".join([*re.findall(r"```python\n# fitted.py\n(.*?)```", PAGE, re.DOTALL), OWN])


@pytest.mark.parametrize(
    ("name", "file"), [("train", "model.json"), ("Class", "weights/model.json")]
)
def test_a_trainable_exports_what_its_own_export_model_writes(
    name: str, file: str, here: Here, tmp_path: Path
) -> None:
    (tmp_path / "own_export.py").write_text(OWN)
    changes = {"trials": 1, "trainable": f"own_export:{name}", "stop": {"training_iteration": 1}}
    assert here("run", write_spec(tmp_path, **changes), "--pool", "inline")[0] == 0
    out = tmp_path / "out"
    code, said, err = here("export-model", "demo", "--out", out)
    assert (code, err) == (0, "")
    assert f"{out}/{file}" in said
    card = json.loads((out / "card.json").read_text())
    lr, i = card["searched"]["lr"], card["checkpoint"]["iteration"]
    x = lr if name == "Class" else 3.0 + 2.0 * (1 - 2 * lr) ** i
    assert json.loads((out / file).read_text())["x"] == pytest.approx(x)
    assert card["files"] == {file: file}
    code, _, err = here("export-model", "demo", "--format", "onnx", "--out", tmp_path / "other")
    assert (code, "leave --format out" in err) == (2, True)
    code, _, err = here("play", out)
    assert (code, "which sweep cannot play" in err) == (2, True)
    words = ["export-model", "demo", "--out", tmp_path / "again"]
    code, _, err = here(*words, "--register", "mine")
    assert (code, "--register needs --format onnx" in err) == (2, True)
    assert here(*words)[0] == 0  # nothing is in its way


def test_an_export_model_that_writes_nothing_says_so(here: Here, tmp_path: Path) -> None:
    (tmp_path / "own_export.py").write_text(OWN)
    changes = {"trials": 1, "trainable": "own_export:Class", "config": {"writes": False}}
    assert here("run", write_spec(tmp_path, **changes), "--pool", "inline")[0] == 0
    code, _, err = here("export-model", "demo", "--out", tmp_path / "out")
    assert (code, "wrote no file" in err, list(tmp_path.glob("*out*"))) == (2, True, [])


def _check_playing(here: Here, tmp_path: Path) -> None:
    """Returns with an interval, the same for the same seed; a video of each episode."""
    videos = tmp_path / "videos"
    code, out, _ = here("play", "demo", "--episodes", 3, "--video", videos)
    assert (code, "3 episodes from seed 0" in out, "95% interval" in out) == (0, True, True)
    assert len(list(videos.glob("episode-*.mp4"))) == 3
    plain = here.json("play", "demo", "--episodes", 3)
    assert plain["episodes"] == here.json("play", "demo", "--episodes", 3)["episodes"]
    assert plain["low"] <= plain["mean"] <= plain["high"]
    assert f"mean return {plain['mean']:.6g}" in out  # what is drawn is what is played
    assert here.json("play", "demo", "--seed", 1)["episodes"][:3] != plain["episodes"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SDL_VIDEODRIVER", "dummy")  # a screen that nobody sees
        shown = here.json("play", "demo", "--episodes", 1, "--window")
    assert shown["episodes"] == plain["episodes"][:1]


def _check_choices(here: Here, tmp_path: Path) -> None:
    """A trial by its number, a checkpoint by its age or iteration."""
    trial = lookup.read(Folder(here.root, "demo")).history.trials[1]
    kept = sorted(saved.iteration for saved in trial.replicas[0].checkpoints.values())
    for wanted, iteration in (("last", kept[-1]), (str(kept[0]), kept[0])):
        out = tmp_path / f"of-{wanted}"
        choice = ["--trial", 1, "--checkpoint", wanted, "--out", out]
        assert here("export-model", "demo", *choice)[0] == 0
        card = json.loads((out / "card.json").read_text())
        assert (card["trial"], card["checkpoint"]["iteration"]) == (1, iteration)


def _check_refusals(here: Here, tmp_path: Path, used: Path) -> None:
    free = tmp_path / "free"
    for options, words in (
        (["--out", used], [str(used), "empty"]),
        (["--out", free, "--trial", "7"], ["7", "trials 0 to 1"]),
        (["--out", free, "--trial", "one"], ["'one'", "best"]),
        (["--out", free, "--checkpoint", "77"], ["'77'", "last"]),
    ):
        code, said, err = here("export-model", "demo", *options)
        assert (code, said) == (2, "")
        assert len(err.splitlines()) == 1
        for word in words:
            assert word in err
        assert not free.exists()


def test_a_checkpoint_that_a_driver_deletes_meanwhile_is_chosen_again(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here("run", write_spec(tmp_path, trials=1), "--pool", "inline")
    folder = Folder(here.root, "demo")
    paths = list(folder.path.glob("trials/0/ckpt-*"))  # the best, and the newest if it is another
    aside = [path.rename(tmp_path / path.name) for path in paths]
    find = trained.find_checkpoint
    looks: list[str] = []

    def looking(replica: Replica, wanted: str) -> Saved:
        looks.append(wanted)
        if len(looks) == trained.ATTEMPTS:
            for moved, path in zip(aside, paths, strict=True):
                moved.rename(path)  # as the newer one of a driver
        return find(replica, wanted)

    monkeypatch.setattr(trained, "find_checkpoint", looking)
    with trained.restored(folder, trained.Choice()) as found:
        assert found.trainable.iteration == found.saved.iteration
    for path in paths:
        path.unlink()
    monkeypatch.setattr(trained, "find_checkpoint", find)
    with pytest.raises(MissingCheckpoint), trained.restored(folder, trained.Choice()):
        pass


def test_the_history_is_read_when_the_trainable_has_been_imported(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here("run", write_spec(tmp_path, trials=1), "--pool", "inline")
    order: list[str] = []

    def note(module: ModuleType, name: str) -> None:
        function = getattr(module, name)

        def noting(its: object) -> object:
            order.append(name)
            return function(its)

        monkeypatch.setattr(module, name, noting)

    note(launch, "trainable_of")
    note(reading, "history")
    with trained.restored(Folder(here.root, "demo"), trained.Choice()):
        assert order == ["trainable_of", "history"]


@pytest.mark.parametrize("is_missing", [True, False])
def test_a_missing_or_damaged_checkpoint_is_not_exported(
    here: Here, tmp_path: Path, is_missing: bool
) -> None:
    here("run", write_spec(tmp_path, trials=1), "--pool", "inline")
    file = here.root / "demo" / here.json("best", "demo")["checkpoint"]["file"]
    if is_missing:
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-1] + b"!")
    code, _, err = here("export-model", "demo", "--out", tmp_path / "out")
    assert code == 2
    assert file.name in err
    assert "sweep verify demo" in err
    assert "--repair" in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_trainable_that_cannot_export_says_so(here: Here, tmp_path: Path) -> None:
    here("run", write_spec(tmp_path, trials=1), "--pool", "inline")
    code, _, err = here("export-model", "demo", "--out", tmp_path / "out")
    assert code == 2
    assert "Quadratic cannot export onnx" in err
    assert list(tmp_path.glob("*out*")) == []


def test_a_trainable_without_episodes_says_so(here: Here, tmp_path: Path) -> None:
    here("run", write_spec(tmp_path, trials=1), "--pool", "inline")
    code, out, err = here("play", "demo")
    assert (code, out, err) == (
        2,
        "",
        "sweep: play: Quadratic has no episodes to play: it does not define play()\n",
    )


def test_a_sweep_without_a_checkpoint_has_nothing_to_export(here: Here, tmp_path: Path) -> None:
    spec = write_spec(tmp_path, trials=1, scheduler="fifo", config={"fail_at": 1})
    here("run", spec, "--pool", "inline")
    for trial, words in (
        ("best", "none of its 1 trial has a score"),
        ("0", "no checkpoint; a class"),
    ):
        code, _, err = here("export-model", "demo", "--trial", trial, "--out", tmp_path / "out")
        assert code == 2
        assert words in err


def test_a_folder_that_cannot_be_made_is_one_line_and_what_was_left_is_swept_away(
    here: Here, tmp_path: Path
) -> None:
    here("run", write_spec(tmp_path, trials=1), "--pool", "inline")
    (tmp_path / "file").touch()
    code, _, err = here("export-model", "demo", "--out", tmp_path / "file" / "out")
    assert code == 4
    assert err.startswith(f"sweep: cannot create {tmp_path}/file/out: ")
    assert len(err.splitlines()) == 1
    killed, elsewhere = (tmp_path / f".out.new-0123abc{n}-999999999" for n in range(2))
    for draft in (killed, elsewhere):
        draft.mkdir()
    os.utime(killed, (0, 0))
    here("export-model", "demo", "--out", tmp_path / "out")
    assert not killed.exists()
    assert elsewhere.exists(), "another machine has processes of other numbers"


#: Loads a registered model with nothing of this project, and prints what it answers.
SERVED = """
import json, sys
sys.modules.update(torch=None, sweep=None, trainables=None)
import mlflow, numpy
mlflow.set_tracking_uri(sys.argv[1])
rows = numpy.array(json.load(sys.stdin), dtype="float32")
for uri in sys.argv[2:]:
    model = mlflow.pyfunc.load_model(uri)
    names = model.metadata.signature.inputs.input_names()
    assert names == ["observation"], names
    assert model.input_example["observation"].shape == (1, 4)
    print(json.dumps(model.predict({"observation": rows})["action"].tolist()))
"""


@pytest.mark.proof
def test_a_registered_model_answers_with_the_policys_own_actions(
    here: Here, tmp_path: Path
) -> None:
    spec = write_spec(tmp_path, **PPO | {"trials": 1, "trackers": ["mlflow"]})
    assert here("run", spec, "--pool", "inline")[0] == 0
    words = ["export-model", "demo", "--register", "cartpole", "--root", str(here.root)]
    words += ["--checkpoint", "best"]
    for version in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-m", "sweep.cli.main", *words],
            env=environment(), cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == f"model        models:/cartpole/{version}"
    folder = Folder(here.root, "demo")
    trial = lookup.read(folder).history.trials[0]
    saved = trial.replicas[0].best_checkpoint
    assert saved is not None
    state = checkpoint_file.read(folder.trial(0) / saved.file, saved.digest).state
    rows = np.random.default_rng(7).uniform(-1, 1, (50, 4)).astype("float32")
    policy = ppo.PPO(trial.config, TrialContext(seed=0, logdir=tmp_path))
    try:
        policy.set_state(state)
        actions = [int(policy.compute_action(row, explore=False)) for row in rows]
    finally:
        policy.stop()
    with closing(sqlite3.connect(folder.mlflow)) as database:
        found = "SELECT run_uuid FROM tags WHERE key = 'sweep.trial'"
        (run,) = database.execute(found).fetchone()
    uris = [f"runs:/{run}/model", "models:/cartpole/1"]
    done = subprocess.run(
        [sys.executable, "-c", SERVED, store_url(folder), *uris],
        input=json.dumps(rows.tolist()), cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert [json.loads(line) for line in done.stdout.splitlines()] == [actions, actions]
    artifacts = folder.root / "mlartifacts" / run / "artifacts"
    assert {path.name for path in artifacts.iterdir()} >= {"card.md", "card.json"}
    assert here("verify", "demo")[0] == 0


def test_a_model_is_registered_only_where_mlflow_has_its_trial(here: Here, tmp_path: Path) -> None:
    here("run", write_spec(tmp_path, trials=1), "--pool", "inline")
    where = sync.tracker_context(Folder(here.root, "demo"))
    with pytest.raises(UsageError, match=r"no run of trial 0; .* `sweep sync demo --root "):
        register.register(where, {"trial": 0, "files": {"onnx": "x"}}, tmp_path, "model")
    code, _, err = here("export-model", "demo")
    assert (code, "--out" in err) == (2, True)


@pytest.mark.parametrize("fails", [False, True])
def test_registering_keeps_the_tracking_uri_of_a_script(
    fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    seen = []

    def create_version(name: str, *_: object, **__: object) -> Any:
        seen.append(mlflow.get_tracking_uri())
        if fails:
            raise OSError("no connection")
        return SimpleNamespace(name=name, version=3)

    client = SimpleNamespace(
        tracking_uri="sqlite:///ours.db",
        create_registered_model=lambda _name: None,
        create_model_version=create_version,
    )
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")  # set_tracking_uri sets it; restored afterwards
    monkeypatch.setattr(register, "find_run", lambda *_: "run")
    monkeypatch.setattr(register, "log", lambda *_: "model")
    monkeypatch.setattr(register, "open_client", lambda _: client)
    mlflow.set_tracking_uri("sqlite:///mine.db")
    try:
        with pytest.raises(StorageError) if fails else nullcontext():
            register.register(cast(Any, None), {"trial": 0, "files": {"onnx": ""}}, tmp_path, "m")
        assert mlflow.get_tracking_uri() == "sqlite:///mine.db"
    finally:
        mlflow.set_tracking_uri("")
    assert seen == ["sqlite:///ours.db"]

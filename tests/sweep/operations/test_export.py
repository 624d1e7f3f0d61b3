"""From a finished sweep to a folder that needs none of it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sweep.ledger.folder import Folder
from sweep.views import lookup
from tests.support.command_line import Here, write_spec

PPO = {
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


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Here:
    return Here(capsys, tmp_path / "sweeps")


@pytest.mark.slow
def test_the_best_trial_becomes_a_folder_with_a_model_and_a_card(
    here: Here, tmp_path: Path
) -> None:
    assert here("run", write_spec(tmp_path, **PPO), "--pool", "inline")[0] == 0
    out = tmp_path / "deep" / "winner"
    code, said, err = here("export-model", "demo", "--out", out)
    assert (code, err) == (0, "")
    assert f"onnx  {out}/policy.onnx" in said
    assert sorted(path.name for path in out.iterdir()) == ["card.json", "card.md", "policy.onnx"]

    card = json.loads((out / "card.json").read_text())
    best = here.json("best", "demo")
    assert (card["trial"], card["score"]) == (best["trial"], best["score"])
    assert card["checkpoint"] == best["checkpoint"]
    assert card["config"]["env"] == "CartPole-v1"
    assert set(card["versions"]) >= {"torch", "numpy", "python"}

    # What the card says about calling it is true, in a process that has none of this.
    (program,) = re.findall(r"```python\n(.*?)```", (out / "card.md").read_text(), re.DOTALL)
    guard = "import sys; sys.modules.update(torch=None, sweep=None, trainables=None)\n"
    done = subprocess.run(
        [sys.executable, "-I", "-c", guard + program],
        cwd=out, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "action_logits" in done.stdout
    assert re.search(r"^return \d+\.0$", done.stdout, re.MULTILINE)

    _check_playing(here, tmp_path)
    _check_choices(here, tmp_path)
    _check_refusals(here, tmp_path, out)


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


def test_a_damaged_checkpoint_is_not_exported(here: Here, tmp_path: Path) -> None:
    here("run", write_spec(tmp_path, trials=1), "--pool", "inline")
    file = here.root / "demo" / here.json("best", "demo")["checkpoint"]["file"]
    file.write_bytes(file.read_bytes()[:-1] + b"!")
    code, _, err = here("export-model", "demo", "--out", tmp_path / "out")
    assert code == 2
    assert file.name in err
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
    assert (code, out, err) == (2, "", "sweep: play: Quadratic has no episodes to play\n")


def test_a_sweep_without_a_checkpoint_has_nothing_to_export(here: Here, tmp_path: Path) -> None:
    spec = write_spec(tmp_path, trials=1, scheduler="fifo", config={"fail_at": 1})
    here("run", spec, "--pool", "inline")
    for trial, words in (("best", "none of its 1 trial has a score"), ("0", "no checkpoint")):
        code, _, err = here("export-model", "demo", "--trial", trial, "--out", tmp_path / "out")
        assert code == 2
        assert words in err


def test_a_folder_that_cannot_be_made_is_one_line_and_what_was_killed_is_swept_away(
    here: Here, tmp_path: Path
) -> None:
    here("run", write_spec(tmp_path, trials=1), "--pool", "inline")
    (tmp_path / "file").touch()
    code, _, err = here("export-model", "demo", "--out", tmp_path / "file" / "out")
    assert code == 4
    assert err.startswith(f"sweep: making {tmp_path}/file/out: ")
    assert len(err.splitlines()) == 1
    killed = tmp_path / ".out.new-999999999"
    killed.mkdir()
    here("export-model", "demo", "--out", tmp_path / "out")
    assert not killed.exists()

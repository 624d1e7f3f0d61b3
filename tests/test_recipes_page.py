"""What docs/recipes.md shows is true: each recipe is run, paused and continued."""

import importlib.util
import os
import re
import sys
from pathlib import Path

import pytest

import sweep
from tests.support import scripts

HERE = Path(__file__).parents[1]
PAGE = (HERE / "docs/recipes.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^```\w+\n# (\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
#: Lines of a recipe's code that are not blank, at most.
LONGEST = 31

HAS_LIGHTNING = importlib.util.find_spec("lightning") is not None
HAS_SB3 = importlib.util.find_spec("stable_baselines3") is not None
HAS_TORCHRL = importlib.util.find_spec("torchrl") is not None
HAS_HYDRA = importlib.util.find_spec("hydra") is not None


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files of the page; `python` is this one."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    for name, body in FILES.items():
        (tmp_path / name).write_text(body)
    return tmp_path


def run(desk: Path, spec: str) -> "sweep.Sweep":
    """Run the page's spec, killed once after some slices; its trackers are left out."""
    words = ["-m", "sweep.cli.main", "run", spec, "--jobs", "1", "--set", "trackers=[]"]
    points = {"SWEEP_FAILPOINT": "recorded:4:self", "SWEEP_FAILPOINT_FILE": str(desk / "count")}
    assert scripts.python(words, desk, points).returncode == -9
    name = spec.removesuffix(".yaml")
    done = scripts.command(desk, "resume", name)
    assert done.returncode == 0, done.stderr + done.stdout
    found = sweep.load(name, root=desk / "sweeps")
    assert found.status == "finished"
    assert {trial.status for trial in found.trials} <= {"COMPLETED", "PRUNED"}
    return found


def test_recipes_are_short() -> None:
    assert len(FILES) == 19
    lines = {name: len(list(filter(str.strip, body.splitlines()))) for name, body in FILES.items()}
    assert max(lines.values()) <= LONGEST, lines


@pytest.mark.slow
def test_the_loop_in_torch(desk: Path) -> None:
    done = scripts.python(["sine.py"], desk)
    assert done.returncode == 0, done.stderr
    assert "0.weight" in done.stdout
    found = sweep.load("sine", root=desk / "sweeps")
    best = found.best()
    assert best.score is not None
    assert best.score < 0.1
    assert best.iterations == 27
    assert "PRUNED" in {trial.status for trial in found.trials}


@pytest.mark.slow
@pytest.mark.skipif(not HAS_SB3, reason="stable_baselines3 is not installed")
def test_stable_baselines3(desk: Path) -> None:
    best = run(desk, "sb3.yaml").best()
    assert best.score is not None
    assert best.score > 9
    assert (best.checkpoint().load(desk / "model") / "model.zip").is_file()


@pytest.mark.slow
@pytest.mark.skipif(not HAS_LIGHTNING, reason="lightning is not installed")
def test_the_lightning_module(desk: Path) -> None:
    best = run(desk, "lightning.yaml").best()
    assert best.score is not None
    assert best.score < 1.0
    assert (best.checkpoint().load(desk / "model") / "model.ckpt").is_file()
    words = ["--jobs", "1", "--set", "trackers=[]", "--set", "scheduler=fifo", "--name", "straight"]
    words += ["--set", "searcher=random", "--trials", "1"]
    words += ["--set", f"initial=[{{lr: {best.settings['lr']}}}]", "--set", "seed=1"]
    again = ["-m", "sweep.cli.main", "run", "lightning.yaml"]
    for name, slices in (("straight", "600"), ("sliced", "0.1")):
        words[words.index("--name") + 1] = name
        done = scripts.python([*again, *words, "--set", f"limits.slice_s={slices}"], desk)
        assert done.returncode == 0, done.stderr
    straight, sliced = (
        sweep.load(n, root=desk / "sweeps").trials[0] for n in ("straight", "sliced")
    )
    assert list(straight.results()["loss"]) == list(sliced.results()["loss"])
    assert straight.iterations == 27


@pytest.mark.slow
@pytest.mark.skipif(not HAS_TORCHRL, reason="torchrl is not installed")
def test_torchrl(desk: Path) -> None:
    best = run(desk, "torchrl.yaml").best()
    assert best.iterations == 8
    assert best.score is not None
    assert best.score > 20
    assert best.checkpoint().load()["steps"] in range(512, 4097, 512)


@pytest.mark.proof
def test_folds_as_seeds(desk: Path) -> None:
    found = run(desk, "folds.yaml")
    assert found.best().score == pytest.approx(0.978, abs=0.01)
    curves = found.curves()
    assert list(curves["seed_index"]) == [*range(5)] * 8
    assert curves[curves["trial"] == found.best().number]["accuracy"].nunique() > 1


@pytest.mark.proof
def test_the_objective_of_optuna(desk: Path) -> None:
    done = scripts.python(["digits.py"], desk)
    assert done.returncode == 0, done.stderr
    assert "'l1_ratio': {'uniform': [0.0, 1.0], 'when': {'penalty': ['elasticnet']}}" in done.stdout
    best = sweep.load("digits", root=desk / "sweeps").best()
    assert best.score is not None
    assert best.score > 0.9
    assert best.iterations == 21
    assert best.results()["zeros"].iloc[-1] >= 0


@pytest.mark.slow
def test_the_shell_script(desk: Path) -> None:
    found = run(desk, "shell.yaml")
    best = found.best()
    assert best.iterations == 9
    expected = 4 * (1 - 2 * best.settings["lr"]) ** 18
    assert best.score == pytest.approx(expected, rel=1e-2, abs=1e-6)
    assert "PRUNED" in {trial.status for trial in found.trials}


@pytest.mark.proof
def test_a_script_in_the_style_of_cleanrl(desk: Path) -> None:
    found = run(desk, "cleanrl.yaml")
    rows = next(trial for trial in found.trials if trial.status == "COMPLETED").results()
    assert rows["timesteps_total"].iloc[-1] >= 4000
    assert rows["episodic_return"].sum() == rows["timesteps_total"].iloc[-1]
    assert "PRUNED" in {trial.status for trial in found.trials}


@pytest.mark.slow
@pytest.mark.skipif(not HAS_HYDRA, reason="hydra is not installed")
def test_the_hydra_application(desk: Path) -> None:
    found = run(desk, "hydra.yaml")
    assert found.best().iterations == 20
    told = (found.path / "trials/0/hydra/.hydra/overrides.yaml").read_text()
    assert f"optimizer.lr={found.trial(0).settings['optimizer.lr']}" in told
    assert "seed=" in told


@pytest.mark.slow
def test_the_environment(desk: Path) -> None:
    best = run(desk, "corridor.yaml").best()
    assert best.iterations == 5
    policy = best.load_policy()
    try:
        assert policy.compute_action([0.5]) in (0, 1)
    finally:
        policy.stop()

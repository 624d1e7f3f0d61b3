"""Trials as lanes of one program: whole sweeps, killed and resumed, and what cannot be a lane."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sweep.core.errors import BadConfig, LimitPassed, StorageError, WorkerLost
from sweep.driver.start import prepare
from sweep.history.events import Closed, End, Goal, Status
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.pools import stack
from tests.support import laned, sweeps
from tests.support.command_line import start, write_spec
from tests.support.leftovers import Marked
from tests.support.quadratic import expected_loss
from tests.support.slices import slice_spec
from tests.support.waiting import wait_until

HERE = (str(Path.cwd()),)
SWEEP = Path(sys.executable).parent / "sweep"
SPEC = """
name: lanes
trials: 6
trainable: ppo
metric: episode_reward_mean
mode: max
config:
  env: CartPole-v1
  num_envs_per_worker: 4
  rollout_fragment_length: 16
  sgd_minibatch_size: 64
  model: {hidden: [8]}
  evaluation_interval: 2
  evaluation_num_episodes: 3
  log_sys_usage: false
space:
  lr: {loguniform: [1e-4, 1e-1]}
  num_sgd_iter: {randint: [1, 4]}
  gamma: {choice: [0.9, 0.99]}
stop: {training_iteration: 9}
searcher: {name: random, prior: none}
scheduler: {name: asha, grace_period: 3, reduction_factor: 3}
checkpoint: {every: 2}
deterministic: {batch: 3}
trackers: []
seed: 7
"""

#: The same of DQN.
DQN_SPEC = (
    SPEC.replace("trainable: ppo", "trainable: dqn")
    .replace("sgd_minibatch_size: 64", "replay_batch_size: 16\n  updates_per_step: 2")
    .replace("  log_sys", "  learning_starts: 128\n  buffer_size: 200\n  log_sys")
    .replace("num_sgd_iter", "n_step")
)


class Runner:
    """The command line in a folder, with a cache of programs that all tests of this file share."""

    def __init__(self, root: Path, cache: Path) -> None:
        self.root, self._cache = root, cache
        self.variables: dict[str, str] = {}
        """Further ones of the environment."""
        self.folder = Folder(root / "sweeps", "lanes")

    def run(self, *more: str, spec: str = SPEC, failpoint: str = "", code: int = 0) -> str:
        """Run the spec; return what is printed. It must end with this code."""
        (self.root / "space.yaml").write_text(spec)
        pool = () if "--pool" in more else ("--pool", "stack")
        return self.call("run", "space.yaml", *pool, *more, failpoint=failpoint, code=code)

    def run_killed_and_resumed(self, failpoint: str, spec: str = SPEC) -> None:
        """Run the spec, whose driver is killed at `failpoint`, and resume it to its end."""
        self.run(spec=spec, failpoint=failpoint, code=-signal.SIGKILL)
        self.call("resume", "lanes")

    def call(self, *arguments: str, failpoint: str = "", code: int = 0) -> str:
        """Call the command; return what it prints. It must end with this code."""
        environment = {
            **os.environ,
            **self.variables,
            "PYTHONPATH": str(Path.cwd()),
            "XDG_CACHE_HOME": str(self._cache),
        }
        if failpoint:
            counter = str(self.root / "count")
            environment |= {"SWEEP_FAILPOINT": failpoint, "SWEEP_FAILPOINT_FILE": counter}
        done = subprocess.run(
            [SWEEP, *arguments],
            cwd=self.root,
            env=environment,
            capture_output=True,
            timeout=240,
            check=False,
            text=True,
        )
        said = done.stdout + done.stderr
        assert done.returncode == code, said
        return said


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def runner(tmp_path: Path, cache: Path) -> Runner:
    return Runner(tmp_path, cache)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Folder:
    """The sweep that nobody killed."""
    runner = Runner(tmp_path_factory.mktemp("straight"), cache)
    runner.run()
    return runner.folder


def everything(folder: Folder) -> list[Any]:
    """Each trial's settings, end, curve and final state."""
    return [
        (
            replica.trial,
            replica.status,
            sweeps.curve(folder, replica.trial),
            sweeps.final_state(folder, replica),
        )
        for replica in sweeps.history(folder).replicas(*Status)
    ]


def without_lanes(folder: Folder, lanes: int) -> list[Any]:
    """Return `everything` but the number of lanes, which is `lanes` in each final state."""
    found = everything(folder)
    for *_, (_, state) in found:
        assert state["trainable"]["data"]["collected"].pop("lanes") == lanes
    return found


def lost(folder: Folder) -> Iterator[Closed]:
    for record in Ledger(folder.ledger).read():
        if isinstance(record.event, Closed) and record.event.end is End.LOST:
            yield record.event


@pytest.mark.slow
def test_a_sweep_of_lanes_has_the_trials_curves_and_checkpoints_of_any_other(
    straight: Folder,
) -> None:
    past = sweeps.history(straight)
    assert [trial.number for trial in past.trials] == list(range(6))
    assert {trial.config["lanes"] for trial in past.trials} == {6}
    assert any(trial.iteration == 9 for trial in past.trials)
    assert any(trial.iteration == 3 for trial in past.trials)
    for trial in past.trials:
        rows = sweeps.curve(straight, trial.number)
        assert [row.iteration for row in rows] == list(range(1, trial.iteration + 1))
        assert rows[-1].metrics["timesteps_total"] == 64 * trial.iteration
        evaluated = {row.iteration for row in rows if "evaluation/episodes" in row.metrics}
        assert evaluated == set(range(2, trial.iteration + 1, 2))
    assert len({sweeps.curve(straight, n)[0].metrics["learner/vf_loss"] for n in range(6)}) == 6


@pytest.mark.slow
@pytest.mark.parametrize(
    "failpoint",
    [
        pytest.param("submitted:2:self", marks=pytest.mark.proof),
        "stepping:11:parent",
        pytest.param("recorded:2:self", marks=pytest.mark.proof),
    ],
)
def test_a_killed_driver_is_resumed_to_the_bit(
    runner: Runner, straight: Folder, failpoint: str
) -> None:
    runner.run_killed_and_resumed(failpoint)
    assert everything(runner.folder) == everything(straight)


@pytest.mark.proof
def test_lanes_of_other_noise_are_in_one_program_and_are_resumed_to_the_bit(
    runner: Runner, tmp_path: Path, cache: Path
) -> None:
    noise = """  exploration_config.type: {choice: [StochasticSampling, StateDependentNoise]}
  exploration_config.sample_freq:
    {choice: [3, 5], when: {exploration_config.type: StateDependentNoise}}
stop:"""
    spec = SPEC.replace("CartPole-v1", "Pendulum-v1").replace("stop:", noise)
    spec = spec.replace("hidden: [8]}", "hidden: [4]}\n  horizon: 20")
    runner.run(spec=spec)
    trials = sweeps.history(runner.folder).trials
    assert len({trial.searched["exploration_config.type"] for trial in trials}) == 2
    (tmp_path / "killed").mkdir()
    again = Runner(tmp_path / "killed", cache)
    again.run_killed_and_resumed("stepping:11:parent", spec)
    assert everything(again.folder) == everything(runner.folder)


#: Two shapes, of which one has three quarters of the lanes.
SHAPES_SPEC = SPEC.replace("model: {hidden: [8]}", "horizon: 30").replace(
    "stop:",
    "  model.hidden: {choice: [[8], [16]], weights: [3, 1]}\n"
    "initial: [{model.hidden: [16]}]\n"
    "stop:",
)


@pytest.fixture(scope="module")
def several_shapes(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Folder:
    """The sweep of two shapes that nobody killed."""
    runner = Runner(tmp_path_factory.mktemp("shapes"), cache)
    runner.run(spec=SHAPES_SPEC)
    return runner.folder


@pytest.mark.proof
@pytest.mark.parametrize(
    "failpoint",
    [
        pytest.param("submitted:2:self", marks=pytest.mark.proof),
        "stepping:9:parent",
        pytest.param("stepping:9:self", marks=pytest.mark.proof),
    ],
)
def test_stacks_of_several_widths_are_resumed_to_the_bit(
    runner: Runner, several_shapes: Folder, failpoint: str
) -> None:
    trials = sweeps.history(several_shapes).trials
    widths = {*((str(one.searched["model.hidden"]), one.config["lanes"]) for one in trials)}
    assert widths == {("[8]", 6), ("[16]", 2)}
    if failpoint == "stepping:9:self":
        runner.run(spec=SHAPES_SPEC, failpoint=failpoint)
    else:
        runner.run_killed_and_resumed(failpoint, SHAPES_SPEC)
    assert everything(runner.folder) == everything(several_shapes)


@pytest.mark.proof
def test_lanes_with_a_replay_are_resumed_to_the_bit(
    runner: Runner, tmp_path: Path, cache: Path
) -> None:
    runner.run(spec=DQN_SPEC)
    trials = sweeps.history(runner.folder).trials
    assert len({trial.searched["n_step"] for trial in trials}) > 1
    assert any(trial.iteration == 9 for trial in trials)
    (tmp_path / "killed").mkdir()
    again = Runner(tmp_path / "killed", cache)
    again.run_killed_and_resumed("stepping:11:parent", DQN_SPEC)
    assert everything(again.folder) == everything(runner.folder)


@pytest.mark.slow
def test_a_killed_process_of_lanes_costs_each_of_them_one_slice(
    runner: Runner, straight: Folder
) -> None:
    runner.run(failpoint="stepping:11:self")
    assert len(list(lost(runner.folder))) > 1
    assert everything(runner.folder) == everything(straight)


def test_a_driver_that_is_killed_alone_leaves_no_process_and_is_resumed_to_the_bit(
    tmp_path: Path, marked: Marked, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = write_spec(
        tmp_path,
        trainable="tests.support.laned:Laned",
        config={"noise": 0.1, "step_s": 0.02},
        scheduler={"name": "asha", "grace_period": 9, "reduction_factor": 3},
        stop={"training_iteration": 27},
    )
    begin = ("run", spec, "--pool", "stack", "--jobs", 4, "--root")
    undisturbed = start(*begin, "undisturbed", cwd=tmp_path)
    said = undisturbed.communicate()
    assert undisturbed.returncode == 0, said
    wait_until(lambda: not marked.pids())

    iterations = tmp_path / "iterations"
    monkeypatch.setenv(laned.TOGETHER, str(iterations))
    driver = start(*begin, "killed", cwd=tmp_path, start_new_session=True)
    wait_until(lambda: iterations.exists() and len(iterations.read_text().splitlines()) > 3)
    lanes = set(marked.pids(but=[driver.pid]))
    driver.kill()
    assert driver.wait() == -signal.SIGKILL
    assert lanes
    wait_until(lambda: not marked.pids())
    killed = Folder(tmp_path / "killed", "demo")
    assert not sweeps.history(killed).replicas(Status.COMPLETED)

    resumed = start("resume", "demo", "--root", "killed", cwd=tmp_path)
    said = resumed.communicate()
    assert resumed.returncode == 0, said
    wait_until(lambda: not marked.pids())
    assert everything(killed) == everything(Folder(tmp_path / "undisturbed", "demo"))


FAILING = SPEC.replace("trainable: ppo", "trainable: tests.support.failing_devices:OnFailingDevice")


def charged(folder: Folder) -> list[Closed]:
    """The slices whose ends count as failures of their trials."""
    events = (record.event for record in Ledger(folder.ledger).read())
    bad = (End.LOST, End.CRASHED, End.UNSAVED)
    return [event for event in events if isinstance(event, Closed) and event.end in bad]


@pytest.mark.proof
def test_memory_that_does_not_suffice_halves_the_lanes_and_changes_nothing_else(
    runner: Runner, straight: Folder
) -> None:
    runner.variables = {"DEVICE_HOLDS": "4"}
    said = runner.run(spec=FAILING)
    halved = "the device has too little memory for 6 trials at once; the sweep continues with 3"
    assert said.count(halved) == said.count("too little memory") == 1
    assert charged(runner.folder) == []
    assert without_lanes(runner.folder, 3) == without_lanes(straight, 6)


@pytest.mark.proof
def test_a_device_that_is_lost_ends_the_driver_and_the_sweep_is_resumed_to_the_bit(
    runner: Runner, straight: Folder
) -> None:
    device = runner.root / "device"
    runner.variables = {"DEVICE_DIES_AT": "9", "DEVICE_COUNTS": str(device)}
    for said in (runner.run(spec=FAILING, code=4), runner.call("resume", "lanes", code=4)):
        (line,) = [line for line in said.splitlines() if "ECC_UNCORRECTABLE" in line]
        assert "the device was lost (INTERNAL: CUDA_ERROR" in line
        assert "`sweep resume`" in line
        assert "Traceback" not in said
    assert charged(runner.folder) == []
    device.unlink()
    runner.variables["DEVICE_DIES_AT"] = "1000000"
    runner.call("resume", "lanes")
    assert everything(runner.folder) == everything(straight)


@pytest.mark.proof
def test_more_places_and_other_neighbours_change_no_bit_on_a_cpu(
    runner: Runner, straight: Folder
) -> None:
    runner.run("--jobs", "2")
    few = {trial.number: trial for trial in sweeps.history(runner.folder).trials}
    assert {trial.config["lanes"] for trial in few.values()} == {2}
    for number in few:
        mine, theirs = sweeps.curve(runner.folder, number), sweeps.curve(straight, number)
        assert mine[:3] == theirs[:3]


@pytest.mark.slow
def test_what_lanes_have_learnt_is_exported(straight: Folder, runner: Runner) -> None:
    root = straight.root.parent
    Runner(root, root).call("export-model", "lanes", "--out", str(runner.root / "out"))
    assert list((runner.root / "out").rglob("*.onnx"))


@pytest.mark.parametrize(
    ("before", "after", "key"),
    [
        ("env: CartPole-v1", "env: LunarLander-v3", "config.env"),
        ("log_sys_usage: false", "monitor: true", "config.monitor"),
        ("trainable: ppo", "trainable: a2c", "trainable: a2c cannot train several trials in one"),
    ],
)
def test_what_cannot_be_a_lane_is_refused_before_anything_is_written(
    runner: Runner, before: str, after: str, key: str
) -> None:
    spec = SPEC.replace(before, after)
    if "a2c" in after:
        spec = spec.replace("  sgd_minibatch_size: 64\n", "").replace(
            "  num_sgd_iter: {randint: [1, 4]}\n", ""
        )
    said = runner.run(spec=spec, code=2)
    assert key in said
    assert "lanes" in said
    assert not (runner.root / "sweeps").exists()


def test_everything_that_cannot_be_a_lane_is_said_at_once_after_misspelt_keys(
    runner: Runner,
) -> None:
    not_in_lanes = "monitor: true\n  optimizer: {name: sgd}"
    spec = SPEC.replace("log_sys_usage: false", not_in_lanes).replace("[8]}", "[8]}\n  MORE")
    line = 1 + spec.splitlines().index("  monitor: true")
    said = runner.run(spec=spec.replace("MORE", "gama: 0.9"), code=2)
    misspelt = f"space.yaml:{line - 3}: config.gama: is not a setting of this trainer; "
    assert said.splitlines()[-1].startswith(f"sweep: {misspelt}")
    assert "lanes" not in said
    said = runner.run(spec=spec.replace("  MORE\n", ""), code=2)
    *_, monitor, optimizer = said.splitlines()
    assert f"space.yaml:{line - 1}: config.monitor: true cannot be used with trials" in monitor
    assert f"space.yaml:{line}: config.optimizer.name: sgd cannot be used" in optimizer
    assert not (runner.root / "sweeps").exists()


@pytest.mark.parametrize(
    ("space", "refused"),
    [
        ("cartpole_lanes", ""),
        ("quickstart", ""),
        ("cartpole_ppo", ""),
        ("pendulum_ppo", ""),
        ("cartpole_dqn", ""),
        ("acrobot_dqn", ""),
        ("acrobot_ppo", ""),
        ("cartpole_http_ppo", "config.external_timeout_s: 600.0"),
        ("lunarlander_ppo", "config.env: LunarLander-v3"),
    ],
)
def test_a_shipped_space_trains_in_lanes_or_lines_name_the_keys(space: str, refused: str) -> None:
    resolved, _ = prepare.prepare(space, [])
    if not refused:
        prepare.check_lanes(resolved)
        return
    with pytest.raises(BadConfig) as error:
        prepare.check_lanes(resolved)
    assert refused in str(error.value)
    assert all("in lanes" in line for line in str(error.value).splitlines())


def test_the_space_for_lanes_has_many_trials_and_one_program() -> None:
    resolved, _ = prepare.prepare("cartpole_lanes", [])
    spec = resolved.spec
    assert spec.trials >= prepare.LANES
    in_programs = {
        *("env", "horizon", "num_envs_per_worker", "rollout_fragment_length", "model.hidden"),
        *("timesteps_per_iteration", "sgd_minibatch_size"),
    }
    assert in_programs.isdisjoint(spec.space.parameters)
    activation = spec.space.domain_of("model.activation")
    assert all(activation.contains(name) for name in ("tanh", "relu"))
    assert spec.config["timesteps_per_iteration"] % (8 * 32) == 0


def test_a_sweep_that_was_begun_without_lanes_is_not_resumed_with_them(runner: Runner) -> None:
    runner.run("--pool", "inline", "--trials", "1")
    said = runner.call("resume", "lanes", "--pool", "stack", "--trials", "2", code=2)
    assert "began without lanes" in said


#: Settings of a lane.
LANE: dict[str, Any] = {
    "env": "CartPole-v1",
    "num_envs_per_worker": 4,
    "rollout_fragment_length": 16,
    "sgd_minibatch_size": 64,
    "model": {"hidden": [8]},
    "log_sys_usage": False,
    "learner": "fused",
    "native_vector_env": False,
    "lanes": 2,
}
LANED: dict[str, Any] = {"trainable": "tests.support.laned:Laned", "paths": HERE}


def test_memory_that_does_not_suffice_halves_the_lanes_until_one_is_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []
    monkeypatch.setenv(laned.HOLDS, "1")
    with closing(stack.Pool(2)) as pool:
        pool.say = heard.append
        spec = slice_spec(tmp_path, {"noise": 0.1, "lanes": 2}, **LANED)
        assert isinstance(pool.submit(spec).exception(timeout=240), StorageError)
        assert pool.slots == 1
        (halved,) = heard
        assert halved == (
            "the device has too little memory for 2 trials at once; the sweep continues with 1"
        )
        assert pool.failed() == ""
        loss = pool.submit(spec).result(timeout=240).rows[-1].metrics["loss"]
        assert loss == expected_loss({"noise": 0.1}, 5, 11)
        pool.resize(2)
        assert pool.slots == 1


def test_a_lost_device_fails_the_pool_with_one_line_and_nothing_runs_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(laned.HOLDS, "0")
    with closing(stack.Pool(2)) as pool:
        spec = slice_spec(tmp_path, {"noise": 0.1, "lanes": 2}, **LANED)
        assert isinstance(pool.submit(spec).exception(timeout=240), StorageError)
        (line,) = pool.failed().splitlines()
        assert "the device was lost (INTERNAL: CUDA_ERROR_LAUNCH_FAILED)" in line
        assert isinstance(pool.submit(spec).exception(timeout=0), StorageError)


def test_a_pool_says_how_many_lanes_it_has_and_how_fast_they_are(tmp_path: Path) -> None:
    with closing(stack.Pool(2)) as pool:
        for trial in range(2):
            settings = {"noise": 0.1, "step_s": 0.001}
            folder = tmp_path / str(trial)
            pool.submit(slice_spec(folder, settings, trial=trial, paths=HERE, goal=Goal(10**6)))
        said = re.compile(r"2 lanes, [1-9][0-9,]* environment steps/s")
        wait_until(lambda: said.fullmatch(pool.describe_speed()) is not None, 240.0)


@pytest.mark.slow
def test_a_pool_says_on_which_device_its_lanes_are(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    with closing(stack.Pool(2)) as pool:
        assert pool.describe_speed() == ""
        for trial in range(2):
            pool.submit(
                slice_spec(
                    tmp_path / str(trial),
                    LANE,
                    trial=trial,
                    trainable="ppo",
                    metric="episode_reward_mean",
                    goal=Goal(10**6),
                )
            )
        said = re.compile(r"2 lanes, [1-9][0-9,]* environment steps/s on the CPU in \d+ threads?")
        wait_until(lambda: said.fullmatch(pool.describe_speed()) is not None, 240.0)


def test_one_of_several_slices_is_given_up_and_the_others_go_on(tmp_path: Path) -> None:
    with closing(stack.Pool(2)) as pool:
        slow = {"noise": 0.1, "step_s": 0.05}
        ended = pool.submit(slice_spec(tmp_path / "a", slow, trial=0, paths=HERE, goal=Goal(1000)))
        kept = pool.submit(slice_spec(tmp_path / "b", slow, trial=1, paths=HERE))
        assert pool.pid(ended) == pool.pid(kept) is not None
        pool.end(ended, LimitPassed("it took too long"))
        assert isinstance(ended.exception(timeout=0), LimitPassed)
        assert kept.result(timeout=120).rows[-1].metrics["loss"] == expected_loss(slow, 5, 11)


def test_a_process_that_does_not_answer_is_killed_and_another_takes_its_place(
    tmp_path: Path,
) -> None:
    with closing(stack.Pool(2)) as pool:
        endless = {"noise": 0.1, "step_s": 60.0}
        first = pool.submit(slice_spec(tmp_path / "a", endless, trial=0, paths=HERE))
        other = pool.submit(slice_spec(tmp_path / "b", endless, trial=1, paths=HERE))
        before = pool.pid(first)
        pool.end(first, WorkerLost(None, before, "it stands still"))
        assert isinstance(other.exception(timeout=120), WorkerLost)
        again = pool.submit(slice_spec(tmp_path / "a", trial=0, paths=HERE))
        assert again.result(timeout=120).end is End.GOAL

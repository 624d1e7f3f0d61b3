"""`sweep init --from`: files of W&B and of rl-baselines3-zoo become specs that run."""

import math
from pathlib import Path
from typing import Any

import pytest

from sweep import spec as specs
from sweep.cli.main import main
from sweep.driver.start import prepare
from sweep.ledger.folder import Folder
from tests.support import sweeps
from tests.support.command_line import Here
from tests.support.proofs import proofs_except

WANDB = """\
program: prog.py
method: bayes
metric: {name: val/loss, goal: minimize, target: 1.0e-9}
parameters:
  lr: {distribution: log_uniform_values, min: 1.0e-4, max: 0.1}
  layers: {values: [1, 2, 3]}
  optimizer: {value: adam}
  use-bn: {values: [true, false]}
early_terminate: {type: hyperband, min_iter: 3}
command: ["${env}", "${interpreter}", "${program}", "${args_no_boolean_flags}"]
run_cap: 3
project: x
strange: 1
"""
PROGRAM = """\
import argparse, json
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--layers", type=int)
parser.add_argument("--optimizer")
parser.add_argument("--use-bn", action="store_true")
given = parser.parse_args()
assert given.optimizer == "adam"
for i in range(5):
    print(json.dumps({"val/loss": given.lr * given.layers / (i + 1)}), flush=True)
"""


@pytest.fixture
def here(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Here:
    monkeypatch.chdir(tmp_path)
    return Here(capsys, tmp_path / "sweeps")


def test_a_sweep_of_wandb_runs(here: Here, capsys: pytest.CaptureFixture[str]) -> None:
    Path("wandb.yaml").write_text(WANDB)
    Path("prog.py").write_text(PROGRAM)
    assert main(["init", "mine", "--from", "wandb.yaml"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "wrote mine/space.yaml",
        "wrote mine/sweep.schema.json",
        "try it:  sweep run mine/space.yaml",
    ]
    assert "Not converted: strange." in err
    few = ["--set", "trackers=[]", "--pool", "inline"]
    code, out, _ = here("run", "mine/space.yaml", *few)
    assert (code, "finished: 3 of 3 trials" in out) == (0, True)
    spec = specs.load(Path("mine/space.yaml"))
    assert (spec.name, spec.mode, spec.searcher.name) == ("mine", "min", "tpe")
    assert spec.scheduler.options["grace_period"] == 3
    assert spec.budget.target == 1e-9


ZOO = {
    "ppo.yml": """\
        CartPole-v1: &cart
          n_envs: 8
          n_timesteps: !!float 1e5
          policy: MlpPolicy
          n_steps: 32
          batch_size: 256
          learning_rate: lin_0.001
          clip_range: lin_0.2
        MountainCar-v0:
          <<: *cart
          normalize: true
          policy_kwargs: "dict(log_std_init=-2, activation_fn=nn.ReLU, net_arch=dict(pi=[64, 32]))"
        LunarLander-v2:
          <<: *cart
        """,
    "a2c.yml": """\
        CartPole-v1: {n_envs: 8, n_timesteps: 500000, policy: MlpPolicy, ent_coef: 0.01}
        """,
    "dqn.yml": """\
        CartPole-v1:
          n_timesteps: !!float 5e4
          learning_rate: !!float 2.3e-3
          batch_size: 64
          target_update_interval: 10
          train_freq: 256
          gradient_steps: -1
          exploration_fraction: 0.16
          policy_kwargs: "dict(net_arch=[64, 64])"
        """,
    "sac.yml": """\
        Pendulum-v1:
          n_timesteps: 20000
          learning_rate: !!float 1e-3
          ent_coef: 0.2
          use_sde: True
          sde_sample_freq: 64
        """,
    "td3.yml": """\
        Pendulum-v1:
          n_timesteps: 20000
          noise_type: 'normal'
          noise_std: 0.2
          strange: 3
        """,
}
#: File, environment → some of the settings that it becomes.
TAKEN: dict[tuple[str, str], dict[str, Any]] = {
    ("ppo.yml", "CartPole-v1"): {
        "rollout_fragment_length": 32,
        "sgd_minibatch_size": 256,
        "num_envs_per_worker": 8,
        "clip_param": 0.2,
        "clip_param_schedule": "linear",
        "lr_schedule": "linear",
    },
    ("ppo.yml", "MountainCar-v0"): {
        "observation_filter": "MeanStdFilter",
        "normalize_rewards": True,
        "model": {"hidden": [64, 32], "activation": "relu"},
    },
    ("a2c.yml", "CartPole-v1"): {"entropy_coeff": 0.01, "rollout_fragment_length": 5},
    ("dqn.yml", "CartPole-v1"): {
        "replay_batch_size": 64,
        "updates_per_step": 256,
        "tau": None,
        "n_step": 1,
        "exploration_config": {"epsilon_timesteps": 8000, "final_epsilon": 0.05},
    },
    ("sac.yml", "Pendulum-v1"): {
        "initial_alpha": 0.2,
        "learn_alpha": False,
        "exploration_config": {"type": "StateDependentNoise", "sample_freq": 64},
    },
    ("td3.yml", "Pendulum-v1"): {"exploration_config": {"type": "GaussianNoise", "stddev": 0.2}},
}


def write_zoo(name: str) -> None:
    lines = [line[8:] for line in ZOO[name].splitlines()]
    Path(name).write_text("\n".join(lines))


@pytest.mark.parametrize(("name", "env"), TAKEN)
def test_hyperparameters_of_the_zoo_become_settings_that_a_trainer_takes(
    name: str, env: str, here: Here, capsys: pytest.CaptureFixture[str]
) -> None:
    write_zoo(name)
    assert main(["init", "made", "--from", name, "--env", env]) == 0
    assert "try it:  sweep run made/space.yaml" in capsys.readouterr().out
    resolved, _ = prepare.prepare("made/space.yaml", [])
    config = resolved.spec.config
    taken = TAKEN[name, env]
    assert {key: config[key] for key in taken} == taken
    assert config["env"] == env
    assert resolved.spec.trainable == name.partition(".")[0]


def test_a_spec_from_the_zoo_runs(here: Here) -> None:
    write_zoo("ppo.yml")
    assert main(["init", "made", "--from", "ppo.yml", "--env", "CartPole-v1"]) == 0
    short = ["--set", "stop.timesteps_total=512", "--set", "scheduler=fifo", "--trials", "2"]
    code, out, err = here(
        "run", "made/space.yaml", *short, "--set", "trackers=[]", "--pool", "inline"
    )
    assert (code, err) == (0, "")
    assert "finished: 2 of 2 trials" in out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "steps", "iterations"),
    proofs_except(
        {("a2c", 10_000, 2), ("sac", 600, 3)},
        [("a2c", 10_000, 2), ("dqn", 1024, 2), ("sac", 600, 3), ("td3", 600, 3)],
    ),
)
def test_each_algorithm_of_the_zoo_trains_with_a_result_for_many_short_rounds(
    name: str, steps: int, iterations: int, here: Here
) -> None:
    write_zoo(f"{name}.yml")
    assert main(["init", "made", "--from", f"{name}.yml"]) == 0
    short = ["--set", f"stop.timesteps_total={steps}", "--set", "scheduler=fifo", "--trials", "1"]
    code, out, err = here(
        "run", "made/space.yaml", *short, "--set", "trackers=[]", "--pool", "inline"
    )
    assert (code, "1 completed" in out) == (0, True), out + err
    (trial,) = sweeps.history(Folder(here.root, "made")).trials
    rows = sweeps.curve(Folder(here.root, "made"), 0)
    assert len(rows) == iterations
    assert rows[-1].metrics["timesteps_total"] == steps
    learnt = {name: float(it) for name, it in rows[-1].metrics.items() if "loss" in name}
    assert learnt
    assert all(math.isfinite(value) for value in learnt.values())
    assert trial.score is not None


def test_what_the_zoo_has_and_we_do_not_is_told(
    here: Here, capsys: pytest.CaptureFixture[str]
) -> None:
    write_zoo("td3.yml")
    write_zoo("ppo.yml")
    Path("td3.yml").rename("tqc.yml")
    assert main(["init", "a", "--from", "tqc.yml"]) == 2
    assert "tqc is not supported; choose one of ppo, a2c, dqn, sac, td3" in capsys.readouterr().err
    assert main(["init", "a", "--from", "tqc.yml", "--algorithm", "td3"]) == 0
    assert "Not converted: strange: 3." in capsys.readouterr().err
    assert main(["init", "b", "--from", "ppo.yml"]) == 2
    assert "choose one of CartPole-v1, MountainCar-v0, LunarLander-v2" in capsys.readouterr().err
    assert main(["init", "b", "--from", "ppo.yml", "--env", "LunarLander-v2"]) == 0
    assert "LunarLander-v3 is its newest version" in capsys.readouterr().err
    assert main(["init", "b", "--from", "ppo.yml", "--env", "LunarLander-v2"]) == 2
    assert "exists already" in capsys.readouterr().err


def test_such_a_file_is_recognised_where_a_spec_is_expected(
    here: Here, capsys: pytest.CaptureFixture[str]
) -> None:
    write_zoo("ppo.yml")
    Path("wandb.yaml").write_text(WANDB)
    for name, what in (("ppo.yml", "hyperparameters of rl-baselines3-zoo"), ("wandb.yaml", "W&B")):
        for command in ("run", "validate"):
            assert main([command, name]) == 2
            told = capsys.readouterr().err.splitlines()
            assert len(told) == 1
            assert what in told[0]
            assert f"`sweep init --from {name} FOLDER`" in told[0]


def test_another_file_is_told_to_be_neither(here: Here, capsys: pytest.CaptureFixture[str]) -> None:
    Path("spec.yaml").write_text("name: x\n")
    assert main(["init", "a", "--from", "spec.yaml"]) == 2
    assert "is neither a sweep of W&B nor a file of" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x, x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a]\n"
        "c: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b]\nd: &d [*c, *c, *c, *c, *c, *c, *c, *c]\n"
        "e: {n_timesteps: [*d, *d, *d, *d, *d, *d, *d, *d, *d]}\nparameters: 3\n",
        "a: &a {n_timesteps: 3, b: *a}\nparameters: 3\n",
        "parameters: {a: !!python/object/apply:os.system ['true']}\n",
        "parameters: [\n",
    ],
)
def test_a_hostile_file_is_refused(
    text: str, here: Here, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("hostile.yaml").write_text(text)
    for command in (["init", "a", "--from", "hostile.yaml"], ["run", "hostile.yaml"]):
        assert main(command) == 2
        assert "Traceback" not in capsys.readouterr().err
    assert not Path("a").exists()


STACKED = """\
CartPole-v1: {n_timesteps: 1000, policy: MlpPolicy, frame_stack: 2}
atari: {n_timesteps: 1000, frame_stack: 4, env_wrapper: [a.atari_wrappers.AtariWrapper]}
"""


def test_stacked_frames_are_converted_for_atari_only(
    here: Here, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("ppo.yml").write_text(STACKED)
    assert main(["init", "a", "--from", "ppo.yml", "--env", "CartPole-v1"]) == 0
    assert "Not converted: frame_stack: 2." in capsys.readouterr().err
    assert main(["init", "b", "--from", "ppo.yml", "--env", "PongNoFrameskip-v4"]) == 0
    assert "Not converted" not in capsys.readouterr().err


def test_a_file_may_have_several_algorithms(here: Here, capsys: pytest.CaptureFixture[str]) -> None:
    steps = "{n_timesteps: 1000, learning_rate: lin_0.002}"
    several = f"ppo: {{CartPole-v1: {steps}, Acrobot-v1: {steps}}}\ndqn: {{CartPole-v1: {steps}}}\n"
    Path("hyperparams.yml").write_text(several)
    asked = ["init", "a", "--from", "hyperparams.yml"]
    assert main(asked) == 2
    assert "has several algorithms; choose one of ppo, dqn" in capsys.readouterr().err
    assert main([*asked, "--algorithm", "ppo"]) == 2
    assert "--env: the file has several environments" in capsys.readouterr().err
    assert main([*asked, "--algorithm", "dqn"]) == 0
    spec = specs.load(Path("a/space.yaml"))
    assert (spec.trainable, spec.config["env"]) == ("dqn", "CartPole-v1")
    Path("one.yml").write_text(several.partition("\n")[2])
    assert main(["init", "b", "--from", "one.yml"]) == 0

"""What a driver imports: torch, which takes a second and 200 MB, only where something needs it."""

from pathlib import Path

import pytest

from sweep import schedulers, searchers
from sweep.core import plugins
from tests.support.processes import run_python

#: Searches with each searcher in turn, then makes and asks each scheduler; says who imported torch.
PROGRAM = """
import json
import sys
from sweep import spec as specs
from sweep.driver.start import launch
from sweep.driver.start.creation import resolving
from sweep.testing import simulate

def simulated(**keys):
    with_grid = keys.get("searcher") in ("grid", "brute_force")
    space = {"x": {"choice": list(range(20))}} if with_grid else {"x": {"uniform": [0.0, 1.0]}}
    spec = {"trials": 4, "stop": {"training_iteration": 9}, "space": space, **keys}
    course = simulate(spec, lambda at: {"score": float(at.trial)}, slots=2)
    assert course.state == "finished", keys

NEEDED = {
    "pbt": {"perturbation_interval": 2},
    "pb2": {"perturbation_interval": 2},
    "optuna": {"pruner": "MedianPruner"},
    "threshold": {"lower": 0.5},
}

PPO = {"name": "x", "trainable": "ppo", "config": {"env": "CartPole-v1"}, "trackers": [],
       "metric": "episode_reward_mean", "mode": "max"}

def prepared(**keys):
    # what a driver asks a trainer for, before and after its first trial
    with_grid = keys.get("searcher") in ("grid", "brute_force")
    space = {"lr": {"choice": [0.1, 0.2]} if with_grid else {"uniform": [0.1, 0.2]}}
    spec = {"trials": 4, "stop": {"training_iteration": 9}, "space": space, **PPO, **keys}
    found = resolving.resolve(specs.parse(json.dumps(spec), "spec"), (), is_new=True)
    config = found.trainable.complete_config(found.spec.config, found.spec.stop)
    assert found.trainable.settle_config(config)["learner"] in ("fused", "compiled")
    assert found.trainable.default_resource_request(config)["cpu"] == 1

for word in sys.argv[1:]:
    kind, _, name = word.partition(":")
    if kind == "searcher":
        simulated(searcher=name, scheduler="fifo")
        prepared(searcher=name)
    else:
        simulated(scheduler={"name": name, **NEEDED.get(name, {})})
        prepared(scheduler={"name": name, **NEEDED.get(name, {})})
    if "torch" in sys.modules:
        print(word)
        break
"""

#: A whole sweep of PPO in worker processes; says what its driver imported.
SWEEP = """
import sys
from sweep.cli.main import main

code = main(["run", "ppo.yaml", "--jobs", "1"])
print(code, *{"torch", "mlflow"} & set(sys.modules))
"""
SPEC = """
name: ppo
trainable: ppo
config: {env: CartPole-v1, rollout_fragment_length: 64}
metric: episode_reward_mean
mode: max
trials: 1
trackers: [mlflow]
space: {lr: {uniform: [0.001, 0.002]}}
stop: {training_iteration: 1}
"""


def imports_torch(words: list[str], cwd: Path) -> str:
    """The first plugin with which a driver imports torch; empty: none does."""
    return run_python(PROGRAM, *words, cwd=cwd).strip()


@pytest.mark.slow
def test_no_scheduler_and_no_searcher_makes_a_driver_import_torch(tmp_path: Path) -> None:
    names = [f"searcher:{name}" for name in plugins.names(searchers.PACKAGE)]
    # A replayed schedule is a file, for one trial.
    names += [
        f"scheduler:{name}" for name in plugins.names(schedulers.PACKAGE) if name != "pbt_replay"
    ]
    assert imports_torch(names, tmp_path) == ""


@pytest.mark.slow
def test_a_driver_of_ppo_needs_neither_torch_nor_mlflow(tmp_path: Path) -> None:
    (tmp_path / "ppo.yaml").write_text(SPEC)
    assert run_python(SWEEP, cwd=tmp_path).splitlines()[-1] == "0"


def test_a_scheduler_is_made_to_be_looked_at_without_optuna() -> None:
    code = (
        "import sys\n"
        "from sweep import schedulers\n"
        "from sweep.core import plugins\n"
        "from sweep.schedulers import SchedulerContext\n"
        "found = {name: schedulers.find(name) for name in plugins.names(schedulers.PACKAGE)}\n"
        "context = SchedulerContext(stop={'training_iteration': 9})\n"
        "found['median'](found['median'].Options(), context)\n"
        "sys.exit(', '.join({'optuna', 'scipy', 'torch', 'mlflow'} & set(sys.modules)) or 0)\n"
    )
    run_python(code)


def test_an_algorithm_is_found_and_asked_about_without_torch(tmp_path: Path) -> None:
    assert imports_torch(["scheduler:fifo"], tmp_path) == ""

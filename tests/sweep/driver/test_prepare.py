from collections.abc import Mapping
from typing import Any

import pytest

from sweep import spec as specs
from sweep.driver.start import prepare
from sweep.driver.start.creation import resolving
from sweep.operations.rehearsal.validate import preview
from tests.support.quadratic import Quadratic
from tests.support.stand_in import as_accelerator
from trainables.algorithms.ppo import PPO

SPEC = """
name: small
trials: 4
trainable: ppo
metric: episode_reward_mean
mode: max
config: {env: CartPole-v1, num_workers: 3, num_cpus_per_worker: 2}
space: {lr: {loguniform: [1e-5, 1e-2]}}
stop: {training_iteration: 1}
"""


def test_T7_a_trial_takes_the_cores_of_its_children_too() -> None:
    assert prepare.cores_per_trial(specs.parse(SPEC, "small.yaml"), PPO) == 7.0


class Greedy(Quadratic):
    """Asks for as much of a GPU as it is set to."""

    @classmethod
    def default_resource_request(cls, config: Mapping[str, Any]) -> dict[str, float]:
        return {"cpu": 1.0, "gpu": float(config["num_gpus"])}


@pytest.mark.parametrize(
    ("asked", "given", "said"),
    [
        (1, 0, "add resources: {gpu: 1}"),
        (0.5, 0, "add resources: {gpu: 0.5}"),
        (1.5, 0, "add resources: {gpu: 2}"),
        (0, 1, "on the GPU, set config: {num_gpus: 1}"),
        (0, 2, "on the GPU, set config: {num_gpus: 1}"),
        (1, 0.25, "set num_gpus and resources: {gpu} to the same share"),
        (0.25, 0.25, ""),
        (0.25, 1, ""),
        (1, 1, ""),
        (0, 0, ""),
    ],
)
def test_a_gpu_that_settings_and_resources_name_in_different_shares_is_remarked(
    asked: float, given: float, said: str
) -> None:
    text = (
        f"{{name: small, trials: 4, trainable: '{__name__}:Greedy', metric: loss, mode: min, "
        f"config: {{num_gpus: {asked}}}, resources: {{gpu: {given}}}, "
        f"space: {{lr: {{loguniform: [1e-3, 0.9]}}}}, stop: {{training_iteration: 1}}}}"
    )
    remarks = prepare.remarks(resolving.resolve(specs.parse(text, "small.yaml"), ()))
    assert [said in one for one in remarks] == [True] * bool(said)


def test_a_trainable_that_names_no_gpu_is_given_one_without_a_remark() -> None:
    lines = SPEC.replace("ppo", "tests.support.quadratic:Quadratic").splitlines()
    text = "\n".join(line for line in lines if not line.startswith("config: "))
    spec = specs.parse(f"{text}\nresources: {{gpu: 1}}", "small.yaml")
    assert prepare.remarks(resolving.resolve(spec, ())) == []


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("{env: CartPole-v1, num_gpus: 1}", "faster on the CPU: 64-64 networks; num_gpus: 1 pays"),
        ("{env: CartPole-v1, num_gpus: 0.5, model: {hidden: []}}", "linear networks"),
        ("{env: CartPole-v1}", ""),
        ("{env: CartPole-v1, num_gpus: 1, model: {hidden: [256]}}", ""),
        ("{env: 'tests.support.pictures:Planes', num_gpus: 1}", ""),
    ],
)
def test_validate_says_where_a_gpu_does_not_pay(
    config: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_accelerator(monkeypatch)
    given = "{env: CartPole-v1, num_workers: 3, num_cpus_per_worker: 2}"
    resolved = resolving.resolve(specs.parse(SPEC.replace(given, config), "small.yaml"), ())
    found = [one for one in preview(resolved, 1)["warnings"] if "CPU" in one]
    assert [said in one for one in found] == [True] * bool(said)

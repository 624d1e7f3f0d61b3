"""How many trials fit beside each other, and which GPUs each of them sees."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sweep import spec as specs
from sweep.core.errors import BadConfig
from sweep.driver import capacity
from sweep.driver.start import prepare
from sweep.history.events import Goal
from sweep.pools import loky
from sweep.spec import SweepSpec
from tests.support import sweeps
from tests.support.slices import slice_spec

FOUR = ("0", "1", "2", "3")


def spec_of(**changes: Any) -> SweepSpec:
    lines = [f"{key}: {value}" for key, value in changes.items()]
    head = ["name: demo", "trials: 9", "trainable: tests.support.quadratic:Quadratic"]
    head += ["metric: loss", "mode: min", "space: {lr: 0.1}"]
    return specs.parse("\n".join([*head, *lines]), "spec.yaml")


@pytest.mark.parametrize(
    ("resources", "machine", "most"),
    [
        ("{gpu: 1}", "{}", 4),
        ("{gpu: 2}", "{}", 2),
        ("{gpu: 3}", "{}", 1),
        ("{gpu: 0.5}", "{}", 8),
        ("{gpu: 0.3}", "{}", 12),
        ("{gpu: 0.1}", "{gpu: 1}", 10),
        ("{cpu: 2}", "{cpu: 5}", 2),
        ("{gpu: 1, custom: {licence: 1}}", "{custom: {licence: 3}}", 3),
        ("{custom: {licence: 0.1}}", "{custom: {licence: 0.3}}", 3),
    ],
)
def test_what_is_scarcest_says_how_many_trials_fit(resources: str, machine: str, most: int) -> None:
    spec = spec_of(resources=resources, machine=machine)
    assert capacity.most_at_once(spec, FOUR) == most


def test_at_most_so_many_run_at_once_whatever_is_asked() -> None:
    spec = spec_of(limits="{max_concurrent: 3}")
    assert prepare.slots(8, spec, (), 9) == 3
    assert prepare.slots(2, spec, (), 9) == 2
    assert prepare.slots(8, spec_of(), (), 9) == 8


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ("{gpu: 5}", "resources.gpu: 5 is more than the machine has"),
        ("{cpu: 1000}", "resources.cpu: 1000 is more than the machine has"),
        ("{custom: {licence: 2}}", "machine: {custom: {licence: 2}}"),
    ],
)
def test_a_trial_that_can_never_fit_is_refused(resources: str, message: str) -> None:
    with pytest.raises(BadConfig, match=r"^spec\.yaml:7: ") as error:
        capacity.most_at_once(spec_of(resources=resources), FOUR)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ("{gpu: 1.5}", "a share such as 0.5, or a whole number"),
        ("{gpu: -1}", "greater than or equal to 0"),
        ("{custom: {licence: 0}}", "greater than 0"),
    ],
)
def test_resources_that_make_no_sense_are_refused(resources: str, message: str) -> None:
    with pytest.raises(BadConfig, match="resources") as error:
        spec_of(resources=resources)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("gpu", "seen"),
    [
        ("1", ["0", "1", "2", "3"]),
        ("2", ["0,1", "2,3"]),
        ("0.5", ["0", "0", "1", "1", "2", "2", "3", "3"]),
        ("0.4", ["0", "0", "1", "1"]),
    ],
)
def test_each_slot_sees_its_own_devices(gpu: str, seen: list[str]) -> None:
    spec = spec_of(resources=f"{{gpu: {gpu}}}")
    found = [capacity.gpu_variables(spec, slot, FOUR) for slot in range(len(seen))]
    assert found == [{"CUDA_VISIBLE_DEVICES": devices} for devices in seen]
    assert capacity.gpu_variables(spec_of(), 0, FOUR) == {}


def test_devices_that_were_handed_to_us_keep_their_names(tmp_path: Path) -> None:
    handed = {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"}
    assert capacity.gpus(handed) == ("GPU-a", "GPU-b")
    assert capacity.gpus({"CUDA_VISIBLE_DEVICES": ""}) == ()
    assert capacity.gpus({}, tmp_path / "absent") == ()
    for name in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / name).mkdir()
    assert capacity.gpus({}, tmp_path) == ("0", "1")


@pytest.mark.parametrize(
    ("visible", "devices"),
    [("-1", ()), ("0,-1,1", ("0",)), ("void", ()), ("NoDevFiles", ()), (" 2, 3", ("2", "3"))],
)
def test_what_hides_devices_counts_for_none(visible: str, devices: tuple[str, ...]) -> None:
    assert capacity.gpus({"CUDA_VISIBLE_DEVICES": visible}) == devices


def test_a_worker_process_sees_what_its_slot_is_given(tmp_path: Path) -> None:
    spec = spec_of(resources="{gpu: 0.5}", machine="{gpu: 1}")
    with closing(loky.Pool(2)) as pool:
        pool.equip(lambda slot: capacity.gpu_variables(spec, slot, ("GPU-a",)))
        told = slice_spec(
            tmp_path,
            trainable="tests.support.mishaps:Sees",
            metric="value",
            paths=(str(Path.cwd()),),
            goal=Goal(1),
        )
        row = pool.submit(told).result(timeout=120).rows[0]
    assert row.metrics["visible"] == "GPU-a"


@pytest.mark.slow
def test_a_sweep_shares_the_machine_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b")
    folder = sweeps.make(
        tmp_path,
        trainable="tests.support.mishaps:Sees",
        metric="value",
        scheduler="fifo",
        trials=2,
        stop={"training_iteration": 1},
        resources={"gpu": 1},
    )
    sweeps.run(folder, slots=2, pool="loky")
    seen = [sweeps.curve(folder, number)[0].metrics["visible"] for number in range(2)]
    assert sorted(str(one) for one in seen) == ["GPU-a", "GPU-b"]

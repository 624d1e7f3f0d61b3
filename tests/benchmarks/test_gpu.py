"""Tests of the benchmark of trials on a device: it runs on a CPU at a small size."""

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmarks import gpu, sharing, trials
from benchmarks.speed.measures.networks import Pictures
from tests.support.stand_in import as_accelerator


@pytest.mark.proof
def test_it_measures_lanes_and_a_whole_sweep_in_lanes(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    out = tmp_path / "gpu.json"
    sweep = "quickstart --trials 2 --jobs 2 --set stop.timesteps_total=2560"
    sweep += " --set scheduler=fifo"
    parts = ["--parts", "lanes", "sweeps"]
    gpu.main(["--out", str(out), *parts, "--lanes", "2", "--seconds", "0.1", "--sweep", sweep])
    found = json.loads(out.read_text("utf-8"))
    assert found["device"]
    assert found["lanes"]["2"]["steps_per_s"] > 0
    first, second = found["sweeps"].values()
    assert (first["exit_code"], second["exit_code"]) == (0, 0), first
    assert first["trials"] == first["trials_with_curve"] == 2
    assert first["steps"] == second["steps"] == 5120
    assert first["damages"] == []
    assert 0 < first["driver_cpu_s"] < first["wall_s"]


@pytest.mark.slow
def test_a_sweep_that_fails_leaves_its_output_in_the_figures(tmp_path: Path) -> None:
    found = gpu.sweep_from_shell("no_such_space", (), tmp_path)
    assert found["exit_code"] == 2
    assert "no_such_space" in found["output"]


class Peer:
    """An algorithm of Stable-Baselines3, as far as it is called."""

    made: list[tuple[str, Any, dict[str, Any]]] = []  # noqa: RUF012 of all kinds together

    def __init__(self, policy: str, environments: Any, **given: Any) -> None:
        self.num_timesteps = 0
        self.made.append((policy, environments, given))

    def learn(self, steps: int, reset_num_timesteps: bool = True) -> None:
        self.num_timesteps = steps + (0 if reset_num_timesteps else self.num_timesteps)


def test_trials_are_measured_beside_a_peer_and_each_figure_is_written_when_it_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers, util = ModuleType(trials.PEER), ModuleType(f"{trials.PEER}.common.env_util")
    for name in ("PPO", "DQN", "SAC"):  # TD3 is missing: its figure is the error
        setattr(peers, name, type(name, (Peer,), {}))
    util.make_vec_env = lambda env, n_envs: (env, n_envs)  # type: ignore[attr-defined]  # as there
    monkeypatch.setitem(sys.modules, trials.PEER, peers)
    monkeypatch.setitem(sys.modules, util.__name__, util)
    monkeypatch.setattr(trials, "find_spec", lambda name: name)
    monkeypatch.setattr(Peer, "made", [])
    out, known = tmp_path / "gpu.json", list[int]()
    write = gpu._write

    def noted(path: Path, figures: dict[str, Any]) -> None:
        known.append(sum(map(len, figures["trials"].values())))
        write(path, figures)

    monkeypatch.setattr(gpu, "_write", noted)
    gpu.main(["--out", str(out), "--parts", "trials", "--tiny", "--seconds", "0.01"])
    found = json.loads(out.read_text("utf-8"))["trials"]
    assert known == list(range(1, 2 * len(trials.cases()) + 1))
    assert found.keys() == trials.cases().keys()
    assert all(one["ours on the cpu"]["steps_per_s"] > 0 for one in found.values())
    assert "has no attribute 'TD3'" in found["td3, 256-256"].pop(trials.PEER)
    peers_found = [one[trials.PEER] for one in found.values() if trials.PEER in one]
    assert [one["steps_per_s"] > 0 for one in peers_found] == [True] * 4
    policies = [(policy, environments) for policy, environments, _ in Peer.made]
    assert policies == [
        ("CnnPolicy", (Pictures, 8)),
        ("MlpPolicy", ("CartPole-v1", 8)),
        ("CnnPolicy", (Pictures, 1)),
        ("MlpPolicy", ("Pendulum-v1", 1)),
    ]


def test_on_a_gpu_trials_are_measured_with_and_without_what_is_special_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    as_accelerator(monkeypatch)
    found = list(trials.measured(0.01, tiny=True))
    count = len(trials.cases())
    assert [variant for _, variant, _ in found[::count]] == list(trials.VARIANTS)
    ours = [speed for _, variant, speed in found if variant != trials.PEER]
    assert all(isinstance(one, dict) and one["steps_per_s"] > 0 for one in ours), ours
    assert {speed for _, variant, speed in found if variant == trials.PEER} == {"not installed"}


@pytest.mark.slow
def test_trials_that_share_a_gpu_are_measured_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "COUNTS", (1, 2))
    only = {"td3, 256-256": trials.cases()["td3, 256-256"]}
    monkeypatch.setattr(trials, "cases", lambda tiny=False: only)
    out = tmp_path / "gpu.json"
    gpu.main(["--out", str(out), "--parts", "shared", "--tiny", "--seconds", "0.05"])
    found = json.loads(out.read_text("utf-8"))["shared"]["td3, 256-256"]
    assert {count: len(one["each"]) for count, one in found.items()} == {"1": 1, "2": 2}
    for one in found.values():
        assert one["steps_per_s"] == pytest.approx(sum(one["each"]), abs=0.11)
        assert min(one["each"]) > 0


@pytest.mark.slow
def test_a_trial_that_fails_beside_others_is_told() -> None:
    found = sharing.shared_speed("no such case", 2, 0.05, tiny=True)
    assert found["error"] == "2 of 2 trials failed; see their output"

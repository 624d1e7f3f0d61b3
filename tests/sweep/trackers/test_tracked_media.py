"""What callbacks show of episodes lies in MLflow, each file once, whatever is sent again."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweep.driver.tracking import sync
from sweep.ledger.folder import Folder
from sweep.operations.mlflow import attachments
from sweep.trackers._shared.mlflow_store import StoredRun
from tests.support.command_line import Here, write_spec

SPEC: dict[str, Any] = {
    "trainable": "ppo",
    "metric": "episode_reward_mean",
    "mode": "max",
    "trials": 1,
    "config": {
        "env": "tests.support.environments:Counting",
        "env_config": {"length": 5},
        "rollout_fragment_length": 32,
        "sgd_minibatch_size": 32,
        "num_sgd_iter": 1,
        "model": {"hidden": [4]},
        "callbacks": "tests.support.callbacks:Shows",
    },
    "stop": {"training_iteration": 2},
    "scheduler": "fifo",
    "trackers": ["mlflow"],
    "space": {"lr": {"choice": [1e-3, 2e-3]}},
}


def artifacts(root: Path) -> dict[str, bytes]:
    """What lies in the trials' artifacts under ``media``."""
    with closing(sqlite3.connect(root / "mlflow.db")) as database:
        runs = [run for (run,) in database.execute("SELECT run_uuid FROM runs")]
    places = [root / "mlartifacts" / run / "artifacts" / "media" for run in runs]
    return {
        f"{place.parents[1].name}/{file.name}": file.read_bytes()
        for place in places
        if place.is_dir()
        for file in place.iterdir()
    }


@pytest.mark.parametrize("seeds", [{}, {"seeds": 2}], ids=["one seed", "two seeds"])
def test_media_of_each_trial_are_in_mlflow_once(
    seeds: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = Here(capsys, tmp_path / "sweeps")
    assert here("run", write_spec(tmp_path, **SPEC, **seeds), "--pool", "inline")[0] == 0
    found = artifacts(here.root)
    trials = sorted((here.root / "demo" / "trials").iterdir())
    written = [file for trial in trials for file in sorted((trial / "media").iterdir())]
    assert [file.name for file in written[:4]] == [
        *("000001-length.png", "000001-steps.json"),
        *("000002-length.png", "000002-steps.json"),
    ]
    assert sorted(found.values()) == sorted(file.read_bytes() for file in written)
    assert here("resume", "demo", "--trials", 2)[0] == 0
    later = artifacts(here.root)
    assert len(later) == 2 * len(found)
    assert {name: later[name] for name in found} == found


def test_a_result_leads_to_no_file_outside_of_its_trial(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "000001-secret.json").write_text("{}")
    here = Here(capsys, tmp_path / "sweeps")
    config = {"names": [str(tmp_path / "000001-secret.json"), "000001-secret.json"]}
    spec = {**SPEC, "trainable": f"{__name__}:names_files", "config": config}
    assert here("run", write_spec(tmp_path, **spec), "--pool", "inline")[0] == 0
    assert artifacts(here.root) == {}


def names_files(config: dict[str, Any], tune: Any = None) -> None:
    """Reports files that it did not write."""
    from trainables import report

    for name in config["names"]:
        report({"episode_reward_mean": 0.0, "media": {"secret": name}})


class Artifacts:
    """What an MLflow server keeps, which refuses the first file after so many; and its store."""

    def __init__(self, root: Path, takes: int) -> None:
        with closing(sqlite3.connect(root / "mlflow.db")) as database:
            tags = database.execute("SELECT run_uuid, key, value FROM tags").fetchall()
        self.tags: dict[str, dict[str, str]] = {}
        for run, key, value in tags:
            self.tags.setdefault(run, {})[key] = value
        self.kept: list[tuple[str, str]] = []
        self.takes = takes

    def runs(self) -> list[StoredRun]:
        return [StoredRun(run, "", tags=tags) for run, tags in self.tags.items()]

    def close(self) -> None:
        """Nothing is held."""

    def list_artifacts(self, run: str, folder: str) -> list[Any]:
        return [SimpleNamespace(path=f"{folder}/{name}") for of, name in self.kept if of == run]

    def log_artifact(self, run: str, file: str, folder: str) -> None:
        assert folder == "media"
        if len(self.kept) == self.takes:
            raise OSError("no space is left on the server")
        self.kept.append((run, Path(file).name))


@pytest.mark.parametrize("seeds", [{}, {"seeds": 2}], ids=["one seed", "two seeds"])
def test_media_that_a_server_did_not_take_are_sent_when_the_sweep_has_finished(
    seeds: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = Here(capsys, tmp_path / "sweeps")
    words = ("--pool", "inline", "--attach", "later")
    assert here("run", write_spec(tmp_path, **SPEC, **seeds), *words)[0] == 0
    folder = Folder(here.root, "demo")
    where = replace(sync.tracker_context(folder), tracking_uri="http://127.0.0.1:1")
    server = Artifacts(here.root, takes=2)
    for name, made in (("find_store", lambda *_, **__: server), ("open_client", lambda _: server)):
        monkeypatch.setattr(attachments, name, made)
    monkeypatch.setattr(attachments, "_keeps_files", lambda *_: True)
    monkeypatch.setattr(attachments, "_send_report_and_models", lambda *_: "report")
    monkeypatch.setattr(sync, "tracker_context", lambda _: where)
    said: list[str] = []
    attachments.attach(folder, said.append, 0.0)
    then = f"send them with `sweep sync {folder.in_commands}`"
    assert f"media files: no space is left on the server; {then}" in said[-1]
    assert sync.attachments_due(where)
    server.takes = 1000
    attachments.attach(folder, said.append, 0.0)
    assert said[-1].endswith(f"and {len(server.kept) - 2} media files that it had not taken")
    written = sorted(file.name for file in folder.path.glob("trials/*/media/*"))
    assert sorted(name for _, name in server.kept) == written
    assert not sync.attachments_due(where)
    assert attachments._send_media(where, 10**9, {run.name: run for run in server.runs()}) == ""

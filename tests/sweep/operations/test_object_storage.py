"""What is done with a sweep does the same where its checkpoints lie on the disk and in S3."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sweep import api
from sweep.ledger.folder import Folder
from sweep.operations.upkeep.repair import repair
from sweep.operations.upkeep.verify import verify
from sweep.slices import cache
from sweep.slices import store as stores
from tests.support import sweeps
from tests.support.command_line import Here, write_spec
from tests.support.mlflow_server import serving
from tests.support.ports import free_port
from trainables.checkpoint.remote import Remote

#: Every checkpoint is kept, on no disk where there is a storage.
HOARDING: dict[str, Any] = {
    "checkpoint": {"every": 1, "keep_last": 20, "keep_best": 20, "cache": 1},
    "trackers": [],
    "trials": 3,
    "scheduler": "fifo",
    "stop": {"training_iteration": 4},
}
BREEDING: dict[str, Any] = {
    "trackers": [],
    "trials": 4,
    "stop": {"training_iteration": 6},
    "scheduler": {"name": "pbt", "perturbation_interval": 2},
}


@dataclass
class There:
    """Where the checkpoints of a sweep lie; what a person without the program sees."""

    url: str | None

    def files(self, folder: Folder) -> dict[str, int]:
        """Name in the sweep's folder, or in its storage → bytes, of all that are ours."""
        if self.url is None:
            found = {
                str(path.relative_to(folder.path)): path.stat().st_size
                for path in folder.path.glob("trials/*/*")
            }
        else:
            found = Remote(stores.of_sweep(folder).url).sizes()
        return {name: size for name, size in found.items() if "/ckpt-" in name or "/seg-" in name}

    def damage(self, folder: Folder, name: str, content: bytes | None) -> None:
        """Write other bytes under a name; None: delete it."""
        if self.url is None:
            path = folder.path / name
            path.unlink(missing_ok=True) if content is None else path.write_bytes(content)
            return
        storage = Remote(stores.of_sweep(folder).url)
        storage.delete([name]) if content is None else storage.write(name, content)
        shutil.rmtree(folder.path / "trials" / name.split("/")[1], ignore_errors=True)

    def named(self, folder: Folder) -> set[str]:
        """What the ledger names."""
        return {
            f"trials/{folder.trial(replica.trial, replica.index).name}/{file}"
            for replica in sweeps.history(folder).all_replicas
            for file in replica.files
        }

    def stray(self, folder: Folder) -> str:
        """The name of a file that no row names."""
        its = folder.trial(0)
        name = f"ckpt-{1:010d}-{'0' * 64}.swck"
        where = f"trials/{its.name}/{'0/' if self.url else ''}{name}"
        self.damage(folder, where, b"x")
        its.mkdir(exist_ok=True)
        return where


@pytest.fixture(params=["disk", "s3"])
def there(request: pytest.FixtureRequest) -> There:
    return There(None if request.param == "disk" else request.getfixturevalue("s3_url"))


def made(there: There, root: Path, **changes: Any) -> Folder:
    folder = sweeps.make(root, checkpoints=there.url, **{**HOARDING, **changes})
    cache.forget()
    assert sweeps.run(folder) == "finished"
    return folder


def test_what_is_kept_is_what_the_policy_says(there: There, tmp_path: Path) -> None:
    folder = made(there, tmp_path, checkpoint={"keep_last": 2, "keep_best": 1, "cache": 1})
    assert there.files(folder).keys() == there.named(folder)
    assert verify(folder).damages == ()
    if there.url:
        assert not list(folder.path.glob("trials/*/ckpt-*"))


def test_the_disk_budget_holds_there(there: There, tmp_path: Path) -> None:
    policy = {**HOARDING["checkpoint"], "max_disk": "30KB"}
    folder = made(there, tmp_path, checkpoint=policy)
    files = there.files(folder)
    assert 0 < sum(files.values()) <= 30_000
    assert files.keys() == there.named(folder)


def test_a_lost_and_a_damaged_checkpoint_are_found_and_let_go(there: There, tmp_path: Path) -> None:
    folder = made(there, tmp_path)
    newest = {
        trial: f"trials/{trial}/{replica.newest_checkpoint.file}"
        for trial, replica in enumerate(t.leader for t in sweeps.history(folder).trials)
        if replica.newest_checkpoint is not None
    }
    there.damage(folder, newest[0], None)
    there.damage(folder, newest[1], b"SWCK\x01\n" + bytes(200))
    found = {damage.place: damage.problem for damage in verify(folder).damages}
    assert found.keys() == {newest[0], newest[1]}
    assert found[newest[0]] == "there is no such file"
    mended = repair(folder, lambda _said: None)
    assert mended.verification.damages == ()
    assert sum("1 lost checkpoints were dropped" in done for done in mended.repairs) == 2


def test_what_no_row_names_is_found_counted_and_deleted(
    there: There, here: Here, tmp_path: Path
) -> None:
    folder = made(there, here.root)
    stray = there.stray(folder)
    assert [d.place for d in verify(folder).damages] == [stray]
    (row,) = here.json("gc", "demo", "--keep", 2, "--dry-run")
    size = sum(there.files(folder).values())
    assert here.json("gc", "demo", "--keep", 2) == [row]
    left = there.files(folder)
    assert (row["files"], row["bytes"]) == (1, size - sum(left.values()))
    assert left.keys() == there.named(folder)
    assert verify(folder).damages == ()


def test_a_sweep_goes_on_after_gc_as_if_nothing_had_gone(
    there: There, here: Here, tmp_path: Path
) -> None:
    halving: dict[str, Any] = {"checkpoint": HOARDING["checkpoint"], "trackers": []}
    whole = sweeps.make(tmp_path / "whole", **halving)
    folder = sweeps.make(here.root, checkpoints=there.url, **halving)
    assert sweeps.run(whole) == "finished"
    assert sweeps.drive(folder, kill_at=9) == "killed"
    cache.forget()
    assert here.json("gc", "demo", "--keep", 0)[0]["checkpoints"] > 0
    assert sweeps.run(folder) == "finished"
    assert results(folder) == results(whole)


def results(folder: Folder) -> list[Any]:
    past = sweeps.history(folder)
    return [
        (t.number, t.searched, t.status, t.score, sweeps.curve(folder, t.number))
        for t in past.trials
    ]


def test_children_begin_from_checkpoints_of_their_parents(there: There, tmp_path: Path) -> None:
    on_disk = sweeps.make(tmp_path / "disk", **BREEDING)
    folder = sweeps.make(
        tmp_path / "there", checkpoints=there.url, **{**BREEDING, "checkpoint": {"cache": 1}}
    )
    for one in (on_disk, folder):
        assert sweeps.run(one) == "finished"
    assert any(trial.parent is not None for trial in sweeps.history(folder).trials)
    assert results(folder) == results(on_disk)


def test_rm_leaves_nothing(there: There, here: Here) -> None:
    folder = made(there, here.root)
    bytes_there, url = sum(there.files(folder).values()), stores.of_sweep(folder).url
    (row,) = here.json("rm", "demo", "--yes")
    assert row["bytes"] >= bytes_there
    assert not folder.path.exists()
    assert not url or Remote(url).sizes() == {}


def test_a_trial_is_taken_up_in_python(there: There, tmp_path: Path) -> None:
    made(there, tmp_path)
    best = api.load("demo", root=tmp_path).best()
    trainable = best.load()
    assert trainable.iteration == best.checkpoint().iteration
    trainable.stop()


@pytest.mark.proof
def test_the_winner_is_handed_over_and_mlflow_keeps_its_files_there_too(
    s3_url: str, here: Here, tmp_path: Path
) -> None:
    config = {"env": "CartPole-v1", "rollout_fragment_length": 32, "model": {"hidden": [8]}}
    spec = write_spec(
        tmp_path,
        trainable="ppo",
        metric="episode_reward_mean",
        mode="max",
        trials=1,
        config={**config, "sgd_minibatch_size": 32, "num_sgd_iter": 1},
        stop={"training_iteration": 2},
        scheduler="fifo",
        checkpoint={"cache": 1},
        trackers=["mlflow"],
    )
    files, port = Remote(f"{s3_url}/mlflow"), free_port()
    keeps = ("--serve-artifacts", "--artifacts-destination", files.url)
    with serving(f"sqlite:///{tmp_path}/server.db", port, *keeps):
        server = ("--tracking-uri", f"http://127.0.0.1:{port}", "--attach", "wait")
        storage = ("--checkpoints", f"{s3_url}/sweeps")
        code, _, err = here("run", spec, "--pool", "inline", *server, *storage)
        assert code == 0, err
        assert here("verify", "demo")[:2] == (0, "demo is intact (2 checkpoints)\n")
    kept = {Path(name).name for name in files.sizes()}
    assert kept >= {"report.html", "curves.png", "card.md", "MLmodel"}
    assert any(name.endswith(".onnx") for name in kept)
    cache.forget()
    code, _, err = here("export-model", "demo", "--out", tmp_path / "winner")
    assert (code, err) == (0, "")
    assert (tmp_path / "winner" / "policy.onnx").is_file()
    assert not list(Folder(here.root, "demo").path.glob("trials/*/ckpt-*"))

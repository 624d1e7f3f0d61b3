"""Experience that a trainer writes: every row once, whatever is killed when."""

import itertools
import json
import resource
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.trainers import PLAIN
from trainables.algorithms.dqn import DQN
from trainables.algorithms.ppo import PPO
from trainables.errors import ConfigError, StoredDataError
from trainables.offline import config as settings
from trainables.offline.batches import Columns, as_sent
from trainables.offline.config import IOContext, OfflineConfig
from trainables.offline.packed import unpack
from trainables.offline.writer import JsonWriter, OutputWriter
from trainables.rollout.batch import Fragment
from trainables.trainable import TrialContext
from trainables.trainer.trainer import Trainer

COUNTING: dict[str, Any] = {
    **PLAIN,
    "env": "tests.support.environments:Counting",
    "env_config": {"length": 5},
    "output": "logdir",
}
COLUMNS = set(settings.COLUMNS)


def trainer_in(folder: Path, seed: int = 7, name: str = "default", **config: Any) -> PPO:
    return PPO({**COUNTING, **config}, TrialContext(seed, name, name, folder))


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("output-*.json"))


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in files(folder) for line in path.read_text().splitlines()]


def joined(folder: Path, name: str) -> Any:
    return np.concatenate([line[name] for line in lines(folder)])


def text(folder: Path) -> str:
    return "".join(path.read_text() for path in files(folder))


def test_K7_B2_a_line_is_a_batch_of_what_was_sampled(tmp_path: Path) -> None:
    trainer = trainer_in(tmp_path)
    steps = sum(trainer.train()["timesteps_this_iter"] for _ in range(3))
    trainer.stop()
    found = lines(tmp_path)
    assert {line.pop("type") for line in found} == {"SampleBatch"}
    assert all(set(line) == COLUMNS for line in found)
    assert steps == sum(len(line["obs"]) for line in found) == 72
    for line in found:
        obs, t = np.array(line["obs"])[:, 0], np.array(line["t"])
        assert obs.tolist() == t.tolist()
        assert np.array(line["new_obs"])[:, 0].tolist() == (obs + 1).tolist()
        np.testing.assert_allclose(line["action_prob"], np.exp(line["action_logp"]), rtol=1e-6)
    by_episode: dict[int, list[dict[str, Any]]] = {}
    for line in found:
        for i, episode in enumerate(line["eps_id"]):
            by_episode.setdefault(episode, []).append({n: c[i] for n, c in line.items()})
    for rows in by_episode.values():
        assert [row["t"] for row in rows] == list(range(len(rows)))
        for before, row in itertools.pairwise(rows):
            assert row["prev_actions"] == before["actions"]
            assert row["prev_rewards"] == before["rewards"]
        assert (rows[0]["prev_actions"], rows[0]["prev_rewards"]) == (0, 0.0)
        assert not any(row["terminateds"] for row in rows[:-1])


def test_actions_that_are_spread_over_their_bounds_are_written_as_the_environment_has_them(
    tmp_path: Path,
) -> None:
    trainer = trainer_in(tmp_path, env="tests.support.environments:Wide", env_config={})
    samples = trainer.workers.sample()
    trainer.reporter.sampled(samples)
    trainer.stop()
    ((chosen,), (line,)) = samples[0].fragments, lines(tmp_path)
    written, rows = np.array(line["actions"]), chosen.actions.swapaxes(0, 1).reshape(-1, 1)
    np.testing.assert_allclose(written, 100 + 50 * rows, rtol=1e-5)
    before = np.where(np.array(line["t"])[1:, None] == 0, 0, written[:-1])
    np.testing.assert_allclose(line["prev_actions"][1:], before)
    densities = chosen.logp.T.reshape(-1) - np.log(50)  # of numbers that lie 50 times as far apart
    np.testing.assert_allclose(line["action_logp"], densities, rtol=1e-4)


def test_in_lanes_what_was_done_before_is_written_likewise() -> None:
    real, flag = np.zeros((3, 1), np.float32), np.zeros((3, 1), np.bool_)
    numbers = np.array([0.5, -1.0, 0.0], np.float32).reshape(3, 1, 1)
    columns = {
        **dict.fromkeys(("terminated", "truncated", "valid", "autoreset"), flag),
        "observations": real[..., None],
        "rewards": real,
        "t": np.array([[0], [1], [2]]),
        "actions": numbers,
        "prev_actions": np.concatenate([numbers[:1] * 0, numbers[:-1]]),
    }
    spread = np.array([50], np.float32), np.array([100], np.float32)
    sent = as_sent(Fragment.from_columns(columns), spread)
    assert sent.actions.ravel().tolist() == [125.0, 50.0, 100.0]
    assert sent.prev_actions.ravel().tolist() == [0.0, 125.0, 50.0]


@pytest.mark.parametrize("mode", ["plain", "workers", "episodes", "vector"])
def test_what_is_written_is_the_same_in_every_mode_and_costs_the_curve_nothing(
    mode: str, tmp_path: Path
) -> None:
    modes: dict[str, dict[str, Any]] = {
        "plain": {},
        "workers": {"num_workers": 2, "train_batch_size": 48},
        "episodes": {"batch_mode": "complete_episodes"},
        "vector": {"native_vector_env": True, "env": "CartPole-v1", "env_config": {}},
    }
    config, weights = modes[mode], []
    for output in (None, "logdir"):
        trainer = trainer_in(tmp_path, **{**config, "output": output})
        sampled = [trainer.train() for _ in range(2)][-1]["timesteps_total"]
        weights.append(trainer.get_weights()["default_policy"])
        trainer.stop()
    assert all(np.array_equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert len(joined(tmp_path, "obs")) == sampled


@pytest.mark.parametrize("config", [{}, {"num_workers": 2, "train_batch_size": 48}])
def test_a_restored_trial_writes_no_row_twice_and_loses_none(
    config: dict[str, Any], tmp_path: Path
) -> None:
    config = {**config, "output_max_file_size": 3000}
    through = trainer_in(tmp_path / "through", **config)
    for _ in range(6):
        through.train()
    through.stop()
    killed = trainer_in(tmp_path / "killed", **config)
    killed.train()
    saved = killed.save(tmp_path / "checkpoints")
    for _ in range(3):
        killed.train()
    killed.stop()
    again = trainer_in(tmp_path / "killed", **config)
    again.restore(saved)
    again.train()
    assert len(lines(tmp_path / "killed")) == 2 * max(1, config.get("num_workers", 0))
    for _ in range(4):
        again.train()
    again.stop()
    assert len(files(tmp_path / "through")) > 3
    assert text(tmp_path / "killed") == text(tmp_path / "through")
    assert [f.name for f in files(tmp_path / "killed")] == [
        f.name for f in files(tmp_path / "through")
    ]


def test_going_on_from_another_trials_checkpoint_keeps_what_was_written(tmp_path: Path) -> None:
    other = trainer_in(tmp_path / "a", seed=1, name="a")
    other.train()
    saved = other.save(tmp_path / "checkpoints")
    other.stop()
    trainer = trainer_in(tmp_path / "b", name="b")
    trainer.train()
    before = text(tmp_path / "b")
    trainer.stop()
    for _ in range(2):  # the second time after a kill
        trainer = trainer_in(tmp_path / "b", name="b")
        trainer.restore(saved)
        trainer.train()
        trainer.stop()
        first, second = files(tmp_path / "b")
        assert first.read_text() == before
        assert second.name == "output-000000000024-00000.json"
        assert len(second.read_text().splitlines()) == 1


def written(folder: Path) -> dict[str, list[str]]:
    return {path.name[7:19]: path.read_text().splitlines() for path in files(folder)}


def writer_of(folder: Path, origin: dict[str, Any] | None, timesteps: int = 0) -> JsonWriter:
    """A process that goes on from another trial's checkpoint, or begins, and wrote a line."""
    writer = JsonWriter(OfflineConfig(output="logdir"), lambda: folder, "me", False)
    if origin is not None:
        writer.set_state(origin, timesteps)
    writer.write({"obs": np.zeros(1)})
    return writer


def test_what_was_written_stays_whichever_checkpoints_a_trial_goes_on_from(tmp_path: Path) -> None:
    """Also where the next one is of fewer steps, or of as many."""
    donors = [{"owner": name, "series": 0, "file": 0, "bytes": 9} for name in "abc"]
    writer_of(tmp_path, None)
    for donor, timesteps in zip(donors, (5000, 4000, 4000), strict=True):
        for _ in range(2):  # the second one is a retry of the first, which was killed
            latest = writer_of(tmp_path, donor, timesteps)
    assert list(written(tmp_path)) == ["000000000000", *(f"00000000500{i}" for i in range(3))]
    assert [len(lines) for lines in written(tmp_path).values()] == [1, 1, 1, 1]
    saved = latest.get_state()
    again = writer_of(tmp_path, saved)
    assert [len(lines) for lines in written(tmp_path).values()] == [1, 1, 1, 2]
    again.set_state(donors[2], 4000)  # this process knows what it wrote
    again.write({"obs": np.zeros(1)})
    assert [len(lines) for lines in written(tmp_path).values()] == [1, 1, 1, 2, 1]


def test_a_second_restore_in_one_trainer_removes_nothing(tmp_path: Path) -> None:
    other = trainer_in(tmp_path / "a", seed=1, name="a")
    saved = []
    for i in range(2):
        other.train()
        saved.append(other.save(tmp_path / "checkpoints" / str(i)))
    other.stop()
    trainer = trainer_in(tmp_path / "b", name="b")
    for path in reversed(saved):
        trainer.restore(path)
        trainer.train()
    trainer.stop()
    assert [len(lines) for lines in written(tmp_path / "b").values()] == [1, 1]


def test_a_file_that_was_cut_off_by_others_is_said_and_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = trainer_in(tmp_path)
    trainer.train()
    saved = trainer.save(tmp_path / "checkpoints")
    trainer.stop()
    (path,) = files(tmp_path)
    path.write_bytes(path.read_bytes()[:-10])
    again = trainer_in(tmp_path)
    again.restore(saved)
    again.train()
    again.stop()
    assert "some earlier output is missing" in caplog.text
    assert json.loads(files(tmp_path)[1].read_text())["type"] == "SampleBatch"


def test_K7_columns_are_packed_as_asked(tmp_path: Path) -> None:
    for name, packed in (("plain", []), ("packed", ["obs", "new_obs"])):
        trainer = trainer_in(tmp_path / name, output_compress_columns=packed)
        trainer.train()
        trainer.stop()
    plain, packed_line = lines(tmp_path / "plain")[0], lines(tmp_path / "packed")[0]
    for name in ("obs", "new_obs"):
        assert unpack(packed_line[name]).tolist() == plain[name]
        assert unpack(packed_line[name]).dtype == np.float32
    assert packed_line["actions"] == plain["actions"]


def test_an_info_may_have_keys_that_json_has_not(tmp_path: Path) -> None:
    infos = np.empty(2, dtype=object)
    infos[:] = [{(1, 2): {np.int64(3): 0.5}}, {"cells": [{(0, 1): "wall"}]}]
    writer = JsonWriter(OfflineConfig(), lambda: tmp_path, "one", shared=False)
    writer.write({"obs": np.zeros((2, 1)), "infos": infos})
    (line,) = lines(tmp_path)
    assert line["infos"] == [{"(1, 2)": {"3": 0.5}}, {"cells": [{"(0, 1)": "wall"}]}]


def test_rows_that_are_not_to_be_learnt_from_are_not_written(tmp_path: Path) -> None:
    trainer = trainer_in(
        tmp_path,
        env="tests.support.vectors:counting_next_step",
        env_config={},
        native_vector_env=True,
    )
    counted = trainer.train()["timesteps_total"]
    trainer.stop()
    assert len(joined(tmp_path, "obs")) == counted < 24


def test_off_policy_trainers_write_what_their_replay_gets(tmp_path: Path) -> None:
    config = {"env": "CartPole-v1", "output": "logdir", "learning_starts": 1000}
    trainer = DQN(config, TrialContext(seed=1, logdir=tmp_path))
    trainer.train()
    replayed = trainer.replay.get_state()
    trainer.stop()
    assert set(lines(tmp_path)[0]) - {"type"} == COLUMNS - {
        "action_logp",
        "action_prob",
        "vf_preds",
    }
    assert len(replayed["rows"]) == 48  # of 64, as those of three steps wait for what follows
    assert len(joined(tmp_path, "obs")) == 64


def test_two_runs_do_not_write_into_one_folder(tmp_path: Path) -> None:
    output = str(tmp_path / "data")
    trainer = trainer_in(tmp_path, output=output)
    trainer.train()
    saved = trainer.save(tmp_path / "checkpoints")
    trainer.train()
    trainer.stop()
    before = text(tmp_path / "data")
    another = trainer_in(tmp_path, output=output)
    with pytest.raises(
        StoredDataError, match="data: this folder contains the experience of another run; move"
    ):
        another.train()
    another.stop()
    again = trainer_in(tmp_path, output=output)
    again.restore(saved)
    again.train()
    again.stop()
    assert text(tmp_path / "data") == before


def test_in_a_sweep_each_trial_has_its_own_folder(tmp_path: Path) -> None:
    logdir = tmp_path / "sweeps" / "mine" / "trials" / "3"
    context = TrialContext(7, "00003_0", "00003_0", logdir, has_settled_config=True)
    trainer = PPO({**COUNTING, "output": str(tmp_path / "data")}, context)
    trainer.train()
    trainer.stop()
    assert [p.parent for p in files(tmp_path / "data")] == [tmp_path / "data" / "mine" / "3"]


def test_a_disk_that_is_full_ends_it_in_one_line_and_nothing_is_lost(tmp_path: Path) -> None:
    through = trainer_in(tmp_path / "through")
    trainer = trainer_in(tmp_path / "full")
    for one in (through, trainer):
        one.train()
    saved = trainer.save(tmp_path / "checkpoints")
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = files(tmp_path / "full")[0].stat().st_size
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, limits[1]))
        with pytest.raises(StoredDataError) as error:
            trainer.train()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    trainer.stop()
    assert "\n" not in str(error.value)
    assert "output-000000000000-00000.json: cannot be written" in str(error.value)
    again = trainer_in(tmp_path / "full")
    again.restore(saved)
    for one in (through, again):
        one.train()
        one.stop()
    assert text(tmp_path / "full") == text(tmp_path / "through")


class Kept(OutputWriter):
    """Keeps the batches."""

    def __init__(self, context: IOContext) -> None:
        assert context.worker_index == 0
        self.context = context
        self.batches: list[Columns] = []
        ALL.append(self)

    def write(self, columns: Columns) -> None:
        self.batches.append(columns)


ALL: list[Kept] = []


def test_W18_a_writer_of_ones_own(tmp_path: Path) -> None:
    trainer = trainer_in(tmp_path, output=f"{__name__}:Kept")
    trainer.train()
    trainer.stop()
    (kept,) = ALL[-1:]
    assert len(kept.batches) == 1
    assert set(ALL[-1].batches[0]) == COLUMNS
    with pytest.raises(
        ConfigError, match=r"output: .* returned a dict; expected .* derived from .*OutputWriter"
    ):
        trainer_in(tmp_path, output=f"{__name__}:no_writer")


def no_writer(context: IOContext) -> dict[str, Any]:
    return {}


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"observation_filter": "MeanStdFilter"}, "observation_filter: MeanStdFilter"),
        ({"normalize_rewards": True}, "normalize_rewards: true"),
        ({"fake_sampler": True}, "fake_sampler: true"),
        ({"action_mask": "info"}, "action_mask: info"),
        ({"num_workers": 2, "data_parallel": True}, "data_parallel: true"),
        ({"output": ""}, "output: is empty"),
        (
            {"output_compress_columns": ["observations"]},
            "output_compress_columns: ['observations']",
        ),
    ],
)
def test_settings_with_which_nothing_useful_can_be_written_are_refused(
    config: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError) as error:
        PPO.check_config({**COUNTING, **config})
    assert str(error.value).startswith(said)


def test_without_output_workers_are_asked_for_no_more_columns(tmp_path: Path) -> None:
    trainer: Trainer = trainer_in(tmp_path, output=None)
    assert trainer.worker_spec().columns == frozenset()
    assert "output" not in trainer.save_checkpoint("")
    trainer.stop()


def test_what_an_environment_that_calls_did_before_stands_beside_each_row(tmp_path: Path) -> None:
    """Its episodes run side by side, each at its own pace."""
    more = {"num_envs_per_worker": 1, "rollout_fragment_length": 48, "num_sgd_iter": 1}
    trainer = PPO(
        {"env": "tests.support.external:Counting", "output": "logdir", **more},
        TrialContext(seed=3, logdir=tmp_path),
    )
    for _ in range(4):
        trainer.train()
    trainer.stop()
    before: dict[int, dict[str, Any]] = {}
    names = ("eps_id", "t", "actions", "rewards", "prev_actions", "prev_rewards")
    for line in lines(tmp_path):
        for values in zip(*(line[name] for name in names), strict=True):
            row = dict(zip(names, values, strict=True))
            known = before.get(row["eps_id"], {"t": -1, "actions": 0, "rewards": 0.0})
            assert row["t"] == known["t"] + 1
            assert row["prev_actions"] == known["actions"]
            assert row["prev_rewards"] == known["rewards"]
            before[row["eps_id"]] = row
    assert len(before) > 10
    unrolls = [i for line in lines(tmp_path) for i in set(line["unroll_id"])]
    assert len(unrolls) == len(set(unrolls)) > len(before)

"""Parquet files and Minari's data sets: in and out, resumed exactly, read as data alone."""

import json
import pickle  # noqa: TID251 makes the hostile ones
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from gymnasium import spaces

from tests.support.trainers import check_restored_exactly, differences, run
from trainables.algorithms.bc import BC
from trainables.algorithms.dqn import DQN
from trainables.envs.exactness import measuring
from trainables.envs.make import EnvironmentConfig
from trainables.errors import ConfigError, StoredDataError
from trainables.offline.batches import Columns
from trainables.offline.minari_sets import METADATA, MinariReader, episode_stretches
from trainables.offline.reader import FilesReader, Rows, each_once
from trainables.offline.sources import convert, files_reader
from trainables.offline.tables import ParquetReader
from trainables.trainable import TrialContext

CARTPOLE = "CartPole-v1"
WAS_HERE = "hostile-was-here"


class Attack:
    """Makes a file where it is unpickled."""

    def __reduce__(self) -> Any:
        return open, (WAS_HERE, "w")


class Dicts(gymnasium.Env[Any, Any]):
    """Observations in a dict, choices from 1 on."""

    def __init__(self, **_: Any) -> None:
        box = spaces.Box(-1, 1, (2,), np.float32)
        self.observation_space = spaces.Dict({"at": box, "of": spaces.Discrete(3, start=5)})
        self.action_space = spaces.Discrete(3, start=1)


class Boxes(gymnasium.Env[Any, Any]):
    """Observations and actions that are tables of numbers."""

    def __init__(self, **_: Any) -> None:
        self.observation_space = spaces.Box(-9, 9, (2, 3), np.float64)
        self.action_space = spaces.Box(-1, 1, (2, 2), np.float32)


class Pictures(gymnasium.Env[Any, Any]):
    """Observations that are images, channels first."""

    def __init__(self, **_: Any) -> None:
        self.observation_space = spaces.Box(0, 255, (2, 8, 9), np.uint8)
        self.action_space = spaces.Discrete(2)


def rows(env: str = CARTPOLE) -> Rows:
    return Rows(measuring.inspect(EnvironmentConfig(env=env)).spaces)


def played(folder: Path, lengths: tuple[int, ...] = (5, 3, 9, 4), **more: Any) -> Path:
    """Episodes of drawn numbers, in lines that do not end where episodes do; the last goes on."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn, count = np.random.default_rng(1), sum(lengths)
    states = [drawn.normal(size=(length + 1, 4)).astype(np.float32) for length in lengths]
    ends = np.cumsum(lengths) - 1
    columns = {
        "obs": np.concatenate([one[:-1] for one in states]),
        "new_obs": np.concatenate([one[1:] for one in states]),
        "actions": drawn.integers(2, size=count),
        "rewards": drawn.normal(size=count).astype(np.float32),
        "terminateds": np.isin(np.arange(count), ends[:-1]),
        "truncateds": np.zeros(count, bool),
        "t": np.concatenate([np.arange(length) for length in lengths]),
        "eps_id": np.repeat(np.arange(len(lengths)), lengths),
        "action_logp": np.full(count, -0.5, np.float32),
        **more,
    }
    lines = [
        json.dumps(
            {"type": "SampleBatch", **{n: c[i : i + 4].tolist() for n, c in columns.items()}}
        )
        for i in range(0, count, 4)
    ]
    path = folder / "played.json"
    path.write_text("\n".join(lines) + "\n")
    return path


def all_of(reader: FilesReader) -> Columns:
    """All rows, side by side."""
    batches = list(each_once(reader))
    return {n: np.concatenate([one[n] for one in batches]) for n in batches[0] if n != "has_next"}


@pytest.fixture(autouse=True)
def sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where data sets stand; nothing hostile may leave a trace beside them."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "sets"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "sets"


def test_K7_what_is_written_as_parquet_is_read_to_the_bit(tmp_path: Path) -> None:
    given = played(tmp_path / "json")
    to = tmp_path / "tables" / "one.parquet"
    to.parent.mkdir()
    assert convert(str(given), str(to), CARTPOLE) == 21
    found = files_reader("input", str(to.parent), rows())
    assert isinstance(found, ParquetReader)
    expected = all_of(files_reader("input", str(given), rows()))
    read = all_of(found)
    assert differences(dict(read), dict(expected)) == []
    kinds = {name: one.dtype for name, one in read.items()}
    assert kinds == {name: one.dtype for name, one in expected.items()}
    assert [path.name for path in to.parent.iterdir()] == ["one.parquet"]
    with pytest.raises(ConfigError, match=r"target: .* exists already; remove it first"):
        convert(str(given), str(to), CARTPOLE)


def test_K7_a_data_set_of_minari_has_each_row_once_and_is_read_again(sets: Path) -> None:
    import minari

    given = played(sets.parent / "json")
    assert convert(str(given), "minari:ours/played-v0", CARTPOLE) == 21
    dataset = minari.load_dataset("ours/played-v0")
    assert [len(one) for one in dataset.iterate_episodes()] == [5, 3, 9, 4]
    last = dataset[3]
    assert (last.terminations.any(), last.truncations.tolist()) == (False, [False] * 3 + [True])
    assert dataset.observation_space == gymnasium.make(CARTPOLE).observation_space
    expected = all_of(files_reader("input", str(given), rows()))
    for place in ("minari:ours/played-v0", str(sets / "ours" / "played-v0")):
        found = files_reader("input", place, rows())
        assert isinstance(found, MinariReader)
        read = dict(all_of(found))
        assert read["truncateds"].nonzero()[0].tolist() == [20]
        for name in ("obs", "new_obs", "actions", "rewards", "terminateds", "t"):
            assert differences(read[name], expected[name]) == [], name
    assert convert("minari:ours/played-v0", str(sets / "back.json"), CARTPOLE) == 21
    back = all_of(files_reader("input", str(sets / "back.json"), rows()))
    assert differences(back["new_obs"], expected["new_obs"]) == []
    with pytest.raises(ConfigError, match=r"exists already; remove it first"):
        convert(str(given), "minari:ours/played-v0", CARTPOLE)


@pytest.mark.filterwarnings("ignore::UserWarning")  # of what it would like to know
def test_K7_images_lie_in_files_as_the_environment_or_the_policy_lays_them_out(
    sets: Path,
) -> None:
    import minari

    env = f"{__name__}:Pictures"
    first = np.random.default_rng(3).integers(256, size=(22, 2, 8, 9)).astype(np.uint8)
    last = np.moveaxis(first, 1, -1)
    for layout in (first, last):
        given = played(sets.parent / "json", (21,), obs=layout[:-1], new_obs=layout[1:])
        read = all_of(files_reader("input", str(given), rows(env)))
        np.testing.assert_array_equal(read["obs"], last[:-1])
        np.testing.assert_array_equal(read["new_obs"], last[1:])
    assert convert(str(given), "minari:ours/pictures-v0", env) == 21
    dataset = minari.load_dataset("ours/pictures-v0")
    assert dataset.observation_space == Pictures().observation_space
    np.testing.assert_array_equal(dataset[0].observations, first)
    again = all_of(files_reader("input", "minari:ours/pictures-v0", rows(env)))
    np.testing.assert_array_equal(again["obs"], last[:-1])


@pytest.mark.filterwarnings("ignore::UserWarning")  # of what it would like to know
def test_what_minari_itself_recorded_is_read(sets: Path) -> None:
    """Dicts and choices that begin elsewhere than at 0, as the policy sees and counts them."""
    from minari import create_dataset_from_buffers
    from minari.data_collector.episode_buffer import EpisodeBuffer

    env = Dicts()
    episode = EpisodeBuffer(
        observations={
            "at": np.array([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]], np.float32),
            "of": np.array([5, 7, 6]),
        },
        actions=np.array([1, 3]),
        rewards=[1.0, 2.0],
        terminations=[False, True],
        truncations=[False, False],
    )
    create_dataset_from_buffers(
        "ours/dicts-v0",
        [episode],
        action_space=env.action_space,
        observation_space=env.observation_space,
        data_format="arrow",
    )
    (batch,) = each_once(files_reader("input", "minari:ours/dicts-v0", rows(f"{__name__}:Dicts")))
    np.testing.assert_allclose(batch["obs"], [[0.1, 0.2, 1, 0, 0], [0.3, 0.4, 0, 0, 1]], rtol=1e-6)
    np.testing.assert_allclose(batch["new_obs"][1], [0.5, 0.6, 0, 1, 0], rtol=1e-6)
    assert batch["actions"].tolist() == [0, 2]
    assert batch["terminateds"].tolist() == [False, True]
    with pytest.raises(
        StoredDataError, match="data:1: the column obs contains values that are not numbers"
    ):
        files_reader("input", "minari:ours/dicts-v0", rows()).next()


def test_spaces_that_are_tables_come_back_as_they_were(sets: Path) -> None:
    drawn = np.random.default_rng(3)
    states = drawn.normal(size=(7, 6)).astype(np.float32)
    shapes: dict[str, Any] = {
        "obs": states[:-1],
        "new_obs": states[1:],
        "actions": drawn.uniform(-1, 1, (6, 4)),
    }
    given = played(sets.parent / "json", (6,), **shapes)
    env = f"{__name__}:Boxes"
    for to in ("minari:boxes-v0", str(sets.parent / "boxes.parquet")):
        assert convert(str(given), to, env) == 6
        read = all_of(files_reader("input", to, rows(env)))
        np.testing.assert_array_equal(read["obs"], states[:-1])
        np.testing.assert_allclose(read["actions"], shapes["actions"], rtol=1e-6)


@pytest.mark.parametrize("to", ["a.json", "a.parquet", "minari:a-v0"])
def test_lines_of_which_no_row_is_left_make_no_file(to: str, tmp_path: Path) -> None:
    path, one = tmp_path / "rows.json", {"obs": [[0.0] * 4], "actions": [0], "rewards": [1.0]}
    line = {"type": "SampleBatch", **one, "t": [0], "terminateds": [False]}
    path.write_text(f"{json.dumps(line)}\n" * 3)
    with pytest.raises(StoredDataError, match=r"no batch with a row .*; give the column new_obs"):
        convert(str(path), to, CARTPOLE)
    assert not list(tmp_path.glob("a*"))
    assert not (tmp_path / "sets" / "a-v0").exists()
    kept = {**line, "new_obs": one["obs"]}
    path.write_text("".join(f"{json.dumps(one)}\n" for one in (line, kept, line)))
    assert convert(str(path), to, CARTPOLE) == 1
    (read,) = each_once(files_reader("input", to, rows()))
    assert read["rewards"].tolist() == [1.0]


def test_rows_that_do_not_lead_to_each_other_are_episodes_of_their_own(tmp_path: Path) -> None:
    given = played(tmp_path, (4, 4), t=np.array([0, 1, 2, 3, 2, 3, 7, 8]))

    def lengths() -> list[int]:
        batches = each_once(files_reader("input", str(given), rows()))
        return [len(one["rewards"]) for one in episode_stretches(tmp_path, batches)]

    assert lengths() == [4, 2, 2]
    line = json.loads(given.read_text().splitlines()[0])
    line["new_obs"][1][0] += 1.0
    given.write_text(json.dumps(line))
    assert lengths() == [2, 2]


@pytest.mark.parametrize("kind", ["parquet", "minari"])
def test_a_restored_trial_reads_on_exactly_where_it_was(kind: str, tmp_path: Path) -> None:
    given = played(tmp_path / "json", (30, 41, 7, 22))
    place = {"parquet": str(tmp_path / "tables"), "minari": "minari:a-v0"}[kind]
    if kind == "parquet":
        (tmp_path / "tables").mkdir()
        for name, table in (("a", given), ("b", played(tmp_path / "more", (9, 30)))):
            convert(str(table), str(tmp_path / "tables" / f"{name}.parquet"), CARTPOLE)
    else:
        convert(str(given), place, CARTPOLE)
    small = {"train_batch_size": 16, "model": {"hidden": [8]}, "shuffle_buffer_size": 3}

    def new() -> BC:
        config = {"env": CARTPOLE, "input": place, **small}
        return BC(config, TrialContext(seed=3, logdir=tmp_path))

    through = new()
    run(through, 3)
    check_restored_exactly(through, new(), tmp_path / "checkpoints", 6)
    saved = through.save(tmp_path / "checkpoints")
    through.stop()
    if kind == "parquet":
        (tmp_path / "tables" / "a.parquet").unlink()
    else:
        shutil.rmtree(tmp_path / "sets")
        convert(str(played(tmp_path / "less", (3,))), place, CARTPOLE)
    with pytest.raises(
        StoredDataError, match=r"but the file is missing; put|shorter than the \d+ ep"
    ):
        new().restore(saved)


def test_all_kinds_stand_in_one_mixture(tmp_path: Path) -> None:
    given = played(tmp_path / "json", (30, 41))
    convert(str(given), "minari:a-v0", CARTPOLE)
    convert(str(given), str(tmp_path / "a.parquet"), CARTPOLE)
    shares = {"sampler": 0.25, str(given): 0.25, "minari:a-v0": 0.25}
    config = {"input": {**shares, str(tmp_path / "a.parquet"): 0.25}, "learning_starts": 10**4}
    trainer = DQN({"env": CARTPOLE, "train_batch_size": 64, **config}, TrialContext(seed=3))
    run(trainer, 12)
    state = trainer.workers.get_state()[0]["readers"]
    trainer.stop()
    assert len(state) == 3
    assert all(one["offset"] or one["line"] for one in state.values())


# ---- what is wrong -------------------------------------------------------------------------------


def table_of(folder: Path, **columns: Any) -> Path:
    """A Parquet file of a few rows, with these columns in place of usual ones."""
    usual = {
        "obs": pa.array([[0.0] * 4] * 3, pa.list_(pa.float32(), 4)),
        "actions": pa.array([0, 1, 0]),
        "rewards": pa.array([1.0, 1.0, 1.0]),
        "terminateds": pa.array([False, False, True]),
    }
    kept = {name: one for name, one in {**usual, **columns}.items() if one is not None}
    path = folder / "a.parquet"
    pq.write_table(pa.table(kept), path)
    return path


PICKLED = pickle.dumps(Attack())


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"obs": pa.array([PICKLED] * 3)}, "column obs holds binary, which are not numbers"),
        ({"obs": pa.array(["gAN9cQAu"] * 3)}, "column obs holds string, which are not numbers"),
        ({"rewards": pa.array([{"a": 1}] * 3)}, "column rewards holds struct<"),
        ({"rewards": pa.array([1.0, None, 1.0])}, "column rewards has 1 missing values"),
        (
            {"obs": pa.array([[0.0] * 4, [0.0], [1.0]])},
            "the rows of column obs have different shapes",
        ),
        ({"obs": pa.array([[0.0] * 3] * 3)}, r"column obs has rows of shape \(3,\)"),
        (
            {"obs": pa.array([[0.0, 0.0, 0.0, float("nan")]] * 3)},
            "column obs contains NaN or infinity",
        ),
        (
            {"actions": pa.array([0, 1, 2])},
            "column actions contains 2, but the environment's actions are 0 to 1",
        ),
        ({"actions": None}, "the column actions is missing; the columns are obs"),
        ({"reward": pa.array([1.0] * 3)}, "unknown column 'reward'"),
        ({"infos": pa.array([PICKLED] * 3), "actions": None}, "the column actions is missing"),
    ],
    ids=lambda one: one if isinstance(one, str) else "-".join(one),
)
def test_a_table_that_is_no_batch_is_said_with_file_and_row_group(
    columns: dict[str, Any], words: str, tmp_path: Path
) -> None:
    path = table_of(tmp_path, **columns)
    with pytest.raises(StoredDataError, match=words) as error:
        ParquetReader([path], rows()).next()
    assert str(error.value).startswith(f"{path}:1: ")
    assert "\n" not in str(error.value)
    assert not Path(WAS_HERE).exists()


def test_a_type_of_somebodys_own_that_holds_a_pickle_is_refused(tmp_path: Path) -> None:
    field = pa.field(
        "obs",
        pa.list_(pa.float32(), 4),
        metadata={
            b"ARROW:extension:name": b"arrow.py_extension_type",
            b"ARROW:extension:metadata": PICKLED,
        },
    )
    plain = pq.read_table(table_of(tmp_path))
    fields = [field if one.name == "obs" else one for one in plain.schema]
    pq.write_table(
        pa.Table.from_arrays(plain.columns, schema=pa.schema(fields)), tmp_path / "a.parquet"
    )
    try:
        ParquetReader([tmp_path / "a.parquet"], rows()).next()
    except StoredDataError as error:
        assert "\n" not in str(error)
    assert not Path(WAS_HERE).exists()


def test_a_torn_or_damaged_table_is_one_line(tmp_path: Path) -> None:
    whole = tmp_path / "whole.parquet"
    convert(str(played(tmp_path, (90, 90))), str(whole), CARTPOLE)
    data = whole.read_bytes()
    path = tmp_path / "a.parquet"
    for torn in (b"", data[:50], data[:-1], data[:-4], b"PAR1" * 9, data[: len(data) // 2]):
        path.write_bytes(torn)
        with pytest.raises(
            StoredDataError, match=r"a\.parquet: this is not a complete Parquet file"
        ) as error:
            ParquetReader([path], rows()).next()
        assert "\n" not in str(error.value)
    expected, stream = all_of(ParquetReader([whole], rows())), np.random.default_rng(1)
    for place in stream.integers(4, len(data), 150):
        path.write_bytes(data[:place] + bytes([data[place] ^ 8]) + data[place + 1 :])
        try:
            found = all_of(ParquetReader([path], rows()))
        except StoredDataError as error:
            assert "\n" not in str(error)
            continue
        if place < len(data) // 2:  # pages have sums; what describes them at the end has none
            assert differences(dict(found), dict(expected)) == []


def test_files_of_two_kinds_in_one_folder_are_refused(tmp_path: Path) -> None:
    played(tmp_path / "data")
    table_of(tmp_path / "data")
    with pytest.raises(ConfigError, match="one source must have one kind"):
        files_reader("input", str(tmp_path / "data"), rows())


def described(change: Callable[[dict[str, Any]], None], sets: Path) -> Path:
    """A data set whose description was changed."""
    convert(str(played(sets.parent / "json")), "minari:a-v0", CARTPOLE)
    file = sets / "a-v0" / "data" / METADATA
    said = json.loads(file.read_text())
    change(said)
    file.write_text(json.dumps(said))
    return file


def make_attack(said: dict[str, Any]) -> None:
    """An environment that leaves a trace where it is made, in the place of a space."""
    del said["observation_space"]
    spec = gymnasium.make(CARTPOLE).spec
    assert spec is not None
    said["env_spec"] = spec.to_json().replace(
        "gymnasium.envs.classic_control.cartpole:CartPoleEnv", f"{__name__}:LeavesATrace"
    )


class LeavesATrace(gymnasium.Env[Any, Any]):
    """Makes a file where it is made."""

    def __init__(self, **_: Any) -> None:
        Path(WAS_HERE).touch()
        self.observation_space = spaces.Box(-1, 1, (4,))
        self.action_space = spaces.Discrete(2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (make_attack, "the key observation_space is missing; write the data set with this key"),
        (lambda said: said.pop("action_space"), "the key action_space is missing; write"),
        (lambda said: said.update(data_format="pickle"), "its data_format is unknown"),
        (lambda said: said.update(total_episodes="many"), "total_episodes is missing"),
        (lambda said: said.update(total_episodes=0), "total_episodes is missing or less than 1"),
        (lambda said: said.update(observation_space="{}"), "not a Minari data set"),
        (lambda said: said.update(observation_space='{"type": "os.system"}'), "not a Minari data"),
    ],
)
def test_a_description_that_is_none_is_one_line_and_runs_nothing(
    change: Callable[[dict[str, Any]], None], words: str, sets: Path
) -> None:
    file = described(change, sets)
    with pytest.raises(StoredDataError, match=words) as error:
        files_reader("input", "minari:a-v0", rows()).next()
    assert str(file.parent) in str(error.value)
    assert "\n" not in str(error.value)
    assert not Path(WAS_HERE).exists()


def test_an_episode_that_is_torn_or_gone_is_said_with_its_number(sets: Path) -> None:
    convert(str(played(sets.parent / "json")), "minari:a-v0", CARTPOLE)
    (part,) = (sets / "a-v0" / "data" / "1").glob("*.parquet")
    whole = part.read_bytes()

    def refused(words: str) -> None:
        reader = files_reader("input", "minari:a-v0", rows())
        assert len(reader.next()["obs"]) == 5
        with pytest.raises(StoredDataError, match=rf"data:2: .*{words}") as error:
            reader.next()
        assert "\n" not in str(error.value)

    part.write_bytes(whole[: len(whole) // 2])
    refused("this episode cannot be read")
    pq.write_table(pq.read_table(pa.BufferReader(whole)).slice(0, 2), part)
    refused("this episode has 1 steps, but its metadata says 3")
    shutil.rmtree(part.parent)
    refused("this episode cannot be read")


@pytest.mark.parametrize("name", ["../../etc", "/etc", "a/../b", ".", "a//b", "", "a b"])
def test_the_name_of_a_data_set_is_no_path(name: str) -> None:
    for place, use in (
        ("input", lambda: files_reader("input", f"minari:{name}", rows())),
        ("target", lambda: convert(str(played(Path("json"))), f"minari:{name}", CARTPOLE)),
    ):
        with pytest.raises(ConfigError, match=f"^{place}: .*expected minari: followed by a name"):
            use()


def test_a_set_that_is_not_here_is_said_with_how_to_get_it() -> None:
    with pytest.raises(
        ConfigError,
        match=r"input: .*no data set in .*; download a published one with `minari download D4",
    ):
        DQN({"env": CARTPOLE, "input": "minari:D4RL/pen/human-v2"})


@pytest.mark.parametrize(("package", "place"), [("pyarrow", "a.parquet"), ("minari", "minari:a")])
def test_without_the_packages_the_extra_is_named(
    package: str, place: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    table_of(tmp_path)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=r"input: .*pip install 'sweep-rl\[offline\]'"):
        files_reader("input", place, rows())


def test_what_is_written_half_is_not_there(tmp_path: Path) -> None:
    given = played(tmp_path / "json")
    given.write_text(given.read_text() + '{"type": "SampleBatch", "obs": 1}\n')
    for to in ("a.parquet", "a.json", "minari:a-v0", "folder"):
        with pytest.raises(StoredDataError, match=r"played\.json:7: "):
            convert(str(given), to, CARTPOLE)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"json", "sets"}
    assert list((tmp_path / "sets").iterdir()) == []


def hdf5_set(name: str) -> Path:
    """A data set in HDF5, as published ones are; its file."""
    from minari.data_collector.episode_buffer import EpisodeBuffer
    from minari.dataset.minari_storage import MinariStorage
    from minari.storage.datasets_root_dir import get_dataset_path

    env, folder = gymnasium.make(CARTPOLE), Path(get_dataset_path(name)) / "data"
    folder.mkdir(parents=True)
    storage = MinariStorage.new(folder, env.observation_space, env.action_space)
    storage.update_metadata({"dataset_id": name, "minari_version": "0.5.4"})
    states = np.arange(16, dtype=np.float32).reshape(4, 4)
    flags: dict[str, Any] = {"terminations": [False, False, True], "truncations": [False] * 3}
    rest = {"observations": states, "actions": np.array([0, 1, 0]), "rewards": [1.0, 2.0, 3.0]}
    storage.update_episodes([EpisodeBuffer(**rest, **flags)])
    return folder / "main_data.hdf5"


def test_a_data_set_in_hdf5_is_read_and_leads_nowhere_else() -> None:
    h5py = pytest.importorskip("h5py", reason="no part of the extra")
    path = hdf5_set("published-v0")
    batch = files_reader("input", "minari:published-v0", rows()).next()
    assert batch["obs"].tolist() == np.arange(12).reshape(3, 4).tolist()
    assert batch["new_obs"][-1].tolist() == [12, 13, 14, 15]
    with h5py.File(path.parent / "other.hdf5", "w") as other:
        other["secret"] = np.ones((4, 4), np.float32)
    secret = path.parent / "secret"
    secret.write_bytes(bytes(64))

    def refused(change: Callable[[Any], None], words: str) -> None:
        whole = path.read_bytes()
        with h5py.File(path, "a") as file:
            del file["episode_0/observations"]
            change(file["episode_0"])
        with pytest.raises(StoredDataError, match=words):
            files_reader("input", "minari:published-v0", rows()).next()
        path.write_bytes(whole)

    def linked(group: Any) -> None:
        group["observations"] = h5py.ExternalLink("other.hdf5", "/secret")

    def outside(group: Any) -> None:
        group.create_dataset("observations", (4, 4), "f4", external=[(str(secret), 0, 64)])

    refused(linked, r"'observations' is a link, or is nested")
    refused(outside, r"the data of 'observations' are in other files")
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(StoredDataError, match="no HDF5 file"):
        files_reader("input", "minari:published-v0", rows()).next()


def test_without_h5py_a_set_in_hdf5_says_what_it_takes(
    sets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    described(lambda said: said.update(data_format="hdf5"), sets)
    with pytest.raises(
        StoredDataError,
        match=r"this is an HDF5 file, for which h5py is not installed; install it: pip",
    ):
        files_reader("input", "minari:a-v0", rows()).next()

"""Experience of several agents in files: written by policy, read by policy, resumed exactly."""

import base64
import json
import pickle  # noqa: TID251 makes the hostile ones
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import lz4.frame
import numpy as np
import pytest
from gymnasium import spaces

from tests.support.trainers import check_restored_exactly, differences, run
from trainables.algorithms.bc import BC
from trainables.algorithms.dqn import DQN
from trainables.algorithms.ppo import PPO
from trainables.envs.make import EnvSpaces
from trainables.errors import ConfigError, StoredDataError
from trainables.offline.batches import Batch
from trainables.offline.config import IOContext
from trainables.offline.packed import unpack
from trainables.offline.reader import InputReader, JsonReader, Rows, RowsByPolicy
from trainables.offline.sources import files_reader
from trainables.offline.workers import fragment_of
from trainables.offline.writer import OutputWriter
from trainables.rollout.callbacks import Callbacks
from trainables.trainable import TrialContext
from trainables.trainer.trainer import Trainer

RLLIB = Path(__file__).parent / "rllib"
TWO = {
    "policies": {"ones": None, "others": None},
    "policy_mapping_fn": {"left": "ones", "right": "others", "brief": "others"},
}
BASE: dict[str, Any] = {
    "env": "tests.support.agents:Reaching",
    "env_level": "A",
    "multiagent": TWO,
    "num_envs_per_worker": 2,
    "rollout_fragment_length": 11,
}
CHOOSING: dict[str, Any] = {**BASE, "env": "tests.support.agents:Targets"}


def made(folder: Path, algorithm: type[Trainer] = PPO, **config: Any) -> Trainer:
    own = {"sgd_minibatch_size": 16} if algorithm is PPO else {}
    return algorithm({**BASE, **own, **config}, TrialContext(seed=3, logdir=folder))


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("output-*.json"))


def text(folder: Path) -> str:
    return "".join(path.read_text() for path in files(folder))


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text(folder).splitlines()]


def of_vectors() -> RowsByPolicy:
    """What `Reaching` shows, with three choices: what RLlib's files here are of."""
    box, choice = spaces.Box(-1.0, 1.0, (2,), np.float32), spaces.Discrete(3)
    of = Rows(EnvSpaces(box, choice, box, None), is_multi_agent=True)
    return RowsByPolicy(lambda: {"ones": of, "others": of})


# ---- what is written -----------------------------------------------------------------------------


class Keeps(Callbacks):
    """Keeps what was sampled, as arrays."""

    samples: ClassVar[list[dict[str, dict[str, Any]]]] = []

    def on_sample_end(self, *, worker: Any, samples: Any) -> None:
        found = {
            pid: {name: batch[name].tolist() for name in ("observations", "rewards", "logp", "t")}
            for pid, batch in samples.policy_batches.items()
        }
        self.samples.append(found)


@pytest.mark.parametrize("mode", ["truncate_episodes", "complete_episodes"])
def test_K7_a_line_is_what_a_worker_sampled_by_policy(mode: str, tmp_path: Path) -> None:
    Keeps.samples.clear()
    trainer = made(tmp_path, output="logdir", callbacks=Keeps, batch_mode=mode)
    (*_, result) = run(trainer, 3)
    trainer.stop()
    found = lines(tmp_path)
    assert [set(line) for line in found] == [{"type", "count", "policy_batches"}] * 3
    assert sum(line["count"] for line in found) == result["timesteps_total"]
    rows = [columns for line in found for columns in line["policy_batches"].values()]
    assert sum(len(columns["t"]) for columns in rows) == result["agent_timesteps_total"]
    for line, sample in zip(found, Keeps.samples, strict=True):
        assert line["policy_batches"].keys() == sample.keys() == {"ones", "others"}
        for pid, columns in line["policy_batches"].items():
            kept, names = sample[pid], ("observations", "rewards", "logp", "t")
            written = zip(
                *(columns[n] for n in ("obs", "rewards", "action_logp", "t")), strict=True
            )
            assert sorted(written) == sorted(zip(*(kept[name] for name in names), strict=True))
    for columns in rows:
        follows = np.diff(columns["unroll_id"]) == 0
        assert follows.any()
        assert (np.diff(columns["t"])[follows] == 1).all()
        for name in ("eps_id", "agent_index"):
            assert (np.diff(columns[name])[follows] == 0).all()
        for name in ("actions", "rewards"):
            now, before = np.array(columns[name]), np.array(columns[f"prev_{name}"])
            assert (before[1:] == now[:-1])[follows].all()
            assert not before[np.array(columns["t"]) == 0].any()
        assert (np.array(columns["new_obs"][:-1]) == columns["obs"][1:])[follows].all()


@pytest.mark.parametrize("more", [{}, {"num_workers": 2, "train_batch_size": 44}])
def test_a_restored_trial_writes_no_row_twice_and_loses_none(
    more: dict[str, Any], tmp_path: Path
) -> None:
    config = {**more, "output": "logdir", "output_max_file_size": 12_000}
    through = made(tmp_path / "through", **config)
    run(through, 4)
    through.stop()
    killed = made(tmp_path / "killed", **config)
    run(killed, 1)
    saved = killed.save(tmp_path / "checkpoints")
    run(killed, 2)
    killed.stop()
    again = made(tmp_path / "killed", **config)
    again.restore(saved)
    run(again, 3)
    again.stop()
    names = [[f.name for f in files(tmp_path / one)] for one in ("through", "killed")]
    assert names[0] == names[1]
    assert len(names[0]) > 1
    assert text(tmp_path / "killed") == text(tmp_path / "through")


def test_output_costs_the_curve_nothing_and_packs_as_asked(tmp_path: Path) -> None:
    packing = {"output": "logdir", "output_compress_columns": ["obs", "new_obs"]}
    configs: list[dict[str, Any]] = [{}, {"output": "logdir"}, packing]
    weights, written = [], []
    for i, config in enumerate(configs):
        trainer = made(tmp_path / str(i), **config)
        run(trainer, 2)
        weights.append(trainer.get_weights())
        trainer.stop()
        written.append(lines(tmp_path / str(i)))
    assert differences(weights[0], weights[1]) == differences(weights[0], weights[2]) == []
    for line, packed in zip(written[1], written[2], strict=True):
        for pid, columns in packed["policy_batches"].items():
            for name in ("obs", "new_obs"):
                assert unpack(columns[name]).tolist() == line["policy_batches"][pid][name]
            assert columns["rewards"] == line["policy_batches"][pid]["rewards"]


# ---- what is read --------------------------------------------------------------------------------


def test_W18_what_rllib_wrote_of_several_agents_is_read_packed_or_not() -> None:
    """``right`` sees every other step only, ``brief`` leaves after four."""
    names = ("several", "several_packed")
    plain, packed = (JsonReader([RLLIB / f"{name}.json"], of_vectors()) for name in names)
    first = plain.next()
    assert differences(first, packed.next()) == []
    assert first["count"] == 12
    assert {pid: len(one["obs"]) for pid, one in first["policy_batches"].items()} == {
        "ones": 12,
        "others": 14,
    }
    others = first["policy_batches"]["others"]
    assert others["agent_index"].tolist() == [1] * 4 + [2] * 4 + [1] * 2 + [2] * 4
    assert others["t"].tolist() == [1, 3, 5, 7, 0, 1, 2, 3, 1, 3, 0, 1, 2, 3]
    edges = [3, 7, 9, 13]
    assert np.flatnonzero(~others["has_next"]).tolist() == edges
    has_next = others["has_next"][:-1]
    assert (others["new_obs"][:-1] == others["obs"][1:])[has_next].all()
    cut = fragment_of([others], True, "a").truncated[:, 0]
    assert np.flatnonzero(cut | others["terminateds"]).tolist() == edges
    assert fragment_of([others], True, "a").terminated[:, 0].tolist() == (
        others["terminateds"].tolist()
    )


def test_rows_of_agents_side_by_side_are_not_taken_for_one_episode() -> None:
    """The second agent's first row here has the step after the first agent's last one."""
    columns = {
        "obs": [[0.0, 0.0]] * 4,
        "actions": [0] * 4,
        "rewards": [0.0] * 4,
        "terminateds": [False] * 4,
        "eps_id": [7] * 4,
        "t": [0, 1, 2, 3],
        "new_obs": [[0.0, 0.0]] * 4,
    }
    for name in ("agent_index", "unroll_id"):
        given = {"policy_batches": {"ones": {**columns, name: [0, 0, 1, 1]}}, "count": 2}
        found = of_vectors().checked(given)["policy_batches"]["ones"]
        assert found["has_next"].tolist() == [True, False, True, False]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that a trainer of ours wrote."""
    folder = tmp_path_factory.mktemp("data")
    trainer = made(folder, **{**CHOOSING, "output": "logdir"}, output_max_file_size=20_000)
    run(trainer, 8)
    trainer.stop()
    assert len(files(folder)) > 1
    return folder / "output"


@pytest.mark.parametrize("kind", ["files", "shuffled", "mixed", "bc"])
def test_a_restored_trial_reads_on_exactly_where_it_was(
    kind: str, data: Path, tmp_path: Path
) -> None:
    modes: dict[str, dict[str, Any]] = {
        "files": {"postprocess_inputs": True, "n_step": 3},
        "shuffled": {"shuffle_buffer_size": 3},
        "mixed": {"input": {"sampler": 0.5, f"{data}/*.json": 0.5}},
    }
    of_replay = {"learning_starts": 30, "updates_per_step": 2, "replay_batch_size": 16}
    algorithm: type[Trainer] = BC if kind == "bc" else DQN
    config = {**CHOOSING, "input": str(data), "train_batch_size": 40}
    config |= {} if kind == "bc" else of_replay
    config |= modes.get(kind, {})
    through, again = (made(tmp_path, algorithm, **config) for _ in range(2))
    run(through, 2)
    results = check_restored_exactly(through, again, tmp_path / "checkpoints", 3)
    assert all(set(one["learner"]) == {"ones", "others"} for one in results)
    if kind != "mixed":
        assert "episode_reward_mean" not in results[-1]
        assert through.exactness.startswith("A")
    through.stop()


def as_line(**policies: Mapping[str, Any]) -> dict[str, Any]:
    steps = max(len(columns["obs"]) for columns in policies.values())
    return {"type": "MultiAgentBatch", "count": steps, "policy_batches": policies}


def columns_of(action: int, rows: int = 8, **more: Any) -> dict[str, Any]:
    """An episode in which always the same was done, whatever was shown."""
    shown = np.eye(3)[np.arange(rows + 1) % 3].tolist()
    return {
        "obs": shown[:-1],
        "new_obs": shown[1:],
        "actions": [action] * rows,
        "rewards": [float(action)] * rows,
        "terminateds": [False] * (rows - 1) + [True],
        "t": list(range(rows)),
        "eps_id": [0] * rows,
        "agent_index": [0] * rows,
        "action_prob": [0.5] * rows,
        **more,
    }


def written(folder: Path, *given: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "a.json"
    encoded = [one if isinstance(one, bytes) else f"{json.dumps(one)}\n".encode() for one in given]
    path.write_bytes(b"".join(encoded))
    return path


def test_a_policy_of_which_no_row_is_left_has_no_batch(tmp_path: Path) -> None:
    """Without ``new_obs`` the one row of an agent that went on leads nowhere."""
    given = columns_of(1, rows=1, terminateds=[False])
    del given["new_obs"]
    line = as_line(ones=given, others=columns_of(2))
    path = written(tmp_path / "data", as_line(ones=given), line)
    box, choice = spaces.Box(0.0, 1.0, (3,), np.float32), spaces.Discrete(3)
    of = Rows(EnvSpaces(box, choice, spaces.Discrete(3), None), is_multi_agent=True)
    reader = JsonReader([path], RowsByPolicy(lambda: {"ones": of, "others": of}))
    assert list(reader.next()["policy_batches"]) == ["others"]
    path.write_text(json.dumps(as_line(ones=given)))
    with pytest.raises(StoredDataError, match="no batch with a row in any of 1 file"):
        JsonReader([path], RowsByPolicy(lambda: {"ones": of})).next()


def test_each_policy_learns_from_its_own_batches(tmp_path: Path) -> None:
    path = written(tmp_path / "data", as_line(ones=columns_of(1), others=columns_of(2)))
    trainer = made(tmp_path, BC, **CHOOSING, input=str(path), train_batch_size=400, lr=0.01)
    run(trainer, 4)
    chosen = trainer.compute_actions({"left": 0, "right": 0, "brief": 2})
    trainer.stop()
    assert chosen == {"left": 1, "right": 2, "brief": 2}


@pytest.mark.parametrize(("by", "steps"), [("env_steps", 48), ("agent_steps", 24)])
def test_steps_that_are_read_are_counted_by_environments_or_by_agents(
    by: str, steps: int, tmp_path: Path
) -> None:
    """A line has 8 steps of the environment and 16 of agents; 44 are asked for."""
    path = written(tmp_path / "data", as_line(ones=columns_of(1), others=columns_of(2)))
    config = {**CHOOSING, "multiagent": {**TWO, "count_steps_by": by}, "train_batch_size": 44}
    trainer = made(tmp_path, BC, **config, input=str(path))
    (result,) = run(trainer, 1)
    trainer.stop()
    assert (result["timesteps_total"], result["agent_timesteps_total"]) == (steps, 2 * steps)


def test_W18_estimates_are_of_each_policy_that_learns(tmp_path: Path) -> None:
    """Of two agents of one policy in one episode each is an episode, also one in two lines."""
    first, second = columns_of(0, 4), columns_of(2, 4, agent_index=[1] * 4)
    halves = [
        as_line(
            ones=columns_of(1),
            others={name: [*one[half], *second[name][half]] for name, one in first.items()},
        )
        for half in (slice(0, 2), slice(2, 4))
    ]
    path = written(tmp_path / "data", *halves)
    config = {**CHOOSING, "input": str(path), "gamma": 1.0}
    config["multiagent"] = {**TWO, "policies_to_train": ["others"]}
    trainer = made(tmp_path, BC, **config, input_evaluation=["is", "wis"])
    (result,) = run(trainer, 1)
    member = trainer.members["others"]
    shown = np.eye(3, dtype=np.float32)[np.arange(4) % 3]
    ratios = [
        np.exp(member.log_likelihoods(shown, np.full(4, action)).sum() - 4 * np.log(0.5))
        for action in (0, 2)
    ]
    trainer.stop()
    found = result["off_policy"]
    assert set(found) == {"others"}
    assert found["others"]["episodes"] == 2
    assert found["others"]["is"] == pytest.approx(ratios[1] * 8.0 / 2, rel=1e-4)
    assert found["others"]["wis"] == pytest.approx(ratios[1] * 8.0 / sum(ratios), rel=1e-4)


class Given(InputReader):
    """Gives one batch of several agents again and again."""

    def __init__(self, context: IOContext) -> None:
        self.given = 0

    def next(self) -> Batch:
        self.given += 1
        return {"policy_batches": {"ones": columns_of(1)}, "count": 8}

    def get_state(self) -> dict[str, Any]:
        return {"given": self.given}


class Taken(OutputWriter):
    """Keeps the batches."""

    batches: ClassVar[list[Batch]] = []

    def __init__(self, context: IOContext) -> None:
        self.batches.clear()

    def write(self, batch: Batch) -> None:
        self.batches.append(batch)


def test_W18_a_reader_and_a_writer_of_ones_own(tmp_path: Path) -> None:
    trainer = made(tmp_path, BC, **CHOOSING, input=f"{__name__}:Given", train_batch_size=40)
    (result,) = run(trainer, 1)
    assert set(result["learner"]) == {"ones"}
    assert trainer.workers.get_state()[0]["readers"][f"{__name__}:Given"]["given"] >= 5
    trainer.stop()
    writing = made(tmp_path, output=f"{__name__}:Taken")
    run(writing, 2)
    writing.stop()
    assert [one["count"] for one in Taken.batches] == [22, 22]
    assert set(Taken.batches[0]["policy_batches"]) == {"ones", "others"}


# ---- what is wrong -------------------------------------------------------------------------------


class _Hostile:
    def __reduce__(self) -> Any:
        return (print, ("this ran",))


HOSTILE = base64.b64encode(lz4.frame.compress(pickle.dumps(_Hostile()))).decode()
WHOLE = as_line(ones=columns_of(1), others=columns_of(2))


def with_ones(**columns: Any) -> dict[str, Any]:
    return as_line(others=columns_of(2)) | {
        "policy_batches": {"ones": {**columns_of(1), **columns}, "others": columns_of(2)}
    }


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (json.dumps(WHOLE).encode()[:90] + b"\n", "not a JSON object"),
        ([1, 2], "expected an object with columns, but found a list"),
        ({"type": "SampleBatch", **columns_of(1)}, "the type is 'SampleBatch'; with several"),
        ({"type": "MultiAgentBatch", "count": 3}, "policy_batches, which maps each policy to its"),
        (as_line(strange=columns_of(1)), "no policy 'strange'; the policies are ones, others"),
        ({**WHOLE, "policy_batches": {"ones": [1]}}, "policy ones has a list instead of columns"),
        (with_ones(rewardz=[0.0] * 8), "policy ones: unknown column 'rewardz'"),
        (
            with_ones(actions=[3] * 8),
            "policy ones: the column actions contains 3, but the environment's actions are 0",
        ),
        (with_ones(obs=[[0.0]] * 8), r"policy ones: the column obs has rows of shape \(1,\)"),
        (with_ones(t=[0]), "policy ones: the columns must all have the same number of rows"),
        (with_ones(obs=HOSTILE), "policy ones: the column obs holds a pickle that names"),
        (with_ones(agent_index=["left"] * 8), "policy ones: the column agent_index contains"),
        ({**WHOLE, "count": None}, "count is None; expected the number of env"),
        ({**WHOLE, "count": True}, "count is True; expected"),
        ({**WHOLE, "count": 10**12}, "count is 1000000000000; expected"),
    ],
)
def test_what_is_no_batch_is_said_with_file_line_and_policy(
    line: Any, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "data", WHOLE, line, WHOLE)
    box, choice = spaces.Box(0.0, 1.0, (3,), np.float32), spaces.Discrete(3)
    of = Rows(EnvSpaces(box, choice, spaces.Discrete(3), None), is_multi_agent=True)
    reader = JsonReader([path], RowsByPolicy(lambda: {"ones": of, "others": of}))
    assert reader.next()["count"] == 8
    with pytest.raises(StoredDataError, match=words) as error:
        reader.next()
    assert str(error.value).startswith(f"{path}:2: ")
    assert "\n" not in str(error.value)
    assert "this ran" not in capsys.readouterr().out


def test_a_torn_last_line_costs_that_line_and_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(tmp_path / "data", WHOLE, json.dumps(WHOLE).encode()[:70])
    config = {**CHOOSING, "input": str(path), "train_batch_size": 40, "input_evaluation": []}
    trainer = made(tmp_path, BC, **config)
    (result,) = run(trainer, 1)
    trainer.stop()
    assert result["timesteps_total"] == 48
    torn = [r.getMessage() for r in caplog.records if "torn" in r.getMessage()]
    assert torn == [f"{path}:2: the last line is incomplete; it is left out"]


@pytest.mark.parametrize(
    ("algorithm", "config", "said"),
    [
        (PPO, {"input": str(RLLIB)}, "input: .* cannot be used with PPO"),
        (BC, {"input": "sampler"}, "input: bc learns only from files"),
        (PPO, {"output": "logdir", "multiagent": {**TWO, "policies": {
            "ones": {"observation_filter": "MeanStdFilter"}, "others": None
        }}}, "observation_filter: MeanStdFilter cannot be used with output"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_one_line(
    algorithm: type[Trainer], config: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said) as refusal:
        algorithm.check_config({**BASE, **config})
    assert "\n" not in str(refusal.value)


def test_other_kinds_of_files_have_batches_of_one_agent(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"input: with several policies, only JSON files"):
        files_reader("input", str(tmp_path), of_vectors())


def test_a_policy_of_which_batches_are_read_stays(tmp_path: Path) -> None:
    path = written(tmp_path / "data", WHOLE)
    trainer: Any = made(tmp_path, BC, **CHOOSING, input=str(path))
    with pytest.raises(
        ConfigError, match=r"policy_id: 'ones' cannot be removed while the trainer reads files"
    ):
        trainer.remove_policy("ones", policy_mapping_fn={"left": "others"})
    trainer.stop()


def test_a_restore_may_remove_a_policy_of_which_batches_were_read(tmp_path: Path) -> None:
    path = written(tmp_path / "data", WHOLE, as_line(third=columns_of(2)))
    one_line = {"num_envs_per_worker": 1, "rollout_fragment_length": 1, "train_batch_size": 1}
    config = {**CHOOSING, "input_evaluation": [], **one_line, "input": str(path)}
    trainer: Any = made(tmp_path, BC, **config)
    saved = trainer.get_state()
    before = run(trainer, 1)
    mapping = {"left": "ones", "right": "others", "brief": "third"}
    trainer.add_policy("third", policy_mapping_fn=mapping)
    run(trainer, 1)
    trainer.set_state(saved)
    assert run(trainer, 1) == before
    trainer.stop()

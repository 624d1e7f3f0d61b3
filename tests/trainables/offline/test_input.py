"""Learning from files: ours and RLlib's, resumed exactly; what is not a batch is one line."""

import base64
import json
import pickle  # noqa: TID251 makes the hostile ones
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import lz4.frame
import numpy as np
import pytest
from gymnasium import spaces

from tests.support.trainers import check_restored_exactly, differences, run
from trainables.algorithms.bc import BC
from trainables.algorithms.dqn import DQN
from trainables.algorithms.ppo import PPO
from trainables.algorithms.sac import SAC
from trainables.algorithms.td3 import TD3
from trainables.envs.exactness import measuring
from trainables.envs.make import EnvironmentConfig
from trainables.errors import ConfigError, StoredDataError
from trainables.learners.replay import NStep
from trainables.offline.batches import Columns
from trainables.offline.config import IOContext
from trainables.offline.following import pieces
from trainables.offline.packed import NotAnArray, pack, unpack
from trainables.offline.reader import (
    InputReader,
    JsonReader,
    Rows,
    Shuffled,
    each_once,
    find_files,
)
from trainables.offline.workers import READ, fragment_of
from trainables.trainable import TrialContext

RLLIB = Path(__file__).parent / "rllib"
LINE: dict[str, Any] = {
    "type": "SampleBatch",
    "obs": [[float(i), 0.0, 0.0, 0.0] for i in range(4)],
    "actions": [0, 1, 0, 1],
    "rewards": [1.0, 1.0, 1.0, 1.0],
    "t": [0, 1, 2, 0],
    "terminateds": [False, False, True, False],
}
BASE: dict[str, Any] = {
    "env": "CartPole-v1",
    "train_batch_size": 64,
    "learning_starts": 64,
    "updates_per_step": 2,
    "replay_batch_size": 16,
}


def rows() -> Rows:
    return Rows(measuring.inspect(EnvironmentConfig(env="CartPole-v1")).spaces)


def written(folder: Path, *lines: dict[str, Any] | bytes, name: str = "a.json") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    encoded = [x if isinstance(x, bytes) else f"{json.dumps(x)}\n".encode() for x in lines]
    path.write_bytes(b"".join(encoded))
    return path


def read(path: Path) -> Columns:
    return JsonReader([path], rows()).next()


def dqn(folder: Path, given: Any, **config: Any) -> DQN:
    return DQN({**BASE, "input": given, **config}, TrialContext(seed=3, logdir=folder))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that a trainer of ours wrote."""
    folder = tmp_path_factory.mktemp("data")
    config = {"env": "CartPole-v1", "output": "logdir", "num_envs_per_worker": 2}
    more = {"rollout_fragment_length": 16, "output_max_file_size": 20_000}
    trainer = PPO({**config, **more}, TrialContext(seed=1, logdir=folder))
    for _ in range(12):
        trainer.train()
    trainer.stop()
    return folder / "output"


def test_W18_what_rllib_wrote_is_read_packed_or_not() -> None:
    found = [read(RLLIB / f"{name}.json") for name in ("plain", "packed", "agents")]
    assert [len(one["obs"]) for one in found] == [24, 24, 24]
    for other in found[1:]:
        alike = found[0].keys() - {"unroll_id"}
        assert all(differences(found[0][name], other[name]) == [] for name in alike)
    first = found[0]
    assert first["terminateds"].tolist() == [False] * 23 + [True]
    np.testing.assert_array_equal(first["new_obs"][:-1], first["obs"][1:])
    np.testing.assert_allclose(first["action_logp"], np.log(0.5), rtol=1e-6)


def test_files_written_by_sweep_are_read_bit_for_bit(data: Path) -> None:
    (path, *_) = sorted(data.iterdir())
    line = json.loads(path.read_text().splitlines()[0])
    found = read(path)
    assert found["obs"].dtype == np.float32
    assert found["obs"].tolist() == line["obs"]
    assert found["action_logp"].tolist() == line["action_logp"]


def test_missing_columns_of_a_line_are_derived_from_the_others(tmp_path: Path) -> None:
    found = read(written(tmp_path, LINE))
    assert found["t"].tolist() == [0, 1, 2]  # the last row's next observation is unknown
    assert fragment_of([found], True, "a").eps_id[:, 0].tolist() == [0, 0, 0]
    assert found["new_obs"][:, 0].tolist() == [1.0, 2.0, 3.0]
    assert found["has_next"].tolist() == [True, True, False]
    old = {**LINE, "dones": LINE["terminateds"]}
    del old["terminateds"]
    assert differences(dict(read(written(tmp_path, old))), dict(found)) == []


def unfinished(**columns: Any) -> dict[str, Any]:
    """Without ``new_obs`` an episode that was cut off, and another one that ended."""
    given = {
        "obs": [[float(i), 0.0, 0.0, 0.0] for i in (0, 1, 2, 10, 11)],
        "actions": [0] * 5,
        "rewards": [1.0, 1.0, 1.0, 100.0, 100.0],
        "terminateds": [False] * 4 + [True],
        "truncateds": [False, False, True, False, False],
        "eps_id": [0, 0, 0, 1, 1],
    }
    return {"type": "SampleBatch", **given, **columns}


def test_a_row_whose_next_one_is_left_out_leads_to_no_other_episode(tmp_path: Path) -> None:
    batch = read(written(tmp_path, unfinished()))
    assert batch["obs"][:, 0].tolist() == [0, 1, 10, 11]
    assert batch["has_next"].tolist() == [True, False, True, False]
    assert [one["rewards"].tolist() for one in pieces(batch)] == [[1, 1], [100, 100]]
    found = fragment_of([batch], True, "a")
    learnt = {name: getattr(found, name) for name in (*READ, "valid")}
    rewards = NStep(2, 1.0)(0, learnt)["rewards"]
    assert sorted(rewards.tolist()) == [1, 2, 100, 200]


def test_a_line_that_ends_amid_an_episode_ends_with_its_last_row(tmp_path: Path) -> None:
    flags = {"terminateds": [False] * 5, "truncateds": [False] * 4 + [True]}
    batch = read(written(tmp_path, unfinished(**flags, eps_id=[0] * 5)))
    assert batch["has_next"].tolist() == [True, True, True, False]
    assert [len(one["obs"]) for one in pieces(batch)] == [4]


#: Of its one row nobody knows what it led to.
ROWLESS: dict[str, Any] = {
    "type": "SampleBatch",
    "obs": [[9.0, 0.0, 0.0, 0.0]],
    "actions": [0],
    "rewards": [1.0],
    "terminateds": [False],
    "truncateds": [True],
    "t": [0],
}


def test_lines_of_which_no_row_is_left_are_passed_over(tmp_path: Path) -> None:
    path = written(tmp_path, ROWLESS, LINE, ROWLESS)
    reader = JsonReader([path], rows())
    assert [len(reader.next()["obs"]) for _ in range(3)] == [3, 3, 3]
    assert len(list(each_once(JsonReader([path], rows())))) == 1


def test_files_of_which_no_row_is_left_say_what_to_do(tmp_path: Path) -> None:
    path = written(tmp_path, ROWLESS, ROWLESS)
    words = (
        r"a\.json: there is no batch with a row in any of 1 file\(s\): .*; give the column new_obs"
    )
    trainer = dqn(tmp_path, str(path))
    with pytest.raises(StoredDataError, match=words):
        trainer.train()
    trainer.stop()


def test_pieces_of_episodes_end_where_the_next_row_does_not_follow(tmp_path: Path) -> None:
    following = [*LINE["obs"][1:], LINE["obs"][0]]
    jump = {**LINE, "eps_id": [0, 0, 1, 1], "t": [5, 6, 6, 9], "new_obs": following}
    batch = read(written(tmp_path, jump))
    assert fragment_of([batch], True, "a").truncated[:, 0].tolist() == [False, True, False, True]
    assert fragment_of([batch], False, "a").truncated[:, 0].tolist() == [True, True, False, True]
    twice = fragment_of([batch, batch], True, "a").truncated[:, 0].tolist()
    assert twice == [False, True, False, True] * 2


def test_K7_files_are_found_by_folder_glob_and_list(data: Path) -> None:
    all_ = sorted(data.iterdir())
    assert len(all_) > 2
    assert find_files("input", str(data)) == all_
    assert find_files("input", f"{data}/*00001.json") == all_[1:2]
    assert find_files("input", [str(all_[2]), str(all_[0])]) == [all_[2], all_[0]]
    with pytest.raises(ConfigError, match=r"input: .*none.*expected a file, a folder with"):
        find_files("input", str(data / "none-*.json"))


@pytest.mark.parametrize("name", ["run[1]", "a*b", "what?"])
def test_a_folder_or_file_whose_name_looks_like_a_pattern_is_itself(
    name: str, tmp_path: Path
) -> None:
    for folder in (name, "run1", "aab", "whats"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{folder}.json").write_text("")
    inside = tmp_path / name / f"{name}.json"
    assert find_files("input", str(tmp_path / name)) == [inside]
    assert find_files("input", str(inside)) == [inside]


def test_after_the_last_file_the_first_comes_again(tmp_path: Path) -> None:
    for i, name in enumerate("ab"):
        batch = {**LINE, "rewards": [float(i)] * 4}
        written(tmp_path, batch, batch, name=f"{name}.json")
    reader = JsonReader(find_files("input", str(tmp_path)), rows())
    assert [int(reader.next()["rewards"][0]) for _ in range(7)] == [0, 0, 1, 1, 0, 0, 1]


def test_K7_a_window_shuffles_and_gives_each_batch_once(tmp_path: Path) -> None:
    batches = [{**LINE, "rewards": [float(i)] * 4} for i in range(20)]
    path = written(tmp_path, *batches)
    shuffled = Shuffled(JsonReader([path], rows()), 5, np.random.default_rng(1))
    seen = [int(shuffled.next()["rewards"][0]) for _ in range(15)]
    assert seen != sorted(seen)
    window = [int(one["rewards"][0]) for one in shuffled.get_state()["window"]]
    assert sorted([*seen, *window]) == list(range(20))


def test_K7_each_batch_of_a_window_may_be_the_next(tmp_path: Path) -> None:
    path = written(tmp_path, *({**LINE, "rewards": [float(i)] * 4} for i in range(9)))
    streams = (np.random.default_rng(seed) for seed in range(60))
    firsts = (Shuffled(JsonReader([path], rows()), 5, stream).next() for stream in streams)
    assert {int(first["rewards"][0]) for first in firsts} == set(range(5))


def test_lines_are_counted_in_each_file_anew(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(f"{json.dumps(LINE)}\n" * 3)
    (tmp_path / "b.json").write_text(f"{json.dumps(LINE)}\n[]\n")
    reader = JsonReader(find_files("input", str(tmp_path)), rows())
    with pytest.raises(StoredDataError, match=r"b\.json:2: "):
        for _ in range(5):
            reader.next()


@pytest.mark.parametrize("kind", ["files", "shuffled", "mixed", "n_step", "sac", "td3"])
def test_a_restored_trial_reads_on_exactly_where_it_was(
    kind: str, data: Path, tmp_path: Path
) -> None:
    modes: dict[str, dict[str, Any]] = {
        "files": {},
        "shuffled": {"shuffle_buffer_size": 6},
        "mixed": {"input": {"sampler": 0.5, f"{data}/*.json": 0.5}, "num_workers": 2},
        "n_step": {"postprocess_inputs": True, "n_step": 3},
    }
    config = {**BASE, "input": str(data), **modes.get(kind, {})}
    trainable: Any = DQN
    if kind in ("sac", "td3"):
        trainable, config["env"] = {"sac": SAC, "td3": TD3}[kind], "Pendulum-v1"
        config["input"] = {"sampler": 0.5, str(_pendulum(tmp_path)): 0.5}

    through, again = (trainable(config, TrialContext(seed=3, logdir=tmp_path)) for _ in range(2))
    run(through, 3)
    check_restored_exactly(through, again, tmp_path / "checkpoints", 5)
    through.stop()


@pytest.mark.proof
@pytest.mark.parametrize(
    ("cls", "reached", "seeds"),
    [(DQN, 120, (1, 2, 3)), pytest.param(SAC, -700, (1,), marks=pytest.mark.proof)],
)
def test_half_of_what_is_learnt_from_is_read(
    cls: Any, reached: float, seeds: tuple[int, ...], tmp_path: Path
) -> None:
    """An untrained policy wrote it: it has 22 on CartPole, -1200 on Pendulum."""
    env = {DQN: "CartPole-v1"}.get(cls, "Pendulum-v1")
    writes = {"output": "logdir", "train_batch_size": 3200, "lr": 1e-12}
    writer = PPO(
        {"env": env, "num_envs_per_worker": 1, "rollout_fragment_length": 32, **writes},
        TrialContext(seed=1, logdir=tmp_path),
    )
    writer.train()
    writer.stop()
    shares = {"sampler": 0.5, str(tmp_path / "output"): 0.5}
    config = {
        "env": env,
        "input": shares,
        "lr": 1e-3,
        "model": {"hidden": [64, 64]},
        "num_envs_per_worker": 1,
        "rollout_fragment_length": 32,
        "updates_per_step": 32,
        "replay_batch_size": 128,
        "timesteps_per_iteration": 1600,
        "evaluation_num_episodes": 20,
    }
    found = []
    for seed in seeds:
        trainer = cls(config, TrialContext(seed=seed))
        run(trainer, 5)
        found.append(trainer.evaluate()["episode_reward_mean"])
        trainer.stop()
    assert np.mean(found) >= reached


def _pendulum(folder: Path) -> Path:
    given = np.random.default_rng(0)
    line = {
        "type": "SampleBatch",
        "obs": given.normal(size=(40, 3)).tolist(),
        "new_obs": given.normal(size=(40, 3)).tolist(),
        "actions": given.uniform(-2, 2, size=(40, 1)).tolist(),
        "rewards": given.normal(size=40).tolist(),
        "terminateds": [False] * 40,
    }
    return written(folder / "pendulum", line)


def test_K7_a_mixture_has_the_shares_that_were_asked_for(data: Path, tmp_path: Path) -> None:
    trainer = dqn(tmp_path, {"sampler": 0.3, str(data): 0.7}, learning_starts=10**4)
    count = 100
    read_ = sum(trainer.workers.sample()[0].was_read for _ in range(count))
    trainer.stop()
    assert 55 <= read_ <= 85


def test_probabilities_may_be_rounded(tmp_path: Path) -> None:
    each = [str(written(tmp_path, LINE, name=f"{name}.json")) for name in "abc"]
    trainer = dqn(tmp_path, dict.fromkeys(each, 0.3333333), train_batch_size=1)
    assert sum(len(trainer.workers.sample()) for _ in range(10)) == 10
    trainer.stop()


def test_what_is_read_is_not_written_again(data: Path, tmp_path: Path) -> None:
    trainer = dqn(tmp_path, {"sampler": 0.5, str(data): 0.5}, output="logdir")
    results = run(trainer, 10)
    trainer.stop()
    steps = [
        len(json.loads(line)["obs"])
        for path in (tmp_path / "output").iterdir()
        for line in path.read_text().splitlines()
    ]
    assert steps == [64] * len(steps)
    assert 0 < sum(steps) < results[-1]["timesteps_total"]


class Still(gymnasium.Env[Any, Any]):
    """Has spaces, and cannot begin an episode."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)
        self.action_space = spaces.Discrete(2)


def test_no_environment_is_stepped_where_all_is_read(data: Path, tmp_path: Path) -> None:
    trainer = dqn(tmp_path, str(data), env=f"{__name__}:Still")
    (result,) = run(trainer, 1)
    assert result["timesteps_total"] >= 64
    assert "episode_reward_mean" not in result
    assert trainer.exactness.startswith("A")
    assert trainer.workers.local_worker() is None
    trainer.stop()


def test_n_step_returns_of_what_is_read(tmp_path: Path) -> None:
    following = [*LINE["obs"][1:], LINE["obs"][0]]
    batch = {**LINE, "new_obs": following, "eps_id": [0] * 4, "t": [0, 1, 2, 3]}
    batch["terminateds"] = [False] * 4
    path = written(tmp_path / "data", batch)
    for whole, expected in ((False, [1.0] * 4), (True, [2.9701, 2.9701, 1.99, 1.0])):
        trainer = dqn(
            tmp_path, str(path), postprocess_inputs=whole, train_batch_size=8, learning_starts=500
        )
        trainer.train()
        rewards = trainer.replay._rows["rewards"][:4]
        trainer.stop()
        np.testing.assert_allclose(rewards, expected, rtol=1e-5)


def test_a_number_of_steps_that_rows_of_files_are_not_joined_over_is_refused(
    tmp_path: Path,
) -> None:
    path = str(written(tmp_path / "data", LINE))
    with pytest.raises(ConfigError, match="n_step: has no effect without postprocess_inputs: true"):
        dqn(tmp_path, path, n_step=5)
    for allowed in ({"n_step": 1}, {"n_step": 5, "postprocess_inputs": True}):
        dqn(tmp_path, path, **allowed).stop()
    dqn(tmp_path, {"sampler": 0.5, path: 0.5}, n_step=5).stop()


class Own(InputReader):
    """Gives one batch again and again, and counts."""

    def __init__(self, context: IOContext) -> None:
        self.given = 0

    def next(self) -> Columns:
        self.given += 1
        whole = {name: np.array(column) for name, column in LINE.items() if name != "type"}
        return {**whole, "new_obs": whole["obs"]}

    def get_state(self) -> dict[str, Any]:
        return {"given": self.given}

    def set_state(self, state: Any) -> None:
        self.given = state["given"]


def looks_on(info: dict[str, Any]) -> None:
    """Look at nothing."""


def no_reader(context: IOContext) -> dict[str, Any]:
    return {}


class Wrong(Own):
    def next(self) -> Columns:
        return {"obs": np.zeros((2, 3)), "actions": np.zeros(2)}


def test_W18_a_reader_of_ones_own_is_checked_and_has_its_state(tmp_path: Path) -> None:
    trainer = dqn(tmp_path, f"{__name__}:Own")
    trainer.train()
    assert trainer.workers.get_state()[0]["readers"][f"{__name__}:Own"] == {"given": 16}
    trainer.stop()
    wrong = dqn(tmp_path, f"{__name__}:Wrong")
    with pytest.raises(StoredDataError, match=r":Wrong: the column obs has rows of shape \(3,\)"):
        wrong.train()
    wrong.stop()
    with pytest.raises(
        ConfigError, match=r"input: .* returned a dict; expected .* derived from .*InputReader"
    ):
        dqn(tmp_path, f"{__name__}:no_reader")


class Rowless(Own):
    def next(self) -> Columns:
        return {name: np.array(one) for name, one in ROWLESS.items() if name != "type"}


def test_a_reader_of_ones_own_that_gives_no_row_is_not_waited_for(tmp_path: Path) -> None:
    trainer = dqn(tmp_path, f"{__name__}:Rowless")
    with pytest.raises(
        StoredDataError, match=r":Rowless: 1000 consecutive batches have no row: .*new_obs"
    ):
        trainer.train()
    trainer.stop()


# ---- what is wrong -------------------------------------------------------------------------------


def test_a_torn_last_line_costs_that_line_and_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(tmp_path, LINE, json.dumps(LINE).encode()[:70])
    reader = JsonReader([path], rows())
    for _ in range(3):
        assert len(reader.next()["obs"]) == 3
    warned = [r.getMessage() for r in caplog.records if "torn" in r.getMessage()]
    assert warned == [f"{path}:2: the last line is incomplete; it is left out"]


def test_a_last_line_without_a_newline_is_a_line(tmp_path: Path) -> None:
    reader = JsonReader([written(tmp_path, json.dumps(LINE).encode())], rows())
    assert len(reader.next()["obs"]) == 3


def changed(**columns: Any) -> dict[str, Any]:
    return {name: column for name, column in {**LINE, **columns}.items() if column is not None}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (json.dumps(LINE).encode()[:70] + b"\n", "not a JSON object"),
        (b"\xff\xfe\n", "not a JSON object"),
        (b"[" * 100_000 + b"\n", "not a JSON object"),
        (b"[1, 2]\n", "expected an object with columns, but found a list"),
        ({"a": 1}, "the type is 'None'; expected SampleBatch"),
        (changed(type="Other"), "the type is 'Other'"),
        (
            {"type": "MultiAgentBatch", "policy_batches": {"a": {}}},
            "experience of several policies",
        ),
        (changed(rewardz=[0.0]), "unknown column 'rewardz'"),
        (changed(obs=None), "the column obs is missing; the columns are actions"),
        (changed(obs=[[0.0] * 3] * 4), r"column obs has rows of shape \(3,\); expected \(4,\)"),
        (changed(obs=[[0.0] * 4, [0.0]]), "the rows of column obs have different shapes"),
        (changed(obs=[["a"] * 4] * 4), "column obs contains values that are not numbers"),
        (changed(obs=[[1e400] * 4] * 4), "column obs contains NaN or infinity"),
        (changed(rewards=[1.0]), "the columns must all have the same number of rows"),
        (
            changed(actions=[0, 1, 2, 0]),
            "column actions contains 2, but the environment's actions are 0 to 1",
        ),
        (changed(actions=[0.5, 0, 0, 0]), "column actions contains fractions"),
        (changed(actions={"a": 1}), "column actions contains values that are not numbers"),
        (changed(action_prob=[1, 0, 1, 1]), r"column action_prob holds 0.0 in row 1, .*; leave "),
        (changed(action_prob=[1, 1, 1, -0.5]), "column action_prob holds -0.5 in row 3"),
        (changed(action_prob=[1e400] * 4), "column action_prob holds inf in row 0"),
        (changed(action_logp=[0, 0, -1e400, 0]), "column action_logp holds -inf in row 2"),
        (changed(action_logp=[0, np.nan, 0, 0]), "column action_logp holds nan in row 1"),
        (changed(obs="AAAA"), "column obs holds data that is cut off"),
        (changed(rewards=None), "the column rewards is missing, and the policy learns from it"),
    ],
)
def test_what_is_no_batch_is_said_with_file_and_line(line: Any, words: str, tmp_path: Path) -> None:
    path = written(tmp_path / "data", LINE, line, LINE)
    trainer = dqn(tmp_path, str(path))
    with pytest.raises(StoredDataError, match=words) as error:
        trainer.train()
    trainer.stop()
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)
    assert f"{path}:2: " in str(error.value) or "the column rewards" in words


def test_a_likelihood_too_small_for_its_number_is_read_by_its_logarithm(tmp_path: Path) -> None:
    """Of many real numbers the likelihood may be 0 as a number, and is what its logarithm says."""
    line = changed(action_prob=[0.0] * 4, action_logp=[-200.0] * 4)
    assert read(written(tmp_path, line))["action_logp"].tolist() == [-200.0] * 3


def test_files_without_a_batch_are_said(tmp_path: Path) -> None:
    path = written(tmp_path, b"\n\n")
    with pytest.raises(StoredDataError, match=r"a\.json: there is no batch in any of 1 file"):
        read(path)


def test_a_file_that_changed_while_a_trial_rested_is_said(data: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(data, tmp_path / "data")
    trainer = dqn(tmp_path, str(copied))
    trainer.train()
    saved = trainer.save(tmp_path / "checkpoints")
    trainer.stop()
    first, *_ = sorted(copied.iterdir())

    def refused(words: str) -> None:
        again = dqn(tmp_path, str(copied))
        with pytest.raises(StoredDataError, match=words):
            again.restore(saved)
        again.stop()

    first.write_bytes(first.read_bytes()[:100])
    refused("00000.json: the file is shorter than the")
    first.unlink()
    refused("00000.json: the checkpoint continues in this file, but the file is missing; put")


class Attack:
    """Runs a command where it is unpickled."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self.parts = function, args

    def __reduce__(self) -> Any:
        return self.parts


def packed(value: Any, protocol: int = 4) -> str:
    pickled = pickle.dumps(value, protocol)
    return base64.b64encode(lz4.frame.compress(pickled)).decode()


HOSTILE: dict[str, str] = {
    **{f"eval, protocol {p}": packed(Attack(eval, "1/0"), p) for p in range(6)},
    "open": packed(Attack(open, "/tmp/offline-was-here", "w")),  # noqa: S108
    "object array": packed(np.array([{}], dtype=object)),
    "text array": packed(np.array(["a"])),
    "record array": packed(np.zeros(2, dtype=[("a", "f4")])),
    "dict": packed({"a": 1}),
    "no array": packed([1, 2]),
    "dates": packed(np.array(["2020-01-01"], dtype="M8[D]")),
    "bomb": base64.b64encode(lz4.frame.compress(b"\0" * (300 * 2**20))).decode(),
    "cut off": pack(np.zeros(100))[:40],
    "not base64": "§§",
    "nothing": "",
    "no pickle": base64.b64encode(lz4.frame.compress(b"hello")).decode(),
    "many opcodes": packed([[]] * 5000),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_packed_columns_are_refused_and_run_nothing(name: str, tmp_path: Path) -> None:
    with pytest.raises(NotAnArray):
        unpack(HOSTILE[name])
    assert not Path("/tmp/offline-was-here").exists()  # noqa: S108
    path = written(tmp_path, LINE, changed(obs=HOSTILE[name]))
    reader = JsonReader([path], rows())
    reader.next()
    with pytest.raises(StoredDataError, match=r"a\.json:2: the column obs holds ") as error:
        reader.next()
    assert "\n" not in str(error.value)


def test_no_damage_to_a_packed_column_does_more_than_to_be_refused() -> None:
    """Each byte of a pickled array is changed in several ways: it is an array, or refused."""
    for protocol in (2, 4, 5):
        whole = pickle.dumps(np.arange(6, dtype=np.float32).reshape(2, 3), protocol)
        for i in range(len(whole)):
            for bit in (1, 4, 128):
                damaged = whole[:i] + bytes([whole[i] ^ bit]) + whole[i + 1 :]
                text = base64.b64encode(lz4.frame.compress(damaged)).decode()
                try:
                    assert unpack(text).dtype.kind in "biuf"
                except NotAnArray as error:
                    assert len(str(error)) < 500


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.array([True, False]),
        np.zeros((0, 3)),
        np.arange(4, dtype=">i2"),
        np.arange(12, dtype=np.uint8).reshape(3, 2, 2)[:, ::2],
    ],
    ids=str,
)
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_arrays_are_unpacked_as_they_were(array: Any, protocol: int) -> None:
    for text in (packed(array, protocol), pack(array)):
        found = unpack(text)
        assert found.shape == array.shape
        assert found.tolist() == array.tolist()
        assert found.dtype == array.dtype.newbyteorder("=")


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"normalize_rewards": True}, "normalize_rewards: true"),
        ({"num_workers": 2}, "num_workers: 2 cannot be used with input: "),
        ({"input": {"sampler": 0.5, "a": 0.2}}, "input: the probabilities add up to 0.7"),
        ({"input": {"sampler": 1.5, "a": -0.5}}, "input: {'sampler': 1.5"),
        ({"input": []}, "input: []"),
        ({"input": {}}, "input: {}"),
        ({"output": "logdir"}, "output: logdir cannot be used with input: "),
        (
            {"callbacks": {"on_postprocess_traj": f"{__name__}:looks_on"}},
            "callbacks.on_postprocess_traj: is never called where input",
        ),
    ],
)
def test_settings_with_which_nothing_can_be_read_are_refused(
    config: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError) as error:
        DQN.check_config({**BASE, "input": str(RLLIB), **config})
    assert str(error.value).startswith(said)


@pytest.mark.parametrize(
    ("cls", "config", "said"),
    [
        (
            SAC,
            {"postprocess_inputs": True},
            "postprocess_inputs: true cannot be used with SAC, bec",
        ),
        (
            BC,
            {"postprocess_inputs": True},
            "postprocess_inputs: true cannot be used with BC, becau",
        ),
        (
            DQN,
            {"input_evaluation": ["dr"]},
            "input_evaluation: ['dr'] cannot be used with DQN, bec",
        ),
        (TD3, {"env": "Pendulum-v1", "input_evaluation": ["wis", "simulation"]}, "input_evaluatio"),
    ],
)
def test_what_nothing_would_be_made_of_is_refused(
    cls: Any, config: dict[str, Any], said: str
) -> None:
    given = {"env": "CartPole-v1", "input": str(RLLIB), **config}
    with pytest.raises(ConfigError) as error:
        cls.check_config(given)
    assert str(error.value).startswith(said)
    cls.check_config({**given, "postprocess_inputs": False, "input_evaluation": ["simulation"]})


def test_what_learns_from_its_own_policy_alone_reads_nothing() -> None:
    with pytest.raises(ConfigError, match=r"input: .* cannot be used with PPO, because it learns"):
        PPO.check_config({"env": "CartPole-v1", "input": str(RLLIB)})


def test_a_checkpoint_of_another_input_is_refused(data: Path, tmp_path: Path) -> None:
    trainer = dqn(tmp_path, str(data))
    trainer.train()
    state = trainer.save_checkpoint("")
    trainer.stop()
    other = dqn(tmp_path, "sampler")
    with pytest.raises(ConfigError, match=r"input: sampler differs from the checkpoint's .*output"):
        other.load_checkpoint(state)
    other.stop()

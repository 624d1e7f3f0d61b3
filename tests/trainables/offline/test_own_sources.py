"""Readers and writers of one's own: classes and functions, by path or as they are."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from tests.support.trainers import differences, final_state, run
from trainables.algorithms.bc import BC
from trainables.algorithms.dqn import DQN
from trainables.algorithms.ppo import PPO
from trainables.errors import ConfigError
from trainables.offline.batches import Batch, Columns
from trainables.offline.config import IOContext
from trainables.offline.reader import InputReader
from trainables.offline.writer import OutputWriter
from trainables.trainable import TrialContext

SMALL: dict[str, Any] = {
    "env": "CartPole-v1",
    "train_batch_size": 8,
    "rollout_fragment_length": 8,
    "num_envs_per_worker": 1,
    "learning_starts": 8,
    "updates_per_step": 1,
    "replay_batch_size": 8,
    "model": {"hidden": [8]},
}


class Counts(InputReader):
    """Gives rows that are numbered from 1, each batch of 4."""

    def __init__(self, context: IOContext) -> None:
        self.context = context
        self.given = 0
        CONTEXTS.append(context)

    def next(self) -> Columns:
        self.given += 1
        rows = np.full((4, 4), float(self.given), dtype=np.float32)
        columns: Columns = {"obs": rows, "new_obs": rows, "actions": np.zeros(4, dtype=np.int64)}
        return {**columns, "rewards": np.ones(4), "terminateds": np.zeros(4, dtype=bool)}

    def get_state(self) -> dict[str, Any]:
        return {"given": self.given}

    def set_state(self, state: Mapping[str, Any]) -> None:
        self.given = state["given"]


class Forgets(Counts):
    """Has no state of its own."""

    def get_state(self) -> dict[str, Any]:
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Begin anew."""


CONTEXTS: list[IOContext] = []


def counting(context: IOContext) -> InputReader:
    return Counts(context)


def closure() -> Callable[[IOContext], InputReader]:
    def made(context: IOContext) -> InputReader:
        return Counts(context)

    return made


def dqn(folder: Path, given: Any, **config: Any) -> Any:
    return DQN({**SMALL, "input": given, **config}, TrialContext(seed=3, logdir=folder))


SOURCES: dict[str, Callable[[], Any]] = {
    "class": lambda: Counts,
    "function": lambda: counting,
    "path": lambda: f"{__name__}:counting",
    "closure": closure,
    "mixture": lambda: {Counts: 0.5, "sampler": 0.5},
}


@pytest.mark.parametrize("kind", SOURCES)
def test_K7_input_is_a_class_or_function_that_is_resumed_exactly(kind: str, tmp_path: Path) -> None:
    through = dqn(tmp_path, SOURCES[kind]())
    run(through, 2)
    saved = through.save(tmp_path / "checkpoints")
    run(through, 3)
    again = dqn(tmp_path, SOURCES[kind]())
    again.restore(saved)
    run(again, 3)
    assert differences(final_state(through), final_state(again)) == []
    for one in (through, again):
        one.stop()


def test_K7_a_reader_given_as_a_class_is_the_one_given_by_its_path(tmp_path: Path) -> None:
    first = dqn(tmp_path, Counts)
    run(first, 2)
    saved = first.save(tmp_path / "checkpoints")
    first.stop()
    again = dqn(tmp_path, f"{__name__}:Counts")
    again.restore(saved)
    assert again.workers.get_state()[0]["readers"] == {f"{__name__}:Counts": {"given": 4}}
    again.stop()


def test_a_reader_without_a_state_begins_anew(tmp_path: Path) -> None:
    first = dqn(tmp_path, Forgets)
    run(first, 2)
    saved = first.save(tmp_path / "checkpoints")
    first.stop()
    again = dqn(tmp_path, Forgets)
    again.restore(saved)
    run(again, 1)
    assert CONTEXTS[-1] is not CONTEXTS[-2]
    rows = again.replay._rows["observations"][: len(again.replay), 0]
    again.stop()
    assert rows[-8:].tolist() == [1.0] * 4 + [2.0] * 4


@pytest.mark.parametrize(
    "given",
    [3, 2.5, {"sampler": 0.5, closure(): 0.5}, lambda _: {}],
    ids=["whole number", "number", "mixture with a closure", "function that gives a dict"],
)
def test_what_gives_no_reader_is_refused_in_one_line(given: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        dqn(tmp_path, given)
    assert str(error.value).startswith("input: ") or "input" in str(error.value).partition(":")[0]
    assert "\n" not in str(error.value)


def test_W18_arguments_reach_a_reader_and_a_writer_of_ones_own(tmp_path: Path) -> None:
    trainer = dqn(tmp_path, Counts, input_config={"rows": 4})
    assert CONTEXTS[-1].input_config == {"rows": 4}
    trainer.stop()
    writing = dqn(tmp_path, "sampler", output=Takes, output_config={"to": "there"})
    assert Takes.made[-1].context.output_config == {"to": "there"}
    writing.stop()
    for key, given in {
        "input_config": {"input": "a.json"},
        "output_config": {"output": "a"},
    }.items():
        with pytest.raises(ConfigError, match=f"{key}: has no effect"):
            DQN.check_config({**SMALL, **given, key: {"a": 1}})


def test_W18_a_context_has_the_settings_the_folder_and_the_worker(tmp_path: Path) -> None:
    trainer = dqn(tmp_path, Counts, gamma=0.5)
    context = CONTEXTS[-1]
    assert context.config["gamma"] == 0.5
    assert context.config["env"] == "CartPole-v1"
    assert context.config["buffer_size"] == trainer.config["buffer_size"]
    assert context.log_dir == str(tmp_path)
    assert context.worker_index == 0
    assert context.worker is None  # nothing is sampled
    assert context.default_sampler_input() is None  # it was not asked for in time
    trainer.stop()
    mixed = dqn(tmp_path, {Counts: 0.5, "sampler": 0.5})
    assert CONTEXTS[-1].worker is mixed.workers.local_worker()
    assert CONTEXTS[-1].default_sampler_input() is None
    mixed.stop()


class Half(InputReader):
    """Gives by turns what the sampler samples, and rows of zeros."""

    def __init__(self, context: IOContext) -> None:
        sampler = context.default_sampler_input()
        assert sampler is not None
        assert context.worker is not None
        self.sampler, self.turn = sampler, 0

    def next(self) -> Batch:
        self.turn += 1
        if self.turn % 2:
            return self.sampler.next()
        rows = np.zeros((8, 4), dtype=np.float32)
        columns = {"obs": rows, "new_obs": rows, "actions": np.zeros(8, dtype=np.int64)}
        return {**columns, "rewards": np.zeros(8), "terminateds": np.ones(8, dtype=bool)}

    def get_state(self) -> dict[str, Any]:
        return {"turn": self.turn}

    def set_state(self, state: Mapping[str, Any]) -> None:
        self.turn = state["turn"]


def test_W18_a_reader_mixes_what_the_sampler_gives(tmp_path: Path) -> None:
    trainer = dqn(tmp_path, Half, train_batch_size=80)
    results = run(trainer, 4)
    rows = trainer.replay._rows[: len(trainer.replay)]
    zeros = (rows["observations"] == 0).all(axis=1)
    assert 0.4 < zeros.mean() < 0.6
    assert (rows["rewards"][~zeros] == 1.0).all()
    assert results[-1]["episode_reward_mean"] > 0
    assert trainer.exactness.startswith("C")
    worker = trainer.workers.local_worker()
    (weights,) = worker.get_weights().values()
    assert differences(weights, trainer.policy.acting_weights()) == []
    saved = trainer.save(tmp_path / "checkpoints")
    trainer.stop()
    again = dqn(tmp_path, Half, train_batch_size=80)
    again.restore(saved)
    run(again, 1)
    assert len(again.replay) == len(rows) + 80
    again.stop()


def test_W18_what_the_policy_itself_did_is_not_estimated(tmp_path: Path) -> None:
    config = {"env": "CartPole-v1", "input": Half, "train_batch_size": 16}
    trainer = BC(config, TrialContext(seed=1, logdir=tmp_path))
    (result,) = run(trainer, 1)
    trainer.stop()
    assert "off_policy" not in result


class Takes(OutputWriter):
    """Keeps the batches, and how it was made."""

    made: ClassVar[list[Any]] = []

    def __init__(self, context: IOContext) -> None:
        self.rows, self.context = 0, context
        assert context.worker is not None
        self.made.append(self)

    def write(self, batch: Batch) -> None:
        self.rows += len(batch["obs"])


def taking(context: IOContext) -> OutputWriter:
    return Takes(context)


def taker() -> Callable[[IOContext], OutputWriter]:
    def made(context: IOContext) -> OutputWriter:
        return Takes(context)

    return made


@pytest.mark.parametrize("given", [Takes, taking, taker()], ids=["class", "function", "closure"])
def test_K7_output_is_a_class_or_function(given: Any, tmp_path: Path) -> None:
    config = {"env": "CartPole-v1", "rollout_fragment_length": 16, "sgd_minibatch_size": 16}
    trainer: Any = PPO({**config, "output": given}, TrialContext(seed=1, logdir=tmp_path))
    (result,) = run(trainer, 1)
    own = Takes.made[-1]
    assert own.rows == result["timesteps_total"]
    assert own.context.worker is trainer.workers.local_worker()
    assert own.context.config["env"] == "CartPole-v1"
    assert own.context.default_sampler_input() is None
    trainer.save(tmp_path / "checkpoints")
    trainer.stop()


def test_what_gives_no_writer_is_refused_in_one_line(tmp_path: Path) -> None:
    config = {"env": "CartPole-v1", "output": lambda _: 3}
    with pytest.raises(
        ConfigError, match=r"output: .* returned an int; expected .*OutputWriter"
    ) as error:
        PPO(config, TrialContext(seed=1, logdir=tmp_path))
    assert "\n" not in str(error.value)

"""Head and restored tail equal the straight run: results, weights, streams, to the bit."""

import copy
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import run_python
from tests.support.proofs import proofs_except
from tests.support.trainers import PLAIN, differences, final_state, make, run, stable
from trainables.algorithms.dqn import DQN
from trainables.algorithms.ppo import PPO
from trainables.trainer.agreement import COLLECTING, FILTERING
from trainables.trainer.trainer import Trainer

HERE = "tests.support.environments"
ROOT = Path(__file__).parents[3]
HEAD, TAIL = 3, 3
CASES: dict[str, dict[str, Any]] = {
    "in process": {},
    "continuous": {"env": "Pendulum-v1", "evaluation_config": {"explore": True}},
    "native vector": {"native_vector_env": True},
    "two children": {"num_workers": 2, "train_batch_size": 192},
    "complete episodes": {"batch_mode": "complete_episodes", "train_batch_size": 100},
    "complete episodes of two children": {
        "batch_mode": "complete_episodes",
        "num_workers": 2,
        "train_batch_size": 150,
    },
    "filters of their own": {
        "synchronize_filters": False,
        "num_workers": 2,
        "train_batch_size": 192,
    },
    "with a memory": {"model": {"use_lstm": True, "max_seq_len": 6}},
    "with a memory in two children": {
        "model": {"use_lstm": True},
        "num_workers": 2,
        "train_batch_size": 192,
        "batch_mode": "complete_episodes",
    },
    "noise that depends on the state": {
        "env": "Pendulum-v1",
        "exploration_config": {"type": "StateDependentNoise", "sample_freq": 4},
    },
    "global chance in children": {
        "env": f"{HERE}:GlobalChance",
        "num_workers": 2,
        "train_batch_size": 192,
    },
}
#: Cases that another one of `CASES` contains.
CONTAINED = {"native vector", "complete episodes", "filters of their own", "with a memory"}


@pytest.mark.slow
@pytest.mark.parametrize("case", proofs_except(CASES.keys() - CONTAINED, CASES))
def test_a_restored_trial_equals_the_uninterrupted_one(case: str) -> None:
    straight = make(CASES[case])
    expected = run(straight, HEAD + TAIL)
    end = final_state(straight)
    straight.stop()

    saving = make(CASES[case])
    results = []
    for _ in range(HEAD):
        results.append(stable(saving.train()))
        saved = saving.get_state()
    assert saving.gives_copies
    as_saved = copy.deepcopy(saved)
    kept = [stable(saving.train()) for _ in range(TAIL) if saving.get_state()]
    assert differences(as_saved, saved) == []
    assert differences(expected, results + kept) == []
    assert differences(end, final_state(saving)) == []
    saving.stop()

    other = make(CASES[case])
    other.train()  # a trainer that has lived already is put back as well
    other.set_state(saved)
    assert differences(expected[HEAD:], run(other, TAIL)) == []
    assert differences(end, final_state(other)) == []
    other.stop()


class Overrides(PPO):
    """Saves by code of its own, which may write files, or give what it goes on changing."""

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return super().save_checkpoint(checkpoint_dir)


@pytest.mark.parametrize(
    ("cls", "config"),
    [
        (Overrides, PLAIN),
        (PPO, {**PLAIN, "callbacks": "tests.support.callbacks:Measures"}),
        (PPO, {**PLAIN, "observation_filter": "trainables.policies.filters:MeanStdFilter"}),
        (PPO, {**PLAIN, "output": "logdir"}),
        (DQN, {"env": "CartPole-v1"}),
    ],
)
def test_what_others_wrote_and_a_replay_are_packed_at_once(
    cls: type[Trainer], config: dict[str, Any]
) -> None:
    trainer = cls(config)
    assert not trainer.gives_copies
    trainer.stop()


TAIL_IN_A_FRESH_PROCESS = """
import sys
from tests.support.trainers import make, run
case, head, folder, tail = sys.argv[1:]
from tests.trainables.trainer.test_exact_resume import CASES
trainer = make(CASES[case])
trainer.restore(head)
run(trainer, int(tail))
print(trainer.save(folder), flush=True)
trainer.stop()
"""


@pytest.mark.slow
@pytest.mark.parametrize("case", ["continuous", "two children", "with a memory"])
def test_a_trial_restored_from_a_file_in_a_fresh_process_equals_the_uninterrupted_one(
    case: str, tmp_path: Path
) -> None:
    straight = make(CASES[case])
    straight.save(tmp_path)
    run(straight, HEAD)
    head = straight.save(tmp_path)
    run(straight, TAIL)
    end = final_state(straight)
    straight.stop()
    finished = run_python(TAIL_IN_A_FRESH_PROCESS, case, head, tmp_path, TAIL)
    resumed = make(CASES[case])
    resumed.restore(finished.strip())
    assert differences(end, final_state(resumed)) == []
    resumed.stop()


PARTS = [
    "policy/weights",
    "policy/optimizer",
    "filters/observation",
    "filters/reward",
    "streams/minibatch",
    "progress/timesteps",
    "progress/episodes",
    "progress/window",
    "workers/0/stream",
    "workers/0/sampler/observations",
    "workers/0/sampler/episodes",
    "workers/0/sampler/discounted_returns",
    "workers/0/environments",
]


def replace(state: dict[str, Any], fresh: dict[str, Any], path: str) -> None:
    """Put the fresh trainer's part in the place of the saved one."""
    *parents, last = path.split("/")
    target: Any = state["trainable"]["data"]
    source: Any = fresh["trainable"]["data"]
    for name in parents:
        key: Any = int(name) if isinstance(target, list) else name
        target, source = target[key], source[key]
    assert differences(target[last], source[last]), f"{path} never changed: it shows nothing"
    target[last] = source[last]


@pytest.fixture(scope="module")
def halfway() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    trainer = make()
    run(trainer, HEAD)
    state = copy.deepcopy(trainer.get_state())
    return state, run(trainer, TAIL)


@pytest.mark.parametrize("path", PARTS)
def test_the_equality_fails_when_any_one_part_of_the_state_is_left_out(
    path: str, halfway: tuple[dict[str, Any], list[dict[str, Any]]]
) -> None:
    saved, expected = halfway
    state = copy.deepcopy(saved)
    trainer = make()
    replace(state, trainer.get_state(), path)
    trainer.set_state(state)
    assert differences(expected, run(trainer, TAIL)) != []


def test_every_entry_of_the_state_is_among_the_parts_that_were_left_out() -> None:
    data = make().get_state()["trainable"]["data"]
    # These decide nothing of training; the tests below and test_late_metrics.py show what they are
    # for.
    exempt = {"streams/compute_action", "recent_observations", "progress/late"}
    exempt |= {f"collected/{key}" for key in COLLECTING + FILTERING}  # test_restored_elsewhere.py
    exempt |= {f"settled/{key}" for key in PPO.auto_settings}  # test_settled.py
    # The level says how to read the environments beside it. What they count decides only with
    # horizons, restarts and native vectors: test_vector_envs.py shows it.
    worker = {"workers/0/level", "workers/0/lanes", "workers/0/sampler/ghosts"}
    worker |= {"workers/0/sampler/memory"}  # empty here; the test below is about one that is not
    # What came before the next row is for columns that are requested: test_columns.py.
    worker |= {"workers/0/sampler/unrolls", "workers/0/sampler/before"}
    known = set(PARTS) | exempt | worker
    names = {
        "recent_observations",
        *(f"{name}/{part}" for name in data for part in data[name] if isinstance(data[name], dict)),
        *(f"workers/0/{part}" for part in data["workers"][0]),
    }
    assert all(any(one == k or k.startswith(f"{one}/") for k in known) for one in names), names
    sampler = {f"workers/0/sampler/{part}" for part in data["workers"][0]["sampler"]}
    assert sampler <= known


def test_the_equality_fails_when_the_memory_is_left_out() -> None:
    model = {"model": {"use_lstm": True}}
    trainer, other = make(model), make(model)
    run(trainer, HEAD)
    state = copy.deepcopy(trainer.get_state())
    replace(state, other.get_state(), "workers/0/sampler/memory")
    other.set_state(state)
    assert differences(run(trainer, 1), run(other, 1)) != []


def test_exploring_actions_and_recent_observations_come_back_as_they_were() -> None:
    trainer = make()
    trainer.train()
    state = copy.deepcopy(trainer.get_state())
    other = make()
    other.set_state(state)
    observation = trainer.recent[0]
    first, second = (
        [one.compute_action(observation, explore=True) for _ in range(30)]
        for one in (trainer, other)
    )
    assert first == second
    assert len(set(first)) == 2
    assert differences(trainer.recent, other.recent) == []
    assert trainer.recent.shape == (64, 4)

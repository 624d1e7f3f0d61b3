"""Estimates of a policy's return from episodes of another one: by hand, and against the truth."""

import json
import math
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from numpy.typing import NDArray

from tests.support import sweeps
from tests.support.trainers import run
from trainables.algorithms.bc import BC
from trainables.envs.exactness import measuring
from trainables.envs.make import EnvironmentConfig
from trainables.offline.estimators import (
    Episodes,
    count_bounded,
    estimate,
    fitted_values,
    read_episodes,
    terms,
)
from trainables.offline.reader import JsonReader, Rows
from trainables.trainable import TrialContext

#: Two episodes of two steps and of one; ratios 2 and 0.5, then 4.
REWARDS = np.array([[1.0, 10.0], [3.0, 0.0]])
RATIOS = np.array([[2.0, 0.5], [4.0, 1.0]])
GAMMA = 0.5


def value(name: str, **given: Any) -> float:
    above, below = terms(name, REWARDS, np.log(RATIOS), GAMMA, **given)
    return float(above.sum() / below.sum())


def test_W17_importance_sampling_by_hand() -> None:
    # returns 1 + 5 = 6 and 3; ratios of whole episodes 1 and 4
    assert value("is") == pytest.approx((1 * 6 + 4 * 3) / 2)
    assert value("wis") == pytest.approx((1 * 6 + 4 * 3) / (1 + 4))
    assert value("pdis") == pytest.approx((2 * 1 + 1 * 5 + 4 * 3) / 2)


def test_W17_doubly_robust_by_hand() -> None:
    taken, of_state = np.array([[4.0, 8.0], [1.0, 0.0]]), np.array([[3.0, 6.0], [2.0, 0.0]])
    second = 6 + 0.5 * (10 - 8)
    first = 3 + 2 * (1 + 0.5 * second - 4)
    other = 2 + 4 * (3 - 1)
    assert value("dr", valued=(taken, of_state)) == pytest.approx((first + other) / 2)
    nothing = np.zeros((2, 2)), np.zeros((2, 2))
    assert value("dr", valued=nothing) == pytest.approx(value("pdis"))


def test_ratios_beyond_all_numbers_are_no_nan() -> None:
    huge = np.full((3, 50), 60.0)
    rewards = np.ones((3, 50))
    for name in ("is", "pdis", "wis"):
        found = estimate(terms(name, rewards, huge, 0.9), np.random.default_rng(0))
        assert found is not None
        assert all(math.isfinite(one) for one in found)
    never = terms("wis", rewards, np.full((3, 50), -np.inf), 0.9)
    assert estimate(never, np.random.default_rng(0)) is None


def test_products_of_ratios_beyond_all_numbers_are_bounded() -> None:
    """Each ratio is below 4, and over 800 steps their product is above the highest float64."""
    rewards, log_ratios = np.ones((3, 800)), np.full((3, 800), np.log(3.96))
    log_ratios[1] = -1.0
    for values in (0.0, 5.0):
        fitted = np.full_like(rewards, values), np.full_like(rewards, values)
        given = terms("dr", rewards, log_ratios, 0.99, fitted)
        found = estimate(given, np.random.default_rng(0))
        assert found is not None
        assert np.isfinite(found).all()
        if not values:  # without values it is pdis, also where that is bounded
            per_decision = terms("pdis", rewards, log_ratios, 0.99)
            np.testing.assert_allclose(given.numerators, per_decision.numerators, rtol=1e-12)
    counts = {name: count_bounded(name, log_ratios) for name in ("is", "wis", "pdis", "dr")}
    assert counts == {"is": 2, "wis": 0, "pdis": 2, "dr": 2}
    back = np.concatenate([log_ratios, np.full((3, 900), -1.5)], axis=1)
    assert (count_bounded("is", back), count_bounded("dr", back)) == (0, 2)


def test_doubly_robust_is_the_papers_recursion() -> None:
    drawn = np.random.default_rng(5)
    rewards, taken, of_state = drawn.normal(size=(3, 4, 30))
    log_ratios = drawn.normal(size=(4, 30))
    ahead = np.zeros(4)
    for t in reversed(range(30)):
        error = rewards[:, t] + 0.9 * ahead - taken[:, t]
        ahead = of_state[:, t] + np.exp(log_ratios[:, t]) * error
    found = terms("dr", rewards, log_ratios, 0.9, (taken, of_state)).numerators
    np.testing.assert_allclose(found, ahead, rtol=1e-9)


# ---- a small tabular problem ---------------------------------------------------------------------

STATES, CHOICES, STEPS = 3, 2, 5
_given = np.random.default_rng(4)
MOVES = _given.dirichlet(np.ones(STATES), size=(STATES, CHOICES))
GAINS = _given.uniform(-1, 1, size=(STATES, CHOICES))
BEHAVIOUR = np.array([[0.5, 0.5], [0.6, 0.4], [0.35, 0.65]])
TARGET = np.array([[0.65, 0.35], [0.45, 0.55], [0.5, 0.5]])


def true_values() -> list[NDArray[np.float64]]:
    """(S, A) values with so many steps to go, from 0 to `STEPS`."""
    values = [np.zeros((STATES, CHOICES))]
    for _ in range(STEPS):
        values.append(GAINS + GAMMA * MOVES @ (TARGET * values[-1]).sum(axis=1))
    return values


def played(count: int, stream: np.random.Generator) -> tuple[Any, Any, Any, Any]:
    """States, choices, rewards, logarithms of ratios (count, STEPS), from state 0."""
    state = np.zeros(count, dtype=int)
    columns: list[list[Any]] = [[], [], [], []]
    for _ in range(STEPS):
        choice = (stream.random(count) > BEHAVIOUR[state, 0]).astype(int)
        gain = GAINS[state, choice] + stream.normal(size=count)
        ratio = np.log(TARGET[state, choice] / BEHAVIOUR[state, choice])
        for column, one in zip(columns, (state, choice, gain, ratio), strict=True):
            column.append(one)
        drawn = stream.random(count)[:, None]
        state = (drawn > MOVES[state, choice].cumsum(axis=1)).sum(axis=1).clip(max=STATES - 1)
    states, choices, rewards, ratios = (np.stack(column, axis=1) for column in columns)
    return states, choices, rewards, ratios


@pytest.mark.slow
def test_W17_intervals_hold_the_true_value_as_often_as_they_say() -> None:
    values, stream = true_values(), np.random.default_rng(12)
    truth = float((TARGET[0] * values[STEPS][0]).sum())
    left = np.arange(STEPS, 0, -1)
    stacked = np.stack(values)
    repetitions, episodes = 1000, 150
    held = dict.fromkeys(("is", "wis", "pdis", "dr"), 0)
    for _ in range(repetitions):
        states, choices, rewards, ratios = played(episodes, stream)
        taken = stacked[left, states, choices]
        of_state = (TARGET[states] * stacked[left, states]).sum(axis=2)
        for name in held:
            given = terms(name, rewards, ratios, GAMMA, (taken, of_state))
            found = estimate(given, stream, 400)
            assert found is not None
            held[name] += found.low <= truth <= found.high
    assert all(0.93 <= count / repetitions <= 0.97 for count in held.values()), held


def test_fitted_values_are_the_true_ones_of_a_table() -> None:
    """Episodes that never end: the value with endless steps to go, from single transitions."""
    stream = np.random.default_rng(3)
    states, choices, rewards, _ = played(20_000, stream)
    now, then = states[:, :-1].reshape(-1), states[:, 1:].reshape(-1)
    taken, gains = choices[:, :-1].reshape(-1), rewards[:, :-1].reshape(-1)
    one_hot = np.eye(STATES)
    episodes = Episodes(
        rewards=gains[:, None],
        logp=np.zeros((len(now), 1)),
        valid=np.ones((len(now), 1), bool),
        observations=one_hot[now],
        following=one_hot[then],
        terminated=np.zeros(len(now), bool),
        actions=taken,
    )
    fitted, of_state = fitted_values(episodes, TARGET[now], TARGET[then], GAMMA)
    values = np.zeros((STATES, CHOICES))
    for _ in range(100):
        values = GAINS + GAMMA * MOVES @ (TARGET * values).sum(axis=1)
    np.testing.assert_allclose(fitted, values[now, taken], atol=0.05)
    np.testing.assert_allclose(of_state, (TARGET * values).sum(axis=1)[now], atol=0.05)


@pytest.mark.parametrize(("terminated", "expected"), [(True, 2.0), (False, 2.0 / (1.0 - GAMMA))])
def test_only_an_end_by_itself_has_no_value_after_it(terminated: bool, expected: float) -> None:
    """Of one state that leads to itself; an episode that was cut off goes on there."""
    rows = 20
    episodes = Episodes(
        rewards=np.full((rows, 1), 2.0),
        logp=np.zeros((rows, 1)),
        valid=np.ones((rows, 1), bool),
        observations=np.ones((rows, 1)),
        following=np.ones((rows, 1)),
        terminated=np.full(rows, terminated),
        actions=np.zeros(rows, int),
    )
    always = np.ones((rows, 1))
    for found in fitted_values(episodes, always, always, GAMMA):
        np.testing.assert_allclose(found, expected, rtol=1e-4)


# ---- episodes in files ---------------------------------------------------------------------------


class Table(gymnasium.Env[Any, Any]):
    """Has spaces, and cannot begin an episode."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(-1, 1, (STATES,), np.float32)
        self.action_space = spaces.Discrete(CHOICES)


def line(eps_id: list[int], t: list[int], ended: list[int], **columns: Any) -> dict[str, Any]:
    obs = [[float(i), 0.0, 0.0] for i in t]
    following = [[float(i + 1), 0.0, 0.0] for i in t]
    flags = [i in ended for i in range(len(t))]
    given = {"obs": obs, "new_obs": following, "actions": [0] * len(t), "eps_id": eps_id, "t": t}
    made = {"rewards": [1.0] * len(t), "terminateds": flags, "action_logp": [-0.5] * len(t)}
    return {"type": "SampleBatch", **given, **made, **columns}


def reader_of(folder: Path, *lines: dict[str, Any]) -> JsonReader:
    path = folder / "a.json"
    path.write_text("".join(f"{json.dumps(one)}\n" for one in lines))
    look = measuring.inspect(EnvironmentConfig(env=f"{__name__}:Table"))
    return JsonReader([path], Rows(look.spaces))


def test_episodes_are_put_together_from_pieces_of_several_lines(tmp_path: Path) -> None:
    reader = reader_of(
        tmp_path,
        line([7, 7, 8], [1, 2, 0], [1]),  # the first of 7 is missing
        line([9, 9, 8], [0, 1, 1], []),
        line([9, 8, 8, 5], [2, 2, 3, 0], [0, 2]),  # 5 does not end
    )
    found = read_episodes(reader, 10)
    assert found is not None
    assert found.valid.sum(axis=1).tolist() == [3, 4]
    assert found.rewards.tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert found.observations[:, 0].tolist() == [0, 1, 2, 0, 1, 2, 3]
    few = read_episodes(reader_of(tmp_path, *[line([i], [0], [0]) for i in range(9)]), 4)
    assert few is not None
    assert len(few) == 4
    in_one_line = read_episodes(reader_of(tmp_path, line([1, 2, 3], [0, 0, 0], [0, 1, 2])), 2)
    assert in_one_line is not None
    assert len(in_one_line) == 2


@pytest.mark.parametrize(("second", "lengths"), [([2, 3], [4]), ([5, 6], None)])
def test_without_numbers_of_steps_what_does_not_follow_is_no_new_episode(
    second: list[int], lengths: list[int] | None, tmp_path: Path
) -> None:
    lines = [line([7, 7], [0, 1], []), line([7, 7], second, [1])]
    for one in lines:
        del one["t"]
    found = read_episodes(reader_of(tmp_path, *lines), 10)
    assert (None if found is None else found.valid.sum(axis=1).tolist()) == lengths


def test_without_probabilities_nothing_is_estimated(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    without = line([0], [0], [0])
    del without["action_logp"]
    assert read_episodes(reader_of(tmp_path, without), 4) is None
    assert "input_evaluation: there are no estimates, because action_logp" in caplog.text


def test_a_file_without_a_whole_episode_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cut = line([0, 0], [0, 1], [], truncateds=[False, True])
    assert read_episodes(reader_of(tmp_path, cut), 4) is not None
    assert not caplog.records
    del cut["new_obs"]
    assert read_episodes(reader_of(tmp_path, cut), 4) is None
    assert "counts only if the file has new_obs" in caplog.text


def data_of(folder: Path, episodes: int = 300) -> Path:
    """Episodes of `BEHAVIOUR`, of which choice 0 in state 0 is the better the more it is taken."""
    folder.mkdir(parents=True, exist_ok=True)
    states, choices, rewards, _ = played(episodes, np.random.default_rng(6))
    lines = []
    for i in range(episodes):
        obs = np.eye(STATES)[states[i]]
        logp = np.log(BEHAVIOUR[states[i], choices[i]])
        of = line([i] * STEPS, list(range(STEPS)), [STEPS - 1])
        of |= {"obs": obs.tolist(), "new_obs": np.roll(obs, -1, axis=0).tolist()}
        of |= {"actions": choices[i].tolist(), "rewards": rewards[i].tolist()}
        lines.append({**of, "action_logp": logp.tolist()})
    path = folder / "table.json"
    path.write_text("".join(f"{json.dumps(one)}\n" for one in lines))
    return path


def bc(data: Path, **config: Any) -> BC:
    given = {"env": f"{__name__}:Table", "input": str(data), "gamma": GAMMA}
    return BC({**given, **config}, TrialContext(seed=3))


def test_W17_B11_estimates_stand_in_each_result(tmp_path: Path) -> None:
    data = data_of(tmp_path)
    names = ["is", "wis", "pdis", "dr"]
    trainer = bc(data, input_evaluation=names, input_evaluation_num_episodes=250)
    results = run(trainer, 8)
    trainer.stop()
    found = results[-1]["off_policy"]
    assert found["episodes"] == 250
    rewards = np.array([json.loads(one)["rewards"] for one in data.read_text().splitlines()])
    behaviour = float((rewards[:250] * GAMMA ** np.arange(STEPS)).sum(axis=1).mean())
    for name in names:  # a clone of the behaviour returns what it did
        assert found[f"{name}_low"] < found[name] < found[f"{name}_high"]
        assert found[name] == pytest.approx(behaviour, abs=0.1)
    again = bc(data, input_evaluation=names, input_evaluation_num_episodes=250)
    assert [one["off_policy"] for one in run(again, 8)] == [one["off_policy"] for one in results]
    again.stop()


def test_W17_only_what_is_asked_for_is_estimated(tmp_path: Path) -> None:
    trainer = bc(data_of(tmp_path), input_evaluation=[])
    assert "off_policy" not in run(trainer, 1)[0]
    trainer.stop()
    trainer = bc(data_of(tmp_path))
    (result,) = run(trainer, 1)
    assert {"is", "wis"} == {n for n in result["off_policy"] if "_" not in n} - {"episodes"}
    trainer.stop()


def test_W17_simulation_plays_episodes(tmp_path: Path) -> None:
    data = Path(__file__).parent / "rllib" / "plain.json"
    config = {"env": "CartPole-v1", "input": str(data), "evaluation_num_episodes": 2}
    trainer = BC({**config, "input_evaluation": ["simulation"]}, TrialContext(seed=1))
    (result,) = run(trainer, 1)
    trainer.stop()
    assert result["off_policy"]["simulation"] >= 8.0
    assert list(result["off_policy"]) == ["simulation"]


def test_estimates_of_ratios_that_are_bounded_are_said_to_be_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = line([0] * 400, list(range(400)), [399])
    given |= {"action_logp": [-9.0] * 400}
    path = tmp_path / "a.json"
    path.write_text(json.dumps(given))
    trainer = bc(path, input_evaluation=["is", "wis", "pdis", "dr"], train_batch_size=400)
    results = run(trainer, 2)
    trainer.stop()
    for result in results:
        assert all(math.isfinite(one) for one in result["off_policy"].values())
        assert {"is", "wis", "pdis", "dr"} <= result["off_policy"].keys()
    said = [r.getMessage() for r in caplog.records if "limits the ratios" in r.getMessage()]
    assert [one.split()[1] for one in said] == ["is", "pdis", "dr"]
    assert "is limits the ratios of 1 of 1 episodes to e^600" in said[0]


@pytest.mark.slow
def test_a_sweep_without_any_simulator(tmp_path: Path) -> None:
    """Its metric is an estimate, and its environment cannot begin an episode."""
    config = {"env": f"{__name__}:Table", "input": str(data_of(tmp_path / "data"))}
    folder = sweeps.make(
        tmp_path,
        trainable="bc",
        trials=3,
        metric="off_policy/wis",
        mode="max",
        config={**config, "gamma": GAMMA},
        space={"lr": {"loguniform": [1e-4, 1e-2]}},
        stop={"training_iteration": 3},
        scheduler=None,
    )
    assert sweeps.run(folder) == "finished"
    for trial in range(3):
        metrics = [row.metrics for row in sweeps.curve(folder, trial)]
        assert len(metrics) == 3
        ends = [[float(one[f"off_policy/wis{end}"]) for end in ("_low", "")] for one in metrics]
        assert all(low < value for low, value in ends)

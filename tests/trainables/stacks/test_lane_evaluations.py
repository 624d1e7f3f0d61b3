"""Evaluations of lanes are played in the program, and are those that the process would play."""

import functools
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from trainables.algorithms.dqn import DQN
from trainables.algorithms.ppo import PPO
from trainables.stacks import trainer as lanes
from trainables.stacks.episodes import observe_now
from trainables.stacks.evaluation import evaluate, first_states
from trainables.stacks.lanes import Exploring
from trainables.stacks.trainer import LaneTrainer
from trainables.trainable import TrialContext
from trainables.trainer.trainer import Trainer

EPISODES = 12
#: Settings of lanes that evaluate, and are not trained here.
CONFIG: dict[str, Any] = {
    "env": "CartPole-v1",
    "model": {"hidden": [8, 7]},
    "observation_filter": "MeanStdFilter",
    "evaluation_interval": 1,
    "evaluation_num_episodes": EPISODES,
    "evaluation_config": {"explore": False, "horizon": 40},
    "lanes": 2,
}
NUMBERS: dict[str, Any] = {"env": "Pendulum-v1", "observation_filter": "NoFilter"}
BY_STATE: dict[str, Any] = {
    **NUMBERS,
    "exploration_config": {"type": "StateDependentNoise", "log_std_init": -0.5},
}
EPSILON: dict[str, Any] = {
    "exploration_config": {"initial_epsilon": 0.4, "final_epsilon": 0.4},
}
#: Kind of policy → its class, and its differences from `CONFIG`.
KINDS: dict[str, tuple[type[Trainer], dict[str, Any]]] = {
    "choices": (PPO, {}),
    "numbers": (PPO, NUMBERS),
    "noise by the state": (PPO, BY_STATE),
    "values": (DQN, EPSILON),
}


def made(kind: str = "choices", seed: int = 1, **more: Any) -> LaneTrainer:
    """Return a lane whose policy prefers some actions, with a filter that has seen rows."""
    cls, changes = KINDS[kind]
    lane = cls({**CONFIG, **changes, **more}, TrialContext(seed=seed))
    assert isinstance(lane, LaneTrainer)
    stream = np.random.default_rng(seed)
    weights = {
        name: np.asarray(one + 0.3 * stream.standard_normal(one.shape), np.float32)
        for name, one in lane.policy.weights().items()
    }
    if changes.get("observation_filter") != "NoFilter":
        rows = 2.0 + stream.standard_normal((50, lane.lane_env.features))
        lane.filters["observation"].count(rows)
    lane.set_weights({"default_policy": weights})
    return lane


def histories(lane: Trainer) -> dict[str, list[float]]:
    found: dict[str, list[float]] = lane.evaluate()["hist_stats"]
    return found


@pytest.mark.parametrize("kind", ["choices", "numbers", "values"])
def test_episodes_are_gymnasiums_from_the_same_first_states(kind: str) -> None:
    lane = made(kind)
    assert lane.evaluation_shape is not None
    begin = jax.jit(first_states, static_argnums=0)
    starts, _ = begin(lane.evaluation_shape, lane.evaluation_request(0).key)
    first = np.asarray(observe_now(lane.lane_env, starts))
    env: Any = gymnasium.make(lane.settings.environment.env or "")
    returns, lengths = [], []
    for start, seen in zip(np.asarray(starts, np.float64), first, strict=True):
        env.reset()
        env.unwrapped.state = start
        total, length, over, at = 0.0, 0, False, seen
        while not over and length < 40:
            at, reward, over, _, _ = env.step(lane.compute_action(at, explore=False))
            total, length = total + float(reward), length + 1
        returns.append(total)
        lengths.append(length)
    found = lane.evaluate()
    assert found["hist_stats"]["episode_lengths"] == lengths
    assert found["hist_stats"]["episode_reward"] == pytest.approx(returns, rel=1e-4)
    assert found["episodes"] == EPISODES
    assert kind == "numbers" or len(set(lengths)) > 3
    assert kind != "numbers" or lengths == [40] * EPISODES


def drawn_in_program(lane: LaneTrainer, row: NDArray[Any], count: int) -> NDArray[Any]:
    """Return `count` actions for a filtered observation, each with its own key."""
    shape = lane.shape.evaluating(lane.shape.env, count)
    given = lane.lane_settings(), lane.optimizer_state().weights, lane.epsilon(0)

    def draw(settings: Any, weights: Any, epsilon: Any) -> jax.Array:
        keys = jax.random.split(jax.random.key(5), count)
        exploring = Exploring(jnp.array(True), epsilon, keys, jnp.int32(3))
        x = jnp.repeat(row[None], count, 0)
        return shape.choose(settings, weights, x, exploring)

    return np.asarray(jax.jit(draw)(*given), np.float64).reshape(count)


@pytest.mark.parametrize("kind", KINDS)
def test_actions_are_drawn_from_the_distribution_of_the_process(kind: str) -> None:
    lane, count = made(kind, normalize_actions=False), 4000
    row = np.linspace(-1.0, 1.0, lane.lane_env.features, dtype=np.float32)
    mine = drawn_in_program(lane, row, count)
    lane.inference.actor.on_global_var_update({"timestep": 0})
    actor = lane.inference.actor
    streams = np.random.default_rng(0).spawn(count)
    memory = actor.initial_memory(count)
    theirs = actor.act_each(np.repeat(row[None], count, 0), memory, streams)[0]
    theirs = np.asarray(theirs, np.float64).reshape(count)
    if kind in ("numbers", "noise by the state"):
        theirs = np.clip(theirs, -2.0, 2.0)
    deviation = theirs.std()
    assert deviation > 0.1
    assert mine.mean() == pytest.approx(theirs.mean(), abs=0.08 * deviation)
    assert mine.std() == pytest.approx(deviation, rel=0.06)


def test_episodes_that_end_early_count_as_often_as_the_process_plays_them() -> None:
    lane = made(evaluation_num_episodes=600, evaluation_config={"explore": True})
    mine, theirs = histories(lane), Trainer.evaluate(lane)["hist_stats"]
    lengths, others = (np.array(one["episode_lengths"]) for one in (mine, theirs))
    assert mine["episode_reward"] == mine["episode_lengths"]
    assert len(lengths) == len(others) == 600
    # The longest quarter would be missing if the first episodes to end were taken.
    for share in (0.1, 0.5, 0.9):
        border = np.quantile(others, share)
        assert (lengths <= border).mean() == pytest.approx((others <= border).mean(), abs=0.1)
    noise = np.hypot(lengths.std(), others.std()) / np.sqrt(600)
    assert abs(lengths.mean() - others.mean()) < 3.5 * noise < 0.1 * lengths.mean()


def test_each_episode_is_the_same_among_more_of_them() -> None:
    few, many = made(evaluation_num_episodes=3), made()
    assert histories(few)["episode_lengths"] == histories(many)["episode_lengths"][:3]


def test_neighbours_places_and_their_number_change_no_bit() -> None:
    alone = histories(made())
    drawn = {"explore": True, "horizon": 30}
    others = [made(seed=3, evaluation_config=drawn), made(model={"hidden": [6, 8]}), made(lanes=1)]
    beside = made()
    lanes.evaluate({others[0]: 0, beside: 0, **dict.fromkeys(others[1:], 0)})
    assert histories(beside) == histories(others[2]) == alone
    assert histories(others[0]) != alone != histories(others[1])


def test_an_evaluation_repeats_itself_and_the_next_one_is_another() -> None:
    lane, other = made(), made(evaluation_config={**CONFIG["evaluation_config"], "seed": 7})
    first = histories(lane)
    assert histories(lane) == first != histories(other)
    lane._counters.complete({}, 1.0, {})
    assert histories(lane) != first


def test_results_have_the_names_that_the_process_gives() -> None:
    lane = made()
    assert lane.evaluate().keys() == Trainer.evaluate(lane).keys()


@pytest.mark.parametrize(
    ("changes", "longest"),
    [
        ({"env": "CartPole-v0", "horizon": 9}, 9),
        ({"horizon": 9, "num_envs_per_worker": 3, "log_level": "DEBUG"}, 9),
        ({"horizon": 9, "remote_worker_envs": False}, 9),
    ],
)
def test_settings_of_an_evaluation_are_read_by_the_program(
    changes: dict[str, Any], longest: int
) -> None:
    lane = made(evaluation_config=changes)
    assert lane.evaluation_shape is not None
    assert lane.evaluation_shape.env.name == changes.get("env", "CartPole-v1")
    assert max(histories(lane)["episode_lengths"]) == longest


@pytest.mark.parametrize(
    "changes",
    [
        {"remote_worker_envs": True},
        {"callbacks": "tests.support.callbacks:Measures"},
        {"env_config": {"sutton_barto_reward": True}},
    ],
)
def test_what_no_program_has_is_played_by_the_process(changes: dict[str, Any]) -> None:
    lane = made(evaluation_num_episodes=2, evaluation_config={"horizon": 9, **changes})
    assert lane.evaluation_shape is None
    lanes.evaluate({lane: 0})
    assert lane.evaluate()["episodes"] == 2


@pytest.mark.slow
def test_lanes_play_the_same_episodes_together_and_one_by_one() -> None:
    drawn = {"explore": True, "horizon": 30}
    several = [made(seed=n, evaluation_config=drawn) for n in range(3)]
    shape = several[0].evaluation_shape
    assert shape is not None
    each = [
        (
            one.lane_settings(),
            one.optimizer_state().weights,
            one.filter_statistics(),
            one.evaluation_request(0),
        )
        for one in several
    ]
    given = jax.tree.map(lambda *columns: np.stack(columns), *each)
    busy = np.array([True, False, True])
    found = [
        jax.jit(functools.partial(evaluate, shape, at_once))(*given, busy)
        for at_once in (True, False)
    ]
    for place in (0, 2):
        lengths = histories(several[place])["episode_lengths"]
        assert [one.lengths[place].tolist() for one in found] == [lengths, lengths]
    assert not any(one.lengths[1].any() for one in found)

"""Several agents in a worker: every transition comes once; what is refused names the agent."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.agents import Comings, Dicts, Targets
from trainables.algorithms.ppo import PPO
from trainables.errors import ConfigError, EnvError, NotFiniteError
from trainables.rollout.agents.worker import AgentsSpec, AgentsWorker, MultiAgentBatch, checked
from trainables.rollout.batch import REQUESTABLE

HERE = "tests.support.agents"
SHARED = {"policies": {"shared": None}}


def spec(env: str, agents: Mapping[str, Any] = SHARED, **more: Any) -> AgentsSpec:
    """Of a worker, with all columns that can be asked for."""
    config: dict[str, Any] = {"env": f"{HERE}:{env}", "env_level": "C", "multiagent": agents}
    config |= {"num_envs_per_worker": 1, "rollout_fragment_length": 4, "sgd_minibatch_size": 1}
    trainer = PPO({**config, **more})
    made = trainer.worker_spec()
    trainer.stop()
    assert isinstance(made, AgentsSpec)
    columns = frozenset(REQUESTABLE)
    plans = {pid: replace(plan, columns=columns) for pid, plan in made.policies.items()}
    return replace(made, policies=plans)


@contextmanager
def working(made: AgentsSpec) -> Iterator[AgentsWorker]:
    worker = made.worker_class(made)
    assert isinstance(worker, AgentsWorker)
    weights: dict[str, Any] = {}
    for pid, plan in made.policies.items():
        weights[pid] = PLAYING[plan.spaces.observation_shape]
    worker.set_weights(weights)
    try:
        yield worker
    finally:
        worker.close()


class _Weights(dict[tuple[int, ...], Any]):
    """Observation shape → weights of a policy with as many choices as the environments have."""

    def __missing__(self, shape: tuple[int, ...]) -> Any:
        env = "Comings" if shape == (3,) else "Dicts"
        trainer = PPO({"env": f"{HERE}:{env}", "env_level": "C", "multiagent": SHARED})
        self[shape] = trainer.get_weights()["shared"]
        trainer.stop()
        return self[shape]


PLAYING = _Weights()


def rows(batch: MultiAgentBatch, pid: str = "shared") -> list[dict[str, Any]]:
    """The transitions of one policy, lane after lane."""
    found = []
    for fragment in batch.policy_batches[pid].fragments:
        there = ~fragment.autoreset
        for lane in range(there.shape[1]):
            # Each lane ends in its fragment's last row, so that what runs backwards is right.
            assert not np.any(np.diff(there[:, lane].astype(int)) < 0)
            lasts = np.flatnonzero(there[:, lane])
            for t in lasts:
                one = {name: column[t, lane] for name, column in fragment.columns.items()}
                last = fragment.last_values[0, lane] if t == lasts[-1] else None
                found.append({**one, "last": last, "lane": lane})
    return found


def as_told(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return (
        tuple(row["observations"].tolist()),
        int(row["actions"]),
        float(row["rewards"]),
        tuple(row["new_obs"].tolist()),
        bool(row["terminated"]),
        bool(row["truncated"]),
    )


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**20),
    envs=st.integers(1, 3),
    fragment=st.integers(1, 9),
    mode=st.sampled_from(["truncate_episodes", "complete_episodes"]),
    counted=st.sampled_from(["env_steps", "agent_steps"]),
)
def test_E5_E7_every_transition_comes_once_whoever_comes_and_goes(
    seed: int, envs: int, fragment: int, mode: str, counted: str
) -> None:
    more = {"num_envs_per_worker": envs, "rollout_fragment_length": fragment, "batch_mode": mode}
    made = spec("Comings", {**SHARED, "count_steps_by": counted}, **more)
    Comings.told = []
    given_: list[dict[str, Any]] = []
    with working(replace(made, seed=seed)) as worker:
        for _ in range(7):
            batch = worker.sample()
            assert isinstance(batch, MultiAgentBatch)
            given_ += rows(batch)
            if mode == "truncate_episodes" and counted == "env_steps":
                assert batch.env_steps == envs * fragment
        actor, found = worker.get_policy("shared"), [as_told(row) for row in given_]
        assert actor is not None
        whole = mode == "complete_episodes"
        told = [
            (tuple(o.tolist()), a, r, tuple(n.tolist()), d, c)
            for o, a, r, n, d, c, over in Comings.told
            if over or not whole
        ]
        assert sorted(found) == sorted(told)
        # Values: of what followed where an agent was cut off, or goes on after the fragment.
        for row in given_:
            follows = actor.values(row["new_obs"][None])[0]
            if row["truncated"]:
                assert np.isclose(row["final_values"], follows, atol=1e-5)
            elif row["last"] is not None and not row["terminated"]:
                assert np.isclose(row["last"], follows, atol=1e-5)
        require_what_was_before(given_)


def require_what_was_before(given_: list[dict[str, Any]]) -> None:
    """Of each lane's rows: what stood in the one before, also in another fragment."""
    before: dict[int, dict[str, Any]] = {}
    for row in given_:
        previous, follows = before.get(row["lane"], {}), row["t"] > 0
        assert row["observations"][0] == row["agent_index"]
        assert row["t"] == (previous["t"] + 1 if follows else 0)
        assert row["prev_actions"] == (previous["actions"] if follows else 0)
        assert row["prev_rewards"] == (previous["rewards"] if follows else 0.0)
        if previous.get("unroll_id") == row["unroll_id"]:
            assert follows
            assert previous["eps_id"] == row["eps_id"]
        before[row["lane"]] = row
    starts = [
        i
        for i, row in enumerate(given_)
        if i == 0 or row["unroll_id"] != given_[i - 1]["unroll_id"]
    ]
    assert len(starts) == len({row["unroll_id"] for row in given_})


# ---- one step at a time, in an environment of dicts ----------------------------------------------

A, B = {"a": 1}, {"b": 1}
GOES_ON: dict[str, bool] = {"__all__": False}
OVER: dict[str, bool] = {"__all__": True}
NO_FLAG: dict[str, bool] = {}


@contextmanager
def scripted(
    steps: list[Any], agents: Mapping[str, Any] = SHARED, first: Any = None, **more: Any
) -> Iterator[AgentsWorker]:
    """A worker whose environment gives these steps in every episode."""
    before = Dicts.first
    Dicts.script, Dicts.first = steps, before if first is None else first
    try:
        with working(spec("Dicts", agents, rollout_fragment_length=len(steps), **more)) as worker:
            yield worker
    finally:
        Dicts.first = before


def test_E2_each_agent_ends_by_its_own_flag_or_by_all() -> None:
    steps: Any = [
        ({"a": 1, "b": 1}, {"a": 1.0}, {"a": True, **GOES_ON}, NO_FLAG, {}),
        ({"b": 2}, {"b": 2.0}, OVER, NO_FLAG, {}),
    ]
    with scripted(steps) as worker:
        batch = worker.sample()
    assert isinstance(batch, MultiAgentBatch)
    found = [(r["t"], r["rewards"], r["terminated"], r["truncated"]) for r in rows(batch)]
    assert found == [(0, 1, True, False), (0, 0, False, False), (1, 2, True, False)]
    (metrics,) = batch.episodes
    assert metrics.agent_rewards == {"a": ["shared", 1.0], "b": ["shared", 2.0]}
    assert metrics.total_reward == 3.0


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (({"__all__": 1}, {}, GOES_ON, NO_FLAG, {}), "an agent called __all__"),
        (({"x": 1}, {}, GOES_ON, NO_FLAG, {}), "agent 'x' is not one of possible_agents: 'a'"),
        ((A, {"a": "much"}, GOES_ON, NO_FLAG, {}), "agent 'a' the reward 'much'"),
        ((A, {}, {}, {}, {}), "expected the key __all__ in one of them"),
        ((A, {}, GOES_ON, NO_FLAG), "five dicts with agents as keys"),
        (
            (ValueError("broken"), {}, GOES_ON, NO_FLAG, {}),
            "end the episode of an environment that failed for all agents",
        ),
    ],
)
def test_E2_E4_what_breaks_the_interface_is_said(step: Any, words: str) -> None:
    restarts: dict[str, Any] = {"restart_failed_sub_environments": True}
    with scripted([step], **restarts) as worker, pytest.raises(EnvError, match=words) as refusal:
        worker.sample()
    assert "worker 0, environment 0" in str(refusal.value)


def test_E4_an_environment_that_fails_is_made_anew_and_nothing_of_it_is_learnt() -> None:
    fails: Any = (ValueError("broken"), {}, OVER, NO_FLAG, {})
    steps: Any = [({"a": 1, "b": 1}, {}, GOES_ON, NO_FLAG, {}), fails]
    with scripted(steps, restart_failed_sub_environments=True) as worker:
        batch = worker.sample()
        assert isinstance(batch, MultiAgentBatch)
        assert not rows(batch)
        assert [one.faulty for one in batch.episodes] == [True]
        assert batch.env_steps == 2


def test_E5_E7_a_new_agent_that_has_ended_is_left_out_and_rewards_may_be_missing() -> None:
    steps: Any = [
        ({"a": 1, "c": 1}, {"c": 5.0}, {"c": True, **GOES_ON}, NO_FLAG, {}),
        (A, {}, OVER, NO_FLAG, {}),
    ]
    with scripted(steps, first={"a": 0}) as worker:
        batch = worker.sample()
    assert isinstance(batch, MultiAgentBatch)
    assert [(r["rewards"], r["infos"]) for r in rows(batch)] == [(0, {}), (0, {})]
    assert batch.episodes[0].agent_rewards == {"a": ["shared", 0.0]}


@pytest.mark.parametrize("died", [False, True])
def test_E7_a_reward_that_is_not_finite_is_refused_whoever_it_is_of(died: bool) -> None:
    steps: Any = [
        ({"a": 1, **({} if died else B)}, {}, {"b": died, **GOES_ON}, NO_FLAG, {}),
        ({"a": 2}, {"b": float("nan")}, OVER, NO_FLAG, {}),
    ]
    words = "worker 0, environment 0, episode 0: agent 'b' has the reward nan; correct the environm"
    with scripted(steps) as worker, pytest.raises(NotFiniteError, match=words):
        worker.sample()


def test_E6_an_agent_without_a_last_observation_is_given_one_where_its_episode_has_ended() -> None:
    steps: Any = [({"a": 1}, {"b": 3.0}, OVER, NO_FLAG, {})]
    with scripted(steps) as worker:
        found = rows(worker.sample())  # type: ignore[arg-type]
    assert [(r["rewards"], r["terminated"]) for r in found] == [(0, True), (3, True)]
    assert all(r["new_obs"].sum() == 1.0 for r in found)  # one of the space


def test_E6_a_last_observation_is_kept_where_an_environment_writes_into_what_it_gave() -> None:
    with working(spec("Rewrites", rollout_fragment_length=4)) as worker:
        found = rows(worker.sample())  # type: ignore[arg-type]
    seen = [(r["observations"][0], r["new_obs"][0], r["truncated"]) for r in found]
    assert seen[:3] == [(0, 1, False), (1, 2, False), (2, 3, True)]


class Open:
    """An environment of dicts that has nothing to let go of."""

    possible_agents: ClassVar[list[str]] = ["a"]
    observation_spaces: ClassVar[dict[str, Any]] = {"a": spaces.Box(-1, 1, (1,), np.float32)}
    action_spaces: ClassVar[dict[str, Any]] = {"a": spaces.Discrete(2)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        return {"a": np.zeros(1, np.float32)}, {}

    def step(self, actions: Mapping[str, Any]) -> Any:
        return *self.reset()[:1], {"a": 1.0}, {"__all__": True}, {"__all__": False}, {}


def test_an_environment_of_dicts_needs_no_close() -> None:
    config = {"env": Open, "multiagent": SHARED, "env_level": "C"}
    PPO.check_config(config)
    sizes = {"num_envs_per_worker": 1, "rollout_fragment_length": 4, "sgd_minibatch_size": 1}
    trainer = PPO({**config, **sizes})
    assert trainer.train()["episodes_total"] > 0
    trainer.stop()


def test_P14_an_agent_that_is_cut_off_without_a_last_observation_is_an_error() -> None:
    steps: Any = [({"a": 1}, {}, GOES_ON, OVER, {})]
    words = r"episode 0: agent 'b' was cut off without a last observation.*no_done_at_end"
    with scripted(steps) as worker, pytest.raises(EnvError, match=words):
        worker.sample()
    with scripted(steps, no_done_at_end=True) as worker:
        found = rows(worker.sample())  # type: ignore[arg-type]
    assert [(r["terminated"], r["truncated"]) for r in found] == [(False, True)]


def test_P14_what_came_before_a_step_that_is_left_out_leads_into_no_other_trajectory() -> None:
    steps: Any = [
        (A | B, {}, GOES_ON, NO_FLAG, {}),
        ({"a": 2}, {}, GOES_ON, {"b": True, **GOES_ON}, {}),
        ({"a": 3, "b": 3}, {}, GOES_ON, NO_FLAG, {}),
        ({"a": 4, "b": 4}, {}, NO_FLAG, OVER, {}),
    ]
    with scripted(steps, no_done_at_end=True) as worker:
        actor = worker.get_policy("shared")
        found = [row for row in rows(worker.sample()) if row["agent_index"] == 1]  # type: ignore[arg-type]
    assert actor is not None
    assert [(row["t"], row["truncated"]) for row in found] == [(0, True), (0, True)]
    for row in found:
        assert np.isclose(row["final_values"], actor.values(row["new_obs"][None])[0], atol=1e-5)


@pytest.mark.parametrize("mode", ["truncate_episodes", "complete_episodes"])
@pytest.mark.parametrize("size", [3, 12])
def test_P14_a_horizon_leaves_out_the_last_decision_of_whose_turn_it_is_not(
    mode: str, size: int
) -> None:
    made = spec("Turns", horizon=6, batch_mode=mode, rollout_fragment_length=size)
    with working(made) as worker:
        actor = worker.get_policy("shared")
        samples = [worker.sample() for _ in range(24 // size)]
    assert actor is not None
    assert all(isinstance(one, MultiAgentBatch) for one in samples)
    found = [row for one in samples if one.policy_batches for row in rows(one)]  # type: ignore[attr-defined, arg-type]
    seen = [(int(row["observations"][0]), float(row["rewards"])) for row in found]
    assert {*seen} == {(0, 11.0), (1, 11.0), (2, 11.0), (3, 11.0), (4, 11.0)}
    assert not any(row["terminated"] for row in found)
    for row in found:
        turn = int(row["observations"][0])
        assert int(row["new_obs"][0]) == turn + 2
        # The player whose turn would be next is cut off where it is, the other one before its last.
        if turn == 4:
            assert row["truncated"]
            following = actor.values(np.full((1, 5), 6.0, np.float32))[0]
            assert np.isclose(row["final_values"], following, atol=1e-5)
        elif turn != 3:
            assert not row["truncated"]
    assert {one.length for sample in samples for one in sample.episodes} == {6}


def test_P14_games_of_turns_are_trained_on_up_to_a_horizon() -> None:
    env = "tests.support.agents:Turns"
    sizes = {"num_envs_per_worker": 2, "rollout_fragment_length": 10, "sgd_minibatch_size": 4}
    trainer = PPO({"env": env, "multiagent": SHARED, "env_level": "C", "horizon": 5, **sizes})
    result = trainer.train()
    trainer.stop()
    assert result["episode_len_mean"] == 5.0


def test_E11_steps_without_any_agent_are_said_once_and_an_episode_of_them_is_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with scripted([({}, {}, GOES_ON, NO_FLAG, {})] * 2, first={}) as worker:
        Dicts.script = [*Dicts.script] * 4
        worker.envs.reset([0])
        worker.sample()
        worker.sample()
    assert sum("without an agent that was asked to act" in one for one in caplog.messages) == 1
    words = r"episode 0: it ended after 1 step\(s\) without an observation"
    ends: Any = ({}, {}, OVER, NO_FLAG, {})
    with scripted([ends], first={}) as worker, pytest.raises(EnvError, match=words):
        worker.sample()


ASKED: list[str] = []


def by_chance(agent: str, rng: np.random.Generator) -> str:
    """One of two policies, noted."""
    ASKED.append(agent)
    return str(rng.choice(["one", "two"]))


def test_W5_the_mapping_is_asked_once_per_agent_and_episode_and_draws_from_a_named_stream() -> None:
    agents = {"policies": {"one": None, "two": None}, "policy_mapping_fn": f"{__name__}:by_chance"}
    steps: Any = [(A | B, {}, GOES_ON, NO_FLAG, {})] * 3 + [(A | B, {}, OVER, NO_FLAG, {})]
    found = []
    for _ in range(2):
        with scripted(steps, agents) as worker:
            ASKED.clear()
            batches = [worker.sample() for _ in range(8)]
            assert ASKED == ["a", "b"] * 8
            found.append([one.episodes[0].agent_rewards for one in batches])
    assert found[0] == found[1]
    played = {tuple(pid for pid, _ in (one or {}).values()) for one in found[0]}
    assert len(played) > 1


def test_P20_an_agent_of_an_unknown_policy_is_named_with_those_that_are_known() -> None:
    made = spec("Dicts")
    lost = replace(made, mapping=lambda agent, rng: "lost")
    with pytest.raises(
        ConfigError,
        match=r"it returned 'lost' for agent 'a' of environment 0, .*; expected one of shared",
    ):
        lost.worker_class(lost)


def count_decisions(worker: AgentsWorker, pid: str, decided: list[tuple[str, int]]) -> None:
    actor = worker.get_policy(pid)
    assert actor is not None
    act = actor.act

    def counted(rows: Any, *more: Any) -> Any:
        decided.append((pid, len(rows)))
        return act(rows, *more)

    actor.act = counted  # type: ignore[method-assign,assignment]


def test_P6_E13_a_tick_is_one_decision_of_each_policy() -> None:
    agents = {
        "policies": {"one": None, "two": None},
        "policy_mapping_fn": {"a": "one", "b": "two", "c": "two"},
    }
    steps: Any = [({"a": 1, "b": 1, "c": 1}, {}, GOES_ON, NO_FLAG, {})] * 4
    everybody = {"a": 0, "b": 0, "c": 0}
    with scripted(steps, agents, everybody, num_envs_per_worker=3) as worker:
        decided: list[tuple[str, int]] = []
        for pid in ("one", "two"):
            count_decisions(worker, pid, decided)
        worker.sample()
    assert decided == [("one", 3), ("two", 6)] * 4


def test_E9_E10_steps_are_counted_by_environments_or_by_agents() -> None:
    steps: Any = [({"a": 1, "b": 1}, {}, GOES_ON, NO_FLAG, {})] * 4
    unused = {
        "policies": {"shared": None, "unused": None},
        "policy_mapping_fn": {"a": "shared", "b": "shared", "c": "shared"},
    }
    with scripted(steps, unused) as worker:
        batch = worker.sample()
    assert isinstance(batch, MultiAgentBatch)
    assert (batch.env_steps, batch.agent_steps(), batch.count) == (4, 8, 4)
    assert not batch.policy_batches["unused"].fragments
    with scripted(steps, {**SHARED, "count_steps_by": "agent_steps"}) as worker:
        batch = worker.sample()
    assert isinstance(batch, MultiAgentBatch)
    assert (batch.env_steps, batch.agent_steps()) == (2, 4)


def test_E10_a_sample_whose_agents_wait_for_what_follows_is_whole() -> None:
    in_turn: Any = [(B, {}, GOES_ON, NO_FLAG, {}), (A, {}, GOES_ON, NO_FLAG, {})] * 2
    with scripted(in_turn, {**SHARED, "count_steps_by": "agent_steps"}, {"a": 0}) as worker:
        batch = worker.sample()
        assert isinstance(batch, MultiAgentBatch)
        assert (batch.counted_steps, batch.agent_steps()) == (
            worker.spec.steps,
            worker.spec.steps - 1,
        )
        assert checked(batch, worker.spec) is batch


class Patient(Targets):
    """Its episodes have 1200 steps."""

    def step(self, actions: Mapping[str, Any]) -> Any:
        self._t += 1
        over = dict.fromkeys(self.agents, self._t == 1200)
        shown, rewards = self._show(), dict.fromkeys(self.agents, 1.0)
        self.agents = [agent for agent in self.agents if not over[agent]]
        return shown, rewards, over, dict.fromkeys(over, False), {}


def test_P8_steps_of_several_agents_that_wait_for_an_episode_are_warned_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config: dict[str, Any] = {
        "env": f"{__name__}:Patient",
        "multiagent": {"policies": ["shared"]},
        "batch_mode": "complete_episodes",
        "rollout_fragment_length": 20,
        "num_envs_per_worker": 1,
        "train_batch_size": 20,
        "sgd_minibatch_size": 20,
    }
    with caplog.at_level("WARNING"):
        trainer = PPO(config)
        for _ in range(2):
            (sample,) = trainer.workers.sample()
        trainer.stop()
    assert sample.count == 1200
    (record,) = [one for one in caplog.records if "unfinished" in one.getMessage()]
    assert "worker 0 holds 1001 steps of 1 unfinished episode(s)" in record.getMessage()

"""What callbacks may ask an episode about its agents, wherever it is played."""

import copy
import itertools
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from tests.support.external import PLAYED, ROLES
from tests.support.trainers import PLAIN, differences, make, run
from tests.support.waiting import wait_until
from trainables import Callbacks
from trainables.algorithms.ppo import PPO
from trainables.algorithms.sac import SAC
from trainables.errors import ConfigError
from trainables.rollout.agents.worker import MultiAgentBatch
from trainables.rollout.episodes.agent_records import AgentRecords

MEMORY: dict[str, Any] = {
    "use_lstm": True,
    "lstm_cell_size": 4,
    "lstm_use_prev_action": True,
    "lstm_use_prev_reward": True,
}
CARTPOLE: dict[str, Any] = {**PLAIN, "env": "CartPole-v1", "observation_filter": "MeanStdFilter"}
SEVERAL: dict[str, Any] = {
    "env": "tests.support.agents:Targets",
    "multiagent": {
        "policies": ["even", "odd"],
        "policy_mapping_fn": {"left": "even", "right": "odd", "brief": "odd"},
    },
    "num_envs_per_worker": 2,
    "rollout_fragment_length": 10,
    "sgd_minibatch_size": 16,
    "evaluation_num_episodes": 2,
}


def test_a_copy_knows_which_agents_have_ended_but_no_outputs() -> None:
    records = AgentRecords()
    records.note_observation("left", np.zeros(2))
    records.note_decision("left", np.array(1), np.ones(3), {"logp": -1.0})
    records.note_end("left")
    copied = copy.deepcopy(records)
    assert copied.get_records()["left"]["is_over"]
    assert copied.last_pi_info_for("left") == {}
    assert records.last_pi_info_for("left") == {"logp": -1.0}


class Asks(Callbacks):
    """Asks at each step, and notes the answers: (in an evaluation, episode, length) → answers."""

    notes: list[dict[str, Any]]

    def __init__(self) -> None:
        self.notes = []

    def on_episode_start(self, *, worker: Any, episode: Any, **more: Any) -> None:
        for agent in episode.get_agents():
            assert episode.last_action_for(agent) == episode.prev_action_for(agent) == 0
            assert episode.last_pi_info_for(agent) == {}
            assert not any(one.any() for one in episode.rnn_state_for(agent))
        self._note(worker, episode)

    def on_episode_step(self, *, worker: Any, episode: Any, **more: Any) -> None:
        self._note(worker, episode)

    def _note(self, worker: Any, episode: Any) -> None:
        asked = ("policy_for", "last_action_for", "prev_action_for", "last_reward_for")
        asked += ("last_raw_obs_for", "last_observation_for", "rnn_state_for", "last_pi_info_for")  # type: ignore[assignment]
        answers = {
            agent: {name: getattr(episode, name)(agent) for name in asked}
            for agent in episode.get_agents()
        }
        NOTES.append((worker.in_evaluation, episode.episode_id, episode.length, answers))


NOTES: list[tuple[bool, str, int, dict[str, Any]]] = []


@pytest.fixture(autouse=True)
def _nothing_noted() -> Iterator[None]:
    NOTES.clear()
    yield
    NOTES.clear()


def noted(in_evaluation: bool, of: str) -> list[dict[str, Any]]:
    """Agent → its answers, at the start of an episode and after each of its steps."""
    return [answers for where, name, _, answers in NOTES if (where, name) == (in_evaluation, of)]


@pytest.mark.parametrize("model", [{}, MEMORY], ids=["no memory", "memory"])
@pytest.mark.parametrize("mode", ["truncate_episodes", "complete_episodes"])
def test_K1_an_episode_knows_what_its_agent_saw_and_did(mode: str, model: dict[str, Any]) -> None:
    trainer = make({**CARTPOLE, "callbacks": Asks, "model": model, "batch_mode": mode})
    (sample,) = trainer.workers.sample()
    first = [one["agent0"] for one in noted(False, "0-0-0")]
    columns = sample.fragments[0].columns
    count = len(first) - 1
    if mode == "complete_episodes":  # the episode that ended first comes first
        ids = [name for _, name, length, _ in NOTES if length == sample.episodes[0].length]
        first = [one["agent0"] for one in noted(False, ids[0])]
        count = sample.episodes[0].length
    assert count > 5
    assert [one["policy_for"] for one in first] == ["default_policy"] * len(first)
    for t in range(count):
        seen, after = first[t], first[t + 1]
        assert after["last_action_for"] == columns["actions"][t, 0]
        assert after["prev_action_for"] == (0 if t == 0 else columns["actions"][t - 1, 0])
        assert after["last_reward_for"] == columns["rewards"][t, 0]
        assert after["last_pi_info_for"]["logp"] == pytest.approx(float(columns["logp"][t, 0]))
        assert after["last_pi_info_for"]["value"] == pytest.approx(float(columns["values"][t, 0]))
        assert seen["last_observation_for"].shape == columns["observations"][t, 0].shape
        if t and model:
            own = np.concatenate(seen["rnn_state_for"][:2])
            assert own.tobytes() == columns["memory"][t, 0].tobytes()
            assert seen["rnn_state_for"][2].tolist() == [seen["last_action_for"], 1.0]
            last = int(seen["last_action_for"])
            assert seen["last_observation_for"][:3].tolist() == [1.0, last == 0, last == 1]
    trainer.stop()


@pytest.mark.parametrize("model", [{}, MEMORY], ids=["no memory", "memory"])
def test_K1_an_episode_of_an_evaluation_knows_as_much(model: dict[str, Any]) -> None:
    trainer = make({**CARTPOLE, "callbacks": Asks, "model": model, "evaluation_num_episodes": 2})
    trainer.train()
    NOTES.clear()
    trainer.evaluate()
    first = [one["agent0"] for one in noted(True, "evaluation-0")]
    assert len(first) > 5
    state: Any = trainer.get_initial_state()
    for seen, after in itertools.pairwise(first):
        assert all(np.array_equal(*both) for both in zip(seen["rnn_state_for"], state, strict=True))
        action, state, fetches = trainer.compute_action(
            seen["last_raw_obs_for"], state, prev_reward=seen["last_reward_for"], full_fetch=True
        )
        assert after["last_action_for"] == action
        assert after["prev_action_for"] == seen["last_action_for"]
        assert after["last_pi_info_for"] == pytest.approx(fetches, rel=1e-4, abs=1e-5)
        if model:
            state[-1][-1] = 1.0  # the reward that came since
    trainer.stop()


def test_K1_an_episode_of_several_agents_knows_each_of_them() -> None:
    trainer = PPO({**SEVERAL, "callbacks": Asks})
    (sample,) = trainer.workers.sample()
    assert isinstance(sample, MultiAgentBatch)
    trainer.train()
    trainer.evaluate()
    for where, name in ((False, "0-0-0"), (True, "evaluation-0")):
        answers = noted(where, name)
        assert [*answers[0]] == ["left", "right", "brief"]
        assert {agent: one["policy_for"] for agent, one in answers[0].items()} == {
            "left": "even",
            "right": "odd",
            "brief": "odd",
        }
        for before, after in itertools.pairwise(answers):
            for agent in before:
                shown = int(before[agent]["last_raw_obs_for"].argmax())
                right = after[agent]["last_action_for"] == shown
                if agent != "brief":
                    assert after[agent]["last_reward_for"] == float(right)
                    assert after[agent]["prev_action_for"] == before[agent]["last_action_for"]
                    assert set(after[agent]["last_pi_info_for"]) == {"logp", "value"}
        # It acts in half of the steps; what it did last stays known.
        assert len({repr(one["brief"]["last_action_for"]) for one in answers[4:9]}) == 1
    trainer.stop()


ASKED: list[str] = []


def drawn(agent: str, rng: np.random.Generator) -> str:
    ASKED.append(agent)
    return "even" if rng.random() < 0.5 else "odd"


class Early(Callbacks):
    """Asks who plays before anybody has appeared, and compares at the end."""

    def on_episode_created(self, *, worker: Any, episode: Any) -> None:
        episode.user_data["early"] = [episode.policy_for(one) for one in ("left", "brief")]

    def on_episode_end(self, *, worker: Any, episode: Any, error: Exception | None) -> None:
        late = [episode.policy_for(one) for one in ("left", "brief")]
        assert late == episode.user_data["early"]
        with pytest.raises(ValueError, match="no agent 'nobody'"):
            episode.policy_for("nobody")


def test_W5_K1_a_callback_that_asks_early_is_told_the_policy_that_the_agent_will_have() -> None:
    several = {**SEVERAL["multiagent"], "policy_mapping_fn": drawn}
    asked, plain = (
        PPO({**SEVERAL, "multiagent": several, "callbacks": one}) for one in (Early, None)
    )
    results: list[list[Any]] = []
    for trainer in (asked, plain):
        ASKED.clear()
        results.append(run(trainer, 2))
        results.append([*ASKED])
        trainer.stop()
    for one in (*results[0], *results[2]):
        del one["config"]
    assert differences(results[0], results[2]) == []
    assert sorted(results[1]) == sorted(results[3])


class Remembers(Callbacks):
    """Counts how often an agent does the same twice in a row."""

    def on_episode_step(self, *, worker: Any, episode: Any) -> None:
        for agent in episode.get_agents():
            same = episode.last_action_for(agent) == episode.prev_action_for(agent)
            episode.custom_metrics["same"] = episode.custom_metrics.get("same", 0) + int(same)
            state = sum(float(part.sum()) for part in episode.rnn_state_for(agent))
            episode.custom_metrics["state"] = state + episode.prev_reward_for(agent)


@pytest.mark.parametrize("config", [CARTPOLE, SEVERAL], ids=["alone", "several"])
def test_K1_what_an_episode_knows_of_its_agents_comes_back_with_the_checkpoint(
    config: dict[str, Any],
) -> None:
    made = {**config, "callbacks": Remembers, "model": MEMORY, "rollout_fragment_length": 7}
    made |= {"seed": 3, "train_batch_size": None, "sgd_minibatch_size": 7}
    first, other = PPO(made), PPO(made)
    run(first, 1)
    state = first.get_state()
    expected = run(first, 3)
    other.set_state(state)
    assert differences(run(other, 3), expected) == []
    assert any(
        one["custom_metrics"]["same_mean"] > 0 for one in expected if "custom_metrics" in one
    )
    first.stop()
    other.stop()


def test_K1_actions_are_as_the_policy_chose_them_and_algorithms_may_say_nothing_of_them() -> None:
    asked: list[Any] = []

    def step(told: dict[str, Any]) -> None:
        episode = told["episode"]
        asked.append((episode.last_action_for(), episode.last_pi_info_for()))

    config = {"env": "Pendulum-v1", "learning_starts": 10, "rollout_fragment_length": 10}
    trainer = SAC({**config, "callbacks": {"on_episode_step": step}})
    trainer.train()
    trainer.stop()
    assert {action.shape for action, _ in asked} == {(1,)}
    assert {action.dtype for action, _ in asked} == {np.dtype(np.float32)}
    assert [said for _, said in asked] == [{}] * len(asked)


@pytest.mark.parametrize("config", [CARTPOLE, SEVERAL], ids=["alone", "several"])
def test_K1_callbacks_are_given_the_environments_and_the_policies(config: dict[str, Any]) -> None:
    told: list[dict[str, Any]] = []
    phases = [f"on_episode_{one}" for one in ("created", "start", "step", "end")]
    trainer = PPO({**config, "callbacks": dict.fromkeys(phases, told.append)})
    names = {"worker", "base_env", "env", "policies", "policy", "episode", "env_index"}
    trainer.train()
    count = len(told)
    trainer.evaluate()
    assert len(told) > count > 10
    for one in told:
        assert set(one) - {"error"} == names
        assert one["env"] is one["base_env"]
        assert one["policy"] is one["policies"]
        environments = one["base_env"].get_sub_environments()
        assert environments == one["base_env"].get_unwrapped()
        assert one["base_env"].num_envs == len(environments)
        assert environments[one["env_index"]] is environments[one["episode"].env_index]
        assert one["worker"].get_policy(next(iter(one["policies"]))) in one["policies"].values()
    assert {one["base_env"].num_envs for one in told[:count]} == {2}
    assert {one["base_env"].num_envs for one in told[count:]} == {1}
    pids = {"even", "odd"} if config is SEVERAL else {"default_policy"}
    assert {tuple(one["policies"]) for one in told} == {tuple(sorted(pids))}
    trainer.stop()


class Classic(Callbacks):
    """As a class for RLlib is written."""

    seen: list[Any]

    def on_episode_start(  # type: ignore[override]  # asks for more than the base class names
        self, worker: Any, base_env: Any, policies: Any, episode: Any, **kwargs: Any
    ) -> None:
        assert "env_index" in kwargs
        episode.user_data["space"] = base_env.get_sub_environments()[0].action_space.n
        assert isinstance(base_env.get_sub_environments()[0].action_space, spaces.Discrete)

    def on_episode_end(self, worker, base_env, policies, episode, env_index):  # type: ignore[no-untyped-def, override]
        episode.custom_metrics["policies"] = len(policies) + env_index


class Needs(Callbacks):
    """Needs what is not given."""

    def on_episode_step(self, *, worker: Any, episode: Any, weather: Any) -> None:  # type: ignore[override]
        """Nothing."""


def test_K1_methods_take_the_facts_that_they_have_parameters_for() -> None:
    trainer = make({**CARTPOLE, "callbacks": Classic, "rollout_fragment_length": 48})
    result = trainer.train()
    assert result["custom_metrics"]["policies_max"] == 2.0
    trainer.stop()
    with pytest.raises(ConfigError, match=r"Needs.on_episode_step needs weather"):
        PPO.check_config({"env": "CartPole-v1", "callbacks": Needs})


class Pieces(Callbacks):
    """Looks at the pieces of episodes in the trainer's process."""

    def on_postprocess_traj(self, *, episode: Any, post_batch: Any, **told: Any) -> None:
        with pytest.raises(ValueError, match="known only while its episode is played"):
            episode.rnn_state_for()
        assert episode.last_action_for() == post_batch["actions"][-1]
        episode.custom_metrics["asked"] = 1


@pytest.mark.parametrize("num_workers", [0, 1])
def test_P16_pieces_of_episodes_know_what_was_done_and_not_who_plays(num_workers: int) -> None:
    config = {**CARTPOLE, "callbacks": Pieces, "rollout_fragment_length": 48}
    trainer = make({**config, "train_batch_size": None, "num_workers": num_workers})
    assert trainer.train()["custom_metrics"]["asked_min"] == 1
    trainer.stop()


@pytest.mark.parametrize("env", ["Counting", "Roles"])
def test_K1_episodes_of_environments_that_call_know_their_agents(env: str) -> None:
    several = {"policies": ["even", "odd"], "policy_mapping_fn": {"a": "even"}}
    several["policy_mapping_fn"] |= dict.fromkeys(("b", "c"), "odd")  # type: ignore[operator]
    more = {"multiagent": several} if env == "Roles" else {}
    PLAYED.clear()
    ROLES.clear()
    config = {"env": f"tests.support.external:{env}", "rollout_fragment_length": 48}
    before = set(threading.enumerate())
    trainer = PPO(
        {**config, "train_batch_size": 48, "sgd_minibatch_size": 12, **more, "callbacks": Asks}
    )
    trainer.train()
    players = set(threading.enumerate()) - before
    trainer.stop()
    wait_until(lambda: not any(one.is_alive() for one in players))  # all is written down then
    steps = 0
    newest = {name: length for _, name, length, _ in NOTES}
    for _, name, length, answers in NOTES:
        number = int(name.split()[-1])
        for agent, one in answers.items():
            policy = "default_policy" if not more else {"a": "even"}.get(agent, "odd")
            assert one["policy_for"] == policy
            if not length or more or length > len(PLAYED[name]):
                continue  # a thread that is ended in its step does not record it
            _, action, reward = PLAYED[name][length - 1]
            assert one["last_action_for"] == action
            assert one["last_reward_for"] == pytest.approx(reward)
            steps += 1
        recorded = len(ROLES.get((number, "a"), ()))  # a acts in every step
        if not more or not length or (length == newest[name] and recorded < length):
            continue
        for agent, one in answers.items():
            done = [did[1] for did in ROLES[number, agent]]
            begins = {"a": 0, "b": 0, "c": 2}[agent]
            assert one["last_action_for"] in (done if length > begins else [0])
            steps += 1
    assert steps >= 40


def test_K1_episodes_of_environments_that_are_polled_know_their_agents() -> None:
    polled = {"remote_worker_envs": True, "remote_env_batch_wait_ms": 1.0, "env_level": "C"}
    trainer = make({**CARTPOLE, **polled, "callbacks": Asks})
    (sample,) = trainer.workers.sample()
    for env_index in (0, 1):
        answers = [one["agent0"] for one in noted(False, f"0-{env_index}-0")]
        for t, after in enumerate(answers[1:]):
            assert after["last_action_for"] == sample.fragments[0].actions[t, env_index]
    trainer.stop()

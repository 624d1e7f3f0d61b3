"""A rollout worker by itself: an environment, policies written by hand, and batches."""

import copy
import re
import runpy
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from tests.support.agents import Targets
from tests.support.environments import Counting
from tests.support.external import CartPole
from trainables import PolicyEvaluator, RolloutWorker
from trainables.algorithms.ppo import PPO
from trainables.envs.make import checked_spaces
from trainables.errors import ConfigError, WorkerError
from trainables.policies.acting.inference import InferencePolicy
from trainables.rollout.agents.worker import MultiAgentBatch

PAGE = (Path(__file__).parents[3] / "docs/rollouts.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^```python\n# (\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))


class Draws:
    """Draws actions from its space, as the first example of every classic trainer does."""

    def __init__(self, observation_space: Any, action_space: Any, config: Any) -> None:
        self.observation_space, self.action_space = observation_space, action_space
        self.config = config

    def compute_actions(
        self,
        obs_batch: Any,
        state_batches: Any,
        prev_action_batch: Any = None,
        prev_reward_batch: Any = None,
        info_batch: Any = None,
        episodes: Any = None,
        **kwargs: Any,
    ) -> Any:
        assert kwargs == {"explore": True, "timestep": 0}
        assert obs_batch.shape[1:] == self.observation_space.shape
        drawn = [self.action_space.sample() for _ in obs_batch]
        return drawn, [], {"action_prob": np.full(len(obs_batch), self.config.get("prob", 0.5))}


class Counts:
    """Answers with the number of the step, modulo 3, which it carries in its state."""

    def __init__(self, *_: Any) -> None:
        pass

    def get_initial_state(self) -> Any:
        return [np.zeros(2), np.zeros((1, 3))]

    def compute_actions(self, obs_batch: Any, state_batches: Any) -> Any:
        steps, other = state_batches
        assert other.shape == (len(obs_batch), 1, 3)
        assert (steps[:, 0] == obs_batch[:, 0]).all()
        return 1 + steps[:, 1].astype(int) % 3, [steps + 1, other], None


def cartpole(config: Any) -> Any:
    return gymnasium.make("CartPole-v1", **config)


def test_W20_a_worker_is_made_of_an_environment_and_a_policy_class() -> None:
    worker = RolloutWorker(env_creator=cartpole, policy=Draws, rollout_fragment_length=40)
    first = worker.sample()
    seen = first["observations"].copy()
    assert first.count == 40
    assert seen.shape == (40, 4)
    assert set(first["actions"].tolist()) == {0, 1}
    assert (first["action_prob"] == 0.5).all()
    assert worker.sample().count == 40
    assert first["observations"].tobytes() == seen.tobytes()  # no buffer of the worker
    assert RolloutWorker.current() is worker
    worker.close()


def test_W20_its_older_name_makes_the_same_worker() -> None:
    made = [
        PolicyEvaluator(env_creator=cartpole, policy_graph=Draws, rollout_fragment_length=30),
        RolloutWorker(cartpole, (Draws, None, None, {"prob": 0.5}), rollout_fragment_length=30),
        RolloutWorker(
            cartpole, Draws, policy_config={"prob": 0.25}, rollout_fragment_length=30, seed=1
        ),
    ]
    one, same, other = (next(worker) for worker in made)
    for name in ("observations", "actions", "rewards", "terminated", "action_prob"):
        assert one[name].tobytes() == same[name].tobytes()
    assert one["observations"].tobytes() != other["observations"].tobytes()
    assert (other["action_prob"] == 0.25).all()
    for worker in made:
        worker.close()


def test_W20_policies_by_name_play_the_agents_that_the_mapping_gives_them() -> None:
    shown = spaces.Discrete(3)
    worker = RolloutWorker(
        env_creator=lambda _: Targets(),
        policy={
            "brief": Draws,
            "both": (Draws, shown, shown, {"prob": 0.75}),
            "nobody": (Draws, shown, shown, {}),
        },
        policy_mapping_fn=lambda agent: "brief" if agent == "brief" else "both",
        policy_config={"prob": 0.25},
        rollout_fragment_length=16,
    )
    batch: Any = worker.sample()
    assert isinstance(batch, MultiAgentBatch)
    assert batch.env_steps == 16
    assert {
        name: len(one["actions"])
        for name, one in batch.policy_batches.items()
        if one.count and one.fragments
    } == {"brief": 8, "both": 32}
    assert {name: set(batch[name]["action_prob"]) for name in ("brief", "both")} == {
        "brief": {0.25},
        "both": {0.75},
    }
    assert worker.get_policy("nobody") is not None
    worker.close()


def test_W20_a_policy_carries_a_state_and_acts_in_the_environments_own_numbers() -> None:
    worker = RolloutWorker(
        lambda _: Counting(length=4), Counts, num_envs_per_worker=2, rollout_fragment_length=12
    )
    batch = worker.sample()
    assert worker.foreach_env(lambda env: [int(one) for one in env.sent]) == [[1, 2, 3, 1] * 3] * 2
    assert batch.fragments[0].actions[:, 0].tolist() == [0, 1, 2, 0] * 3
    state = worker.get_state()
    after = worker.sample()
    worker.set_state(state)
    assert worker.sample()["actions"].tobytes() == after["actions"].tobytes()
    worker.close()


def test_W20_settings_and_callbacks_are_those_of_trainers() -> None:
    ends: list[Any] = []

    def end(told: dict[str, Any]) -> None:
        episode = told["episode"]
        ends.append((episode.length, episode.last_pi_info_for(), list(told["policies"])))

    worker = RolloutWorker(
        cartpole,
        Draws,
        env_config={"max_episode_steps": 7},
        batch_mode="complete_episodes",
        rollout_fragment_length=10,
        observation_filter="MeanStdFilter",
        columns={"new_obs"},
        callbacks={"on_episode_end": end},
    )
    batch = worker.sample()
    assert batch.count == 14
    assert batch["new_obs"].shape == (14, 4)
    assert ends == [(7, {"action_prob": 0.5}, ["default_policy"])] * 2
    assert [one.length for one in worker.get_metrics()[0]] == [7, 7]
    worker.close()


def test_W20_a_policy_that_learns_plays_by_its_actor() -> None:
    trainer = PPO(
        {
            "env": "CartPole-v1",
            "rollout_fragment_length": 20,
            "train_batch_size": 20,
            "sgd_minibatch_size": 20,
        }
    )
    worker = RolloutWorker(cartpole, lambda *_: trainer.policy, rollout_fragment_length=20)
    batch = worker.sample()
    acted = worker.get_policy()
    assert acted is not None
    values = acted.values(batch["observations"])
    assert values == pytest.approx(trainer.inference.actor.values(batch["observations"]))
    assert batch["values"] == pytest.approx(values, rel=1e-4)
    worker.close()
    trainer.stop()


class LogsChoices(Draws):
    """Takes action 1 and returns a log-probability, as the learning policies do."""

    def compute_actions(self, obs_batch: Any, *_: Any, **more: Any) -> Any:
        return np.ones(len(obs_batch), int), [], {"logp": np.zeros(len(obs_batch))}


def test_a_policy_by_hand_has_no_likelihoods_of_given_actions_and_can_be_copied() -> None:
    worker = RolloutWorker(cartpole, LogsChoices, rollout_fragment_length=5)
    assert (worker.sample()["logp"] == 0.0).all()
    actor = copy.deepcopy(worker.get_policy())
    assert actor is not None
    rows, memory = np.zeros((2, 4), np.float32), actor.initial_memory(2)
    with pytest.raises(ConfigError, match=r"policy: LogsChoices .*make_actor\(\)"):
        actor.likelihood(rows, memory, np.ones(2, int))
    noted: list[Any] = []
    spaces_ = checked_spaces(worker.spec.environment, *worker.envs.own_spaces)
    plays = InferencePolicy(actor, spaces_, worker._sampler.connectors)
    plays.act_each(rows, memory, [None] * 2, lambda *decision: noted.append(decision))
    assert [(int(action), outputs()) for _, _, action, _, outputs in noted] == [(1, {})] * 2
    worker.close()


class Odd(Draws):
    """Gives what is named in its settings."""

    def compute_actions(self, obs_batch: Any, state_batches: Any, **more: Any) -> Any:  # type: ignore[override]
        return {
            "few": ([], [], {}),
            "alone": [0],
            "states": ([0], [np.zeros(1)], {}),
            "rows": ([0], [], {"odd": np.zeros(2)}),
        }[self.config["gives"]]


class NonZero(Draws):
    """Begins with ones."""

    def get_initial_state(self) -> Any:
        return [np.ones(2)]


@pytest.mark.parametrize(
    ("gives", "words"),
    [
        ("few", "Odd.compute_actions returned 0 actions for 1 observations"),
        ("alone", "not .actions, state_outs, extra_fetches."),
        ("states", "returned 1 states, but get_initial_state"),
        ("rows", "returned odd with another number of rows than 1"),
    ],
)
def test_W20_what_a_policy_gives_is_checked(gives: str, words: str) -> None:
    with pytest.raises(WorkerError, match=words):
        RolloutWorker(cartpole, Odd, policy_config={"gives": gives})


class Fickle(Counts):
    """Has a further output in every other call, and its states in one array."""

    calls = 0

    def get_initial_state(self) -> Any:
        return [np.zeros(2)]

    def compute_actions(self, obs_batch: Any, state_batches: Any) -> Any:
        self.calls += 1
        said = {"odd": np.ones(len(obs_batch))} if self.calls % 2 else {}
        return np.zeros(len(obs_batch), int), np.stack(state_batches), said


def test_W20_an_output_that_comes_and_goes_is_refused() -> None:
    worker = RolloutWorker(cartpole, Fickle, rollout_fragment_length=4)
    with pytest.raises(WorkerError, match="further outputs none; in the first call, they were odd"):
        worker.sample()
    worker.close()


def test_W20_states_may_come_in_one_array() -> None:
    worker = RolloutWorker(cartpole, Fickle, rollout_fragment_length=1)
    assert (worker.sample()["memory"] == 0.0).all()
    worker.close()


@pytest.mark.parametrize(
    ("policy", "more", "words"),
    [
        (object, {}, "policy: .* raised TypeError"),
        (lambda *_: 3, {}, "returned an int"),
        (7, {}, "policy: 7 is not allowed"),
        ({"a": Draws}, {}, "has one agent"),
        (NonZero, {}, "zeros"),
        (Draws, {"batch_steps": 5}, "rollout_fragment_length"),
        (Draws, {"lr": 5}, "lr: is not a setting"),
        (Draws, {"callbacks": {"on_train_result": print}}, "which does not learn"),
        (Draws, {"horizon": 600}, "horizon"),
    ],
)
def test_W20_what_cannot_be_is_refused(policy: Any, more: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        RolloutWorker(cartpole, policy, **more)


@pytest.mark.parametrize("place", ["observation_space", "action_space"])
def test_a_policy_for_one_agent_has_the_environments_spaces(place: str) -> None:
    env = cartpole({})
    its = {"observation_space": env.observation_space, "action_space": env.action_space}
    RolloutWorker(cartpole, (Draws, *its.values())).close()
    other = {**its, place: spaces.Discrete(7)}
    with pytest.raises(
        ConfigError, match=rf"policy\.{place}: Discrete\(7\) differs from the environment's"
    ):
        RolloutWorker(cartpole, (Draws, *other.values()))


@pytest.mark.parametrize("place", [1, 2])
def test_a_policy_with_one_space_of_its_own_gets_the_other_of_its_agent(place: int) -> None:
    def made(size: int) -> RolloutWorker:
        own = [Draws, None, None]
        own[place] = spaces.Discrete(size)  # type: ignore[call-overload]
        return RolloutWorker(lambda _: Targets(), {"a": own}, rollout_fragment_length=8)

    fits = made(3)
    assert fits.sample().env_steps == 8  # type: ignore[attr-defined]
    fits.close()
    with pytest.raises(ConfigError, match=r"it returned 'a', with .*Discrete\(4\)"):
        made(4)


def test_W20_what_several_policies_cannot_be_is_refused() -> None:
    made: dict[str, Any] = {"env_creator": lambda _: Targets()}
    with pytest.raises(
        ConfigError, match="sample_async: true cannot be used with several policies"
    ):
        RolloutWorker(**made, policy={"a": Draws}, sample_async=True)
    with pytest.raises(ConfigError, match="no agent has the policy"):
        RolloutWorker(**made, policy={"a": Draws, "b": Draws}, policy_mapping_fn=lambda _: "a")
    alone = {"a": Draws, "b": (Draws, spaces.Discrete(3))}
    with pytest.raises(ConfigError, match="one space alone is given"):
        RolloutWorker(**made, policy=alone, policy_mapping_fn=lambda _: "a")
    with pytest.raises(ConfigError, match="multiagent"):
        RolloutWorker(**made, policy=Draws)
    with pytest.raises(ConfigError, match="calls the trainer"):
        RolloutWorker(CartPole, Draws)


@pytest.mark.parametrize("name", FILES)
def test_W20_the_examples_of_the_page_run(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if name == "agents.py":
        pytest.importorskip("mpe2")
    (tmp_path / name).write_text(FILES[name])
    ran = runpy.run_path(str(tmp_path / name))
    out = capsys.readouterr().out
    if name == "alone.py":
        assert out.startswith("500 (500, 4) (500,)\n")
        assert max(one.length for one in ran["episodes"]) > 100  # a policy that draws has some 20
    else:
        assert out == "{'first': 50, 'others': 100}\n"

"""Environments of several agents that call the trainer: each transition comes once, as it was."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from gymnasium import spaces

from tests.support.external import AGENTS, BOX, ROLES, Counting, Roles, note_lost_episodes, seen_by
from tests.support.trainers import only_worker
from tests.support.waiting import Deadline, wait_until
from trainables.algorithms.dqn import DQN
from trainables.algorithms.ppo import PPO
from trainables.envs.external import EpisodeError, EpisodeLost, ExternalEnv
from trainables.errors import ConfigError, EnvError
from trainables.rollout.agents.worker import MultiAgentBatch
from trainables.rollout.callbacks import Callbacks
from trainables.trainer.trainer import Trainer

HERE = "tests.support.external"
TWO = {
    "policies": {"first": None, "rest": None},
    "policy_mapping_fn": "tests.trainables.rollout.test_external_agents:of",
}
SMALL: dict[str, Any] = {
    "train_batch_size": 48,
    "rollout_fragment_length": 48,
    "num_envs_per_worker": 1,
    "model": {"hidden": [8]},
    "sgd_minibatch_size": 16,
    "num_sgd_iter": 1,
    "external_timeout_s": 60.0,
}


def of(agent: str) -> str:
    return "first" if agent == "a" else "rest"


@pytest.fixture(autouse=True)
def nothing_played() -> None:
    ROLES.clear()


@contextmanager
def ppo(env: Any = f"{HERE}:Roles", agents: Mapping[str, Any] = TWO, **more: Any) -> Iterator[PPO]:
    trainer = PPO({"env": env, "multiagent": agents, **SMALL, **more})
    try:
        yield trainer
    finally:
        trainer.stop()


def sampled(trainer: Trainer, times: int = 1) -> list[MultiAgentBatch]:
    worker = only_worker(trainer)
    samples = [worker.sample() for _ in range(times)]
    return [one for one in samples if isinstance(one, MultiAgentBatch)]


def rows_of(
    samples: list[MultiAgentBatch], values: Callable[..., Any] | None = None
) -> dict[Any, list[Any]]:
    """(episode, agent, step) → action, rewards and end; each once, in its policy's fragments."""
    found: dict[Any, list[Any]] = {}
    both = [
        (pid, f) for one in samples for pid, b in one.policy_batches.items() for f in b.fragments
    ]
    for pid, fragment in both:
        ended = fragment.terminated | fragment.truncated
        for t, lane in np.argwhere(~fragment.autoreset):
            episode, step = (int(one * 128) for one in fragment.observations[t, lane][:2])
            agent = AGENTS[int(fragment.observations[t, lane][2])]
            key = episode, agent, step
            assert key not in found, f"{key} came twice"
            assert pid == of(agent)
            end = "truncated" if fragment.truncated[t, lane] else "goes on"
            end = "terminated" if fragment.terminated[t, lane] else end
            if t and not fragment.autoreset[t - 1, lane] and not ended[t - 1, lane]:
                before = fragment.observations[t - 1, lane] * 128
                assert (int(before[0]), before[2]) == (episode, 128 * AGENTS.index(agent))
                assert int(before[1]) < step
            found[key] = [int(fragment.actions[t, lane]), float(fragment.rewards[t, lane]), end]
    return found


@pytest.mark.parametrize(
    ("mode", "counted", "logs"),
    [
        ("truncate_episodes", "env_steps", False),
        ("truncate_episodes", "agent_steps", True),
        ("complete_episodes", "env_steps", True),
        ("complete_episodes", "agent_steps", False),
    ],
)
def test_P21_each_transition_of_each_agent_comes_once_and_as_it_was(
    mode: str, counted: str, logs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Roles, "logs", logs)
    monkeypatch.setattr(Roles, "cuts", True)
    agents = {**TWO, "count_steps_by": counted}
    with ppo(agents=agents, batch_mode=mode) as trainer:
        samples = sampled(trainer, 5)
        assert trainer.exactness == "D not bit-exact"
    rows = rows_of(samples)
    for (episode, agent, step), (action, reward, end) in rows.items():
        played = {int(one[0][1] * 128): one for one in ROLES[episode, agent]}
        assert action == played[step][1]
        assert reward == pytest.approx(played[step][2])
        assert end == played[step][3]
    steps = [one.agent_steps() if counted == "agent_steps" else one.env_steps for one in samples]
    assert all(one >= 48 for one in steps)
    assert len(rows) == sum(one.agent_steps() for one in samples)
    ended = [one for sample in samples for one in sample.episodes]
    of_a = [episode for episode, agent, step in rows if agent == "a" and step == 6 + episode % 3]
    assert len(ended) == len(of_a) > 3
    if mode == "complete_episodes":
        whole = {
            (n, a, int(one[0][1] * 128)) for (n, a), of in ROLES.items() for one in of if n in of_a
        }
        assert set(rows) == whole
    sums = {sum(one[2] for one in ROLES[n, "a"]) for n in of_a}
    rewards = [one.agent_rewards or {} for one in ended]
    assert {round(one["a"][1], 3) for one in rewards} == {round(one, 3) for one in sums}
    assert {one["c"][0] for one in rewards} == {"rest"}


def test_P6_one_batched_decision_is_made_per_policy_and_tick() -> None:
    with ppo() as trainer:
        worker: Any = trainer.workers.local_worker()
        decided: dict[str, list[int]] = {"first": [], "rest": []}

        def counting(pid: str, act: Callable[..., Any]) -> Callable[..., Any]:
            def counted(rows: Any, *more: Any) -> Any:
                decided[pid].append(len(rows))
                return act(rows, *more)

            return counted

        ticks: list[Any] = []
        for pid, actor in worker._actor.items():
            actor.act = counting(pid, actor.act)
        poll = worker.envs.base.poll

        def counted_poll() -> Any:
            ticks.append(poll())
            return ticks[-1]

        worker.envs.base.poll = counted_poll
        sampled(trainer, 3)
    for counts in decided.values():
        assert len(counts) <= len(ticks)
        assert max(counts) > 1


def test_P21_values_are_those_of_what_followed() -> None:
    with ppo() as trainer:
        batch = sampled(trainer)[0]
        values = {pid: one.inference.actor.values for pid, one in trainer.members.items()}
    goes_on = 0
    for pid, share in batch.policy_batches.items():
        (fragment,) = share.fragments
        last = len(fragment.valid) - 1
        for lane in np.flatnonzero(~fragment.autoreset[last]):
            if fragment.terminated[last, lane]:
                continue
            episode, step = (int(one * 128) for one in fragment.observations[last, lane][:2])
            agent = AGENTS[int(fragment.observations[last, lane][2])]
            after = step + (3 if agent == "b" else 1)
            following = values[pid](seen_by(agent, episode, after)[None])
            assert fragment.last_values[0, lane] == pytest.approx(following[0], abs=1e-6)
            goes_on += 1
    assert goes_on


@pytest.mark.parametrize("algorithm", [PPO, DQN])
def test_P21_policies_learn_and_are_counted_by_name(algorithm: type[Trainer]) -> None:
    more = {} if algorithm is PPO else {"learning_starts": 40}
    plain = {key: one for key, one in SMALL.items() if algorithm is PPO or "sgd" not in key}
    trainer = algorithm({"env": f"{HERE}:Roles", "multiagent": TWO, **plain, **more})
    try:
        before = trainer.get_weights()
        result = [trainer.train() for _ in range(3)][-1]
        after = trainer.get_weights()
    finally:
        trainer.stop()
    for pid in ("first", "rest"):
        assert any(not np.array_equal(one, after[pid][name]) for name, one in before[pid].items())
    assert result["policy_reward_mean"].keys() == {"first", "rest"}


# ---- callbacks -----------------------------------------------------------------------------------


class Noting(Callbacks):
    """Counts the phases of each episode, and puts a picture, a number and a list into it."""

    def on_episode_created(self, *, worker: Any, episode: Any) -> None:
        episode.user_data["phases"] = ["created"]

    def on_episode_start(self, *, worker: Any, episode: Any) -> None:
        assert episode.length == 0
        assert episode.last_observation is not None
        episode.user_data["phases"].append("start")
        episode.hist_data["rewards"] = []

    def on_episode_step(self, *, worker: Any, episode: Any) -> None:
        episode.user_data["phases"].append("step")
        episode.hist_data["rewards"].append(episode.total_reward)

    def on_episode_end(self, *, worker: Any, episode: Any, error: Exception | None) -> None:
        phases = episode.user_data["phases"]
        assert phases == ["created", "start", *["step"] * episode.length]
        assert worker.in_evaluation is False
        episode.custom_metrics["steps"] = len(phases) - 2
        episode.custom_metrics["number"] = int(episode.episode_id.split()[-1])
        episode.custom_metrics["agents"] = len(episode.agent_rewards)
        episode.media["last"] = np.full((4, 4, 3), 7, dtype=np.uint8)
        self.ends.append((episode.episode_id, error))

    def __init__(self) -> None:
        self.ends: list[Any] = []


@pytest.mark.parametrize("env", ["Counting", "Roles"])
def test_E8_P16_callbacks_of_episodes_are_called_in_environments_that_call(
    env: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    agents = {"multiagent": TWO} if env == "Roles" else {}
    trainer = PPO({"env": f"{HERE}:{env}", **SMALL, **agents, "callbacks": Noting})
    try:
        worker = only_worker(trainer)
        sample = worker.sample()
        result = trainer.train()
    finally:
        trainer.stop()
    assert sample.episodes
    for one in sample.episodes:
        custom = one.custom_metrics or {}
        assert custom["steps"] == one.length == 7 + int(custom["number"]) % 3
        assert custom["agents"] == (3 if env == "Roles" else 0)
        assert (one.hist_data or {})["rewards"][-1] == pytest.approx(one.total_reward)
        assert (one.media or {})["last"].shape == (4, 4, 3)
    assert result["custom_metrics"]["steps_mean"] >= 7
    assert result["media"]["last"].endswith(".png")


def test_E8_the_end_of_an_episode_that_is_lost_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    # No other episode has this number, however many a quick machine plays in the meantime.
    def silently(self: Counting, which: int) -> Iterator[int]:
        self.start_episode("silent -900")
        self.get_action("silent -900", {"a": seen_by("a", -900, 0), "b": seen_by("b", -900, 0)})
        self.log_returns("silent -900", {"a": 1.0, "b": 1.0})
        self.get_action("silent -900", {"a": seen_by("a", -900, 1)})
        yield from range(10**9)

    for name, value in (("episode_timeout_s", 3.0), ("threads", 1), ("_numbers", silently)):
        monkeypatch.setattr(Roles, name, value)
    with ppo(callbacks=Noting) as trainer:
        samples = sampled(trainer, 2)
        deadline = Deadline()
        while deadline.waits(not any(e.faulty for sample in samples for e in sample.episodes)):
            samples += sampled(trainer)
        (watch,) = [trainer.workers.local_worker()._sampler.watch]  # type: ignore[union-attr]
        errors = [error for _, error in watch._calls._own.ends if error is not None]
    assert len(errors) == 1
    assert isinstance(errors[0], EpisodeLost)
    assert "it was silent" in str(errors[0])
    rows = rows_of(samples)
    assert rows[-900, "a", 0][2] in ("truncated", "goes on")  # it is known what followed
    assert (-900, "b", 0) not in rows
    assert (-900, "a", 1) not in rows


# ---- what goes wrong -----------------------------------------------------------------------------


NOW = seen_by("a", 0, 1)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (
            lambda env: env.get_action("first", {"z": NOW}),
            "episode 'first', agent 'z': observation of an unknown agent; the agents are 'a', 'b', "
            "'c'",
        ),
        (
            lambda env: (
                env.log_returns("first", {"a": 1.0}, None, {"a": True}),
                env.get_action("first", {"a": NOW}),
            ),
            "episode 'first', agent 'a': this agent has ended, so it cannot act again",
        ),
        (
            lambda env: env.log_returns("first", {"a": 1.0, "b": 1.0}),
            "episode 'first', agent 'b': a reward was given for an agent that has not acted",
        ),
        (
            lambda env: env.log_returns("first", {}, None, {"b": True}),
            "episode 'first', agent 'b': an end was given for an agent that has not acted",
        ),
        (
            lambda env: env.log_returns("first", {"a": float("nan")}),
            "episode 'first', agent 'a': the reward nan is not a number",
        ),
        (
            lambda env: env.log_returns("first", 1.0),
            "episode 'first': reward 1.0 is not a dict with agents as keys; the agents are 'a', "
            "'b', 'c'",
        ),
        (
            lambda env: env.log_returns("first", {}, None, {"__all__": True}),
            "episode 'first': multiagent_done_dict ends the episode for single agents",
        ),
        (
            lambda env: env.log_returns("first", {}, {"a": 3}),
            "episode 'first', agent 'a': info 3 is not a dict",
        ),
        (
            lambda env: env.end_episode("first", {}, truncated=True),
            "episode 'first', agent 'a': the episode is truncated, so the last observation",
        ),
        (
            lambda env: env.get_action("first", {}),
            "episode 'first': the call has no agent's observation",
        ),
        (
            lambda env: env.log_action("first", {"a": NOW, "b": NOW}, {"a": 1}),
            "episode 'first', agent 'b': one call must contain actions and observations",
        ),
        (
            lambda env: env.log_action("first", {"a": NOW}, {"a": 7}),
            "episode 'first', agent 'a': action 7 is not in Discrete(3)",
        ),
        (
            lambda env: env.get_action("first", {"a": np.zeros(4, np.float32)}),
            "episode 'first', agent 'a': observation has shape (4,) and dtype float32; expected",
        ),
    ],
)  # fmt: skip
def test_P21_what_agents_cannot_do_is_said_in_one_line(what: Any, said: str) -> None:
    env = Roles()
    env.start_episode("first")
    env.ask("first", {"a": seen_by("a", 0, 0)})
    with pytest.raises(EpisodeError) as raised:
        what(env)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_P21_what_agents_cannot_do_ends_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def acts_after_its_end(self: Roles, number: int) -> None:
        self.start_episode("first")
        for _ in range(2):
            self.get_action("first", {"a": NOW})
            self.log_returns("first", {"a": 1.0}, None, {"a": True})

    monkeypatch.setattr(Roles, "play", acts_after_its_end)
    monkeypatch.setattr(Roles, "threads", 1)
    with (
        ppo() as trainer,
        pytest.raises(EnvError, match="'first', agent 'a': this agent has ended, so"),
    ):
        trainer.train()


def test_one_agent_has_no_dict_of_ends() -> None:
    env = Counting()
    env.start_episode("one")
    with pytest.raises(EnvError, match="'one': multiagent_done_dict"):
        env.log_returns("one", 1.0, None, {"agent0": True})


def test_an_unknown_policy_is_said_with_its_agent() -> None:
    with ppo() as trainer:
        worker = only_worker(trainer)
        worker._sampler._mapper = lambda agent, episode: "nobody"
        with pytest.raises(ConfigError, match=r"'nobody'.*agent '[abc]'"):
            trainer.train()


# ---- coming and going ----------------------------------------------------------------------------


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Why episodes were lost, of players that begin another one."""
    return note_lost_episodes(Roles, monkeypatch)


def all_wait(env: Roles) -> bool:
    """Whether every player waits for an action."""
    with env._lock:
        waiting = [one for one in env._episodes.values() if one.pending]
    return len(waiting) == env.threads


def test_P21_a_restore_loses_running_episodes_and_goes_on(patient: list[str]) -> None:
    with ppo() as trainer:
        trainer.train()
        saved = trainer.save_to_object()
        weights = trainer.get_weights()
        trainer.train()
        trainer.restore_from_object(saved)
        for pid, one in trainer.get_weights().items():
            assert all(np.array_equal(one[name], weights[pid][name]) for name in one)
        assert trainer.train()["training_iteration"] == 2
    assert 0 < len(patient) <= Roles.threads
    assert all("the trainer went back to a checkpoint" in one for one in patient)


def test_E14_policies_come_and_go_and_episodes_that_had_them_are_lost(patient: list[str]) -> None:
    with ppo() as trainer:
        trainer.train()
        trainer.add_policy("third")  # type: ignore[attr-defined]
        trainer.train()
        assert not patient
        worker = only_worker(trainer)
        (env,) = worker.foreach_env(lambda one: one)
        wait_until(lambda: all_wait(env))
        # an episode that ended since the last poll has no player any more that could be told
        running = worker._sampler._running.keys() & env._episodes.keys()
        mapping = dict.fromkeys(AGENTS, "rest")
        trainer.remove_policy("first", policy_mapping_fn=mapping)  # type: ignore[attr-defined]
        (batch,) = sampled(trainer)
        wait_until(lambda: len(patient) >= len(running))  # before they are told of the close
    assert batch.policy_batches["rest"].fragments
    assert batch.policy_batches.keys() == {"rest", "third"}
    assert {one.split("'")[1] for one in patient} == running != set()
    assert len(patient) == len(running)
    assert all("had a policy that is there no more" in one for one in patient)


@pytest.mark.slow
def test_P21_a_killed_worker_of_several_agents_is_replaced() -> None:
    with ppo(num_workers=1, recreate_failed_workers=True) as trainer:
        trainer.train()
        psutil.Process(trainer.workers.pids()[0]).kill()
        result = trainer.train()
        assert result["num_healthy_workers"] == 1
        assert result["timesteps_total"] >= 96


# ---- polled environments of others ---------------------------------------------------------------


class Polling:
    """As RLlib's BaseEnv with two agents, one of which ends before the other."""

    observation_space = {"a": BOX, "b": BOX}  # noqa: RUF012 as people write it
    action_space = {"a": spaces.Discrete(3), "b": spaces.Discrete(3)}  # noqa: RUF012
    also = "b"

    def __init__(self) -> None:
        self.step = 0

    def poll(self) -> tuple[dict[int, Any], ...]:
        there = {"a": seen_by("a", 0, self.step), self.also: seen_by("b", 0, self.step)}
        if self.step > 2:
            del there[self.also]
        ends = {"b": self.step == 2, "__all__": self.step == 4}
        never = {"__all__": False}
        rewards = dict.fromkeys(there, float(self.step > 0))
        return {0: there}, {0: rewards}, {0: ends}, {0: never}, {0: {}}, {}

    def send_actions(self, actions: Mapping[int, Any]) -> None:
        assert actions[0].keys() == ({"a", "b"} if self.step < 2 else {"a"})
        self.step += 1

    def try_reset(self, env_id: int) -> Any:
        self.step = 0
        first = {"a": seen_by("a", 0, 0), "b": seen_by("b", 0, 0)}
        return {env_id: first}, {env_id: {}}


def test_W15_polled_environments_of_several_agents_are_trained_on() -> None:
    with ppo(Polling) as trainer:
        batch = sampled(trainer)[0]
    ended = {(one.length, one.total_reward) for one in batch.episodes}
    assert ended == {(4, 6.0)}
    (fragment,) = batch.policy_batches["rest"].fragments
    real = ~fragment.autoreset
    steps = np.rint(fragment.observations[real][:, 1] * 128)
    assert np.array_equal(fragment.terminated[real], steps == 1)


def test_an_unknown_agent_of_a_poll_is_named() -> None:
    class Other(Polling):
        also = "z"

    with (
        ppo(Other) as trainer,
        pytest.raises(EnvError, match="gave an agent 'z'; there are 'a', 'b'"),
    ):
        trainer.train()


def test_spaces_of_different_agents_are_refused() -> None:
    class Uneven(Polling):
        action_space = {"a": spaces.Discrete(3)}  # noqa: RUF012

    with (
        pytest.raises(ConfigError, match=r"different agents: \['a', 'b'\] and \['a'\]"),
        ppo(Uneven),
    ):
        pass


def test_an_environment_with_one_agent_needs_no_policies_and_several_do() -> None:
    with pytest.raises(ConfigError, match="several agents"):
        PPO({"env": f"{HERE}:Roles", **SMALL})
    assert not ExternalEnv(spaces.Discrete(2), BOX).has_agents

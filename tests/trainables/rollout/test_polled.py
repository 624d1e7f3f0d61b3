"""Polled environments that wait for each answer: quiet steps, faults, and going back."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from tests.support.external import BOX, seen
from tests.support.trainers import only_worker
from trainables.algorithms.ppo import PPO
from trainables.envs.external import ASYNC_RESET
from trainables.errors import ConfigError, EnvError
from trainables.rollout.batch import Sample
from trainables.rollout.callbacks import Callbacks

SMALL: dict[str, Any] = {
    "train_batch_size": 24,
    "rollout_fragment_length": 24,
    "num_envs_per_worker": 1,
    "model": {"hidden": [8]},
    "sgd_minibatch_size": 8,
    "num_sgd_iter": 1,
    "external_timeout_s": 20.0,
}
AGENT = "agent0"


class Patient:
    """As RLlib's BaseEnv: two games, each of which steps when it is answered, and not before.

    The reward of a step is its number. What is polled once is not polled again.
    """

    observation_space: Any = BOX
    action_space: Any = spaces.Discrete(3)
    agents: tuple[str, ...] = (AGENT,)
    quiet: frozenset[int] = frozenset()
    """Steps in which nobody is asked."""
    resets = "at once"
    length = 5

    def __init__(self) -> None:
        self.steps = {0: 0, 1: 0}
        self.episodes = {0: 0, 1: 1}
        self.ready = {0, 1}
        self.owed: dict[int, set[str]] = {}
        self.resets_of: list[int] = []

    def seen(self, game: int) -> dict[str, Any]:
        observation = seen(self.episodes[game], self.steps[game])
        return {} if self.steps[game] in self.quiet else dict.fromkeys(self.agents, observation)

    def poll(self) -> tuple[Any, ...]:
        ready, self.ready = sorted(self.ready), set()
        observations = {game: self.seen(game) for game in ready}
        rewards = {game: dict.fromkeys(self.agents, float(self.steps[game])) for game in ready}
        over = {game: {"__all__": self.steps[game] >= self.length} for game in ready}
        never = {game: {"__all__": False} for game in ready}
        for game in ready:
            if not over[game]["__all__"]:
                self.owed[game] = {*observations[game]}
            elif self.resets == "never":
                self.begin(game)
                self.ready.add(game)
        return observations, rewards, over, never, {game: {} for game in ready}, {}

    def send_actions(self, actions: Mapping[int, Mapping[str, Any]]) -> None:
        assert actions.keys() == self.owed.keys(), (actions, self.owed)
        for game, by_agent in actions.items():
            assert by_agent.keys() == self.owed.pop(game)
            self.steps[game] += 1
            self.ready.add(game)

    def begin(self, game: int) -> None:
        self.steps[game] = 0
        self.episodes[game] += 2

    def try_reset(self, game: int) -> Any:
        self.resets_of.append(game)
        if self.resets == "never":
            return None
        self.owed.pop(game, None)
        self.begin(game)
        if self.resets == "later":
            self.ready.add(game)
            return ASYNC_RESET
        self.owed[game] = {*self.seen(game)}
        return {game: self.seen(game)}, {game: {}}


class OfSeveral(Patient):
    """Two agents, who see the same."""

    observation_space: Any = {"a": BOX, "b": BOX}  # noqa: RUF012 as people write it
    action_space: Any = {"a": spaces.Discrete(3), "b": spaces.Discrete(3)}  # noqa: RUF012
    agents = ("a", "b")


@contextmanager
def ppo(env: type[Patient], **more: Any) -> Iterator[PPO]:
    several = {"multiagent": {"policies": {"shared": None}}} if issubclass(env, OfSeveral) else {}
    with_env: dict[str, Any] = {"env": env, **several, **SMALL, **more}
    trainer = PPO(with_env)
    try:
        yield trainer
    finally:
        trainer.stop()


def sampled(trainer: PPO, times: int = 1) -> list[Sample]:
    worker = only_worker(trainer)
    return [worker.sample() for _ in range(times)]


def base_of(trainer: PPO) -> Any:
    worker = only_worker(trainer)
    (base,) = worker.foreach_env(lambda one: one)
    return base


def rows_of(samples: list[Sample]) -> list[tuple[int, int, float]]:
    """Episode, step and reward of every row that is learnt from."""
    fragments = []
    for one in samples:
        by_policy = getattr(one, "policy_batches", None)
        parts = [one] if by_policy is None else by_policy.values()
        fragments += [fragment for part in parts for fragment in part.fragments]
    found = []
    for fragment in fragments:
        for t, lane in np.argwhere(~fragment.autoreset):
            episode, step = np.rint(fragment.observations[t, lane][:2] * 128).astype(int)
            found.append((int(episode), int(step), float(fragment.rewards[t, lane])))
    return found


# ---- steps in which nobody is asked --------------------------------------------------------------


class Steps(Callbacks):
    """Writes down the step that callbacks see after each step of the environment."""

    def on_episode_step(self, *, episode: Any, **_: Any) -> None:
        latest = episode.last_observation
        if not isinstance(latest, Mapping):
            step = int(np.rint(latest[1] * 128))
            episode.hist_data.setdefault("steps", []).append(float(step))


@pytest.mark.parametrize("env", [Patient, OfSeveral])
def test_W15_a_step_that_asks_nobody_is_answered_with_an_empty_dict(
    env: type[Patient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(env, "quiet", frozenset({2, 3}))
    with ppo(env, callbacks=Steps) as trainer:
        (sample,) = sampled(trainer)
        assert trainer.train()["episode_len_mean"] == 5
    rows = rows_of([sample])
    # What came while nobody was asked belongs to the decision before it.
    assert {(step, reward) for _, step, reward in rows} == {(0, 1.0), (1, 9.0), (4, 5.0)}
    assert {one.length for one in sample.episodes} == {5}
    if env is Patient:
        histories = [(one.hist_data or {})["steps"] for one in sample.episodes]
        assert histories == [[1.0, 1.0, 1.0, 4.0, 5.0]] * len(histories)


def test_W15_every_poll_is_answered_also_where_all_its_episodes_are_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Alternating(Patient):
        """Steps once for each answer, whomever it is for."""

        resets = "later"
        polls = answers = 0

        def poll(self) -> tuple[Any, ...]:
            self.polls += 1
            assert self.polls == self.answers + 1
            return super().poll()

        def send_actions(self, actions: Mapping[int, Mapping[str, Any]]) -> None:
            self.answers += 1
            super().send_actions(actions)

    with ppo(Alternating) as trainer:
        sampled(trainer, 3)
        base = base_of(trainer)
    assert base.polls == base.answers + 1 > 10


def test_an_episode_of_one_agent_begins_with_its_observation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Patient, "quiet", frozenset({0}))
    with ppo(Patient) as trainer, pytest.raises(EnvError, match="observations of 0 agents"):
        trainer.train()


class InTurn(OfSeveral):
    """Asks one of the two agents after the other."""

    length = 100

    def seen(self, game: int) -> dict[str, Any]:
        player = self.agents[self.steps[game] % 2]
        return {agent: one for agent, one in super().seen(game).items() if agent == player}


def test_P14_a_horizon_leaves_out_the_last_decision_of_whose_turn_it_is_not() -> None:
    with ppo(InTurn, horizon=5) as trainer:
        (sample,) = sampled(trainer)
    assert {one.length for one in sample.episodes} == {5}
    # Each is rewarded for two steps; the decision in the fifth one is left out.
    assert {*rows_of([sample])} >= {(0, 0, 3.0), (0, 1, 5.0), (0, 2, 7.0), (0, 3, 9.0)}
    assert not any(step == 4 for _, step, _ in rows_of([sample]))


class LogsItsLastAction(Patient):
    """Says with the last observation of an episode that it would have chosen action 2."""

    def __init__(self) -> None:
        super().__init__()
        self.first_actions: list[int] = []

    def poll(self) -> tuple[Any, ...]:
        *answer, _ = super().poll()
        over = [game for game, flags in answer[2].items() if flags["__all__"]]
        return *answer, {game: {AGENT: 2} for game in over}

    def send_actions(self, actions: Mapping[int, Mapping[str, Any]]) -> None:
        begun = [game for game in actions if self.steps[game] == 0]
        self.first_actions += [int(actions[game][AGENT]) for game in begun]
        super().send_actions(actions)


def test_an_action_that_was_logged_at_an_end_is_not_that_of_the_next_episode() -> None:
    with ppo(LogsItsLastAction) as trainer:
        sampled(trainer, 3)
        first_actions = base_of(trainer).first_actions
    assert {*first_actions[2:]} == {0, 1, 2}


# ---- faults --------------------------------------------------------------------------------------


class Faulty(Patient):
    """Its first game fails in step 3 of every other episode of its own, or of every one."""

    every = False
    where = "episode"
    """Where the exception stands in place of an observation, or ``reset``."""
    is_said = True
    """Whether the episode is said to be over."""

    def poll(self) -> tuple[Any, ...]:
        fails = 0 in self.ready and self.steps[0] == 3 and self.is_due()
        observations, rewards, over, *rest = super().poll()
        if fails:
            error = ZeroDivisionError("the world ended")
            observations[0] = dict.fromkeys(self.agents, error)
            if self.where == "episode":
                observations[0] = error
            over[0] = {"__all__": self.is_said}
            self.owed.pop(0, None)
        return observations, rewards, over, *rest

    def is_due(self) -> bool:
        return self.where != "reset" and (self.every or self.episodes[0] % 4 == 2)

    def try_reset(self, game: int) -> Any:
        if self.where == "reset" and game == 0 and (self.every or len(self.resets_of) % 2 == 0):
            self.resets_of.append(game)
            if self.every:
                raise ZeroDivisionError("no new world")
            return {0: ZeroDivisionError("no new world")}
        return super().try_reset(game)


class FaultyOfSeveral(Faulty, OfSeveral):
    pass


@pytest.mark.parametrize("env", [Faulty, FaultyOfSeveral])
@pytest.mark.parametrize("where", ["episode", "agent"])
@pytest.mark.parametrize("mode", ["truncate_episodes", "complete_episodes"])
def test_E4_an_exception_in_the_place_of_an_observation_is_a_faulty_episode(
    env: type[Faulty], where: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(env, "where", where)
    with ppo(env, restart_failed_sub_environments=True, batch_mode=mode) as trainer:
        samples = sampled(trainer, 3)
        assert all(one.count >= 24 for one in samples)
        result = trainer.train()
    ended = [one for sample in samples for one in sample.episodes]
    faulty = [one for one in ended if one.faulty]
    assert len(faulty) >= 3
    assert {one.length for one in ended if not one.faulty} == {5}
    assert result["episode_len_mean"] == 5.0
    rows = rows_of(samples)
    failed = {episode for episode, _, _ in rows if episode % 4 == 2}
    # Only rows that a sample before the failure gave away are there of them.
    assert len(failed) <= (len(samples) if mode == "truncate_episodes" else 0)


@pytest.mark.parametrize("env", [Faulty, FaultyOfSeveral])
@pytest.mark.parametrize("where", ["episode", "agent"])
def test_E4_without_the_setting_the_error_names_episode_step_and_remedy(
    env: type[Faulty], where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(env, "where", where)
    said = r"worker 0, episode 0: .* ZeroDivisionError\('the world ended'\), at step 2; "
    with ppo(env) as trainer, pytest.raises(EnvError, match=said) as raised:
        trainer.train()
    assert "restart_failed_sub_environments: true" in str(raised.value)
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


def test_E4_an_environment_that_failed_ends_its_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Faulty, "is_said", False)
    with (
        ppo(Faulty, restart_failed_sub_environments=True) as trainer,
        pytest.raises(EnvError, match="__all__: True; end the episode"),
    ):
        trainer.train()


@pytest.mark.parametrize(
    ("where", "said"), [("episode", "the world ended"), ("reset", "no new world")]
)
def test_E4_one_that_fails_for_ever_ends_in_an_error_with_the_first_cause(
    where: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Faulty, "where", where)
    monkeypatch.setattr(Faulty, "every", True)
    with (
        ppo(Faulty, restart_failed_sub_environments=True) as trainer,
        pytest.raises(EnvError, match=r"episode 0: .* failed 9 times in a row") as raised,
    ):
        for _ in range(9):
            trainer.train()
    assert said in str(raised.value)


def test_E4_a_reset_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Faulty, "where", "reset")
    with ppo(Faulty, restart_failed_sub_environments=True) as trainer:
        samples = sampled(trainer, 2)
    assert any(one.faulty for sample in samples for one in sample.episodes)
    assert {episode % 2 for episode, _, _ in rows_of(samples)} == {0, 1}


def test_E4_what_plays_in_a_thread_cannot_be_restarted() -> None:
    with pytest.raises(ConfigError, match=r"restart_failed_sub_environments.*ExternalEnv"):
        PPO({"env": "tests.support.external:Counting", "restart_failed_sub_environments": True})


@pytest.mark.parametrize(
    ("method", "given", "said"),
    [
        ("poll", None, "poll() raised KeyError"),
        ("send_actions", None, "send_actions() raised KeyError"),
        ("poll", (1, 2), r"Patient.poll() returned (1, 2); expected (observations, rewards"),
        ("poll", ({0: 7}, {}, {}, {}, {}, {}), "the observations 7; expected a dict with agents"),
        ("poll", ({0: {}}, {}, {0: True}, {}, {}, {}), "observations of 0 agents"),
        ("try_reset", {}, "try_reset(0) returned {}; expected {episode: {agent: observation}}"),
    ],
)
def test_E4_what_breaks_the_interface_is_said(
    method: str, given: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        if given is None:
            raise KeyError("nothing there")
        return given

    monkeypatch.setattr(Patient, method, broken)
    with ppo(Patient) as trainer, pytest.raises(EnvError) as raised:
        trainer.train()
    assert said in str(raised.value)


# ---- going back ----------------------------------------------------------------------------------


@pytest.mark.parametrize("env", [Patient, OfSeveral])
@pytest.mark.parametrize("resets", ["at once", "later", "never"])
@pytest.mark.parametrize("quiet", [frozenset[int](), frozenset({1, 2})])
def test_P21_a_trainer_that_has_sampled_goes_back_to_a_checkpoint(
    env: type[Patient], resets: str, quiet: frozenset[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(env, "resets", resets)
    monkeypatch.setattr(env, "quiet", quiet)
    with ppo(env, callbacks=Steps) as trainer:
        trainer.train()
        saved = trainer.save_to_object()
        for _ in range(3):
            trainer.restore_from_object(saved)
            assert trainer.train()["training_iteration"] == 2
        before = len(base_of(trainer).resets_of)
        trainer.restore_from_object(saved)
        assert len(base_of(trainer).resets_of) > before
        (sample,) = sampled(trainer)
    # A reset begins another episode; what cannot be reset goes on from where it is.
    assert {one.length for one in sample.episodes[2:]} == {5}


@pytest.mark.parametrize("resets", ["at once", "later", "never"])
def test_E14_episodes_with_a_policy_that_is_no_more_are_begun_again(
    resets: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OfSeveral, "resets", resets)
    multiagent = {
        "policies": {"one": None, "two": None},
        "policy_mapping_fn": {"a": "one", "b": "two"},
    }
    with ppo(OfSeveral, multiagent=multiagent) as trainer:
        trainer.train()
        mapping = {"a": "one", "b": "one"}
        trainer.remove_policy("two", policy_mapping_fn=mapping)  # type: ignore[attr-defined]
        trainer.train()
        (sample,) = sampled(trainer)
    assert getattr(sample, "policy_batches").keys() == {"one"}  # noqa: B009 of several agents

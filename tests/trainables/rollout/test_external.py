"""Environments that call the trainer: what they did comes once, whole, and as it was."""

import logging
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from tests.support.external import BOX, PLAYED, Counting, note_lost_episodes, seen
from tests.support.trainers import only_worker
from tests.support.waiting import Deadline
from trainables.algorithms.dqn import DQN
from trainables.algorithms.ppo import PPO
from trainables.algorithms.sac import SAC
from trainables.envs.external import ASYNC_RESET, EpisodeError, ExternalEnv
from trainables.errors import ConfigError, EnvError
from trainables.rollout.batch import Sample
from trainables.trainer.trainer import Trainer

SMALL: dict[str, Any] = {
    "train_batch_size": 48,
    "num_envs_per_worker": 1,
    "rollout_fragment_length": 48,
    "external_timeout_s": 60.0,
}
HERE = "tests.support.external"


@pytest.fixture(autouse=True)
def nothing_played() -> None:
    PLAYED.clear()


def ppo(env: Any, **more: Any) -> PPO:
    return PPO({"env": env, "model": {"hidden": [8]}, "num_sgd_iter": 1, **SMALL, **more})


def sampled(trainer: Trainer, times: int = 1) -> list[Sample]:
    worker = only_worker(trainer)
    samples = []
    for _ in range(times):
        sample = worker.sample()
        samples.append(
            Sample([one.copy() for one in sample.fragments], sample.episodes, {}, sample.recent)
        )
    return samples


def rows_of(samples: list[Sample]) -> dict[tuple[int, int], tuple[int, float]]:
    """(episode, step) → action and reward; each once."""
    found: dict[tuple[int, int], tuple[int, float]] = {}
    for fragment in (one for sample in samples for one in sample.fragments):
        for t, lane in np.argwhere(~fragment.autoreset):
            observation = fragment.observations[t, lane] * 128
            key = int(observation[0]), int(observation[1])
            assert key not in found, f"{key} came twice"
            found[key] = int(fragment.actions[t, lane]), float(fragment.rewards[t, lane])
    return found


def test_P21_each_step_of_episodes_side_by_side_comes_once_and_as_it_was() -> None:
    trainer = ppo(f"{HERE}:Counting")
    try:
        samples = sampled(trainer, 6)
    finally:
        trainer.stop()
    rows = rows_of(samples)
    assert len(rows) == sum(sample.count for sample in samples) >= 6 * 48
    for (episode, step), (action, reward) in rows.items():
        played = PLAYED[f"counted {episode}"][step]
        assert np.array_equal(played[0], seen(episode, step))
        assert action == played[1]
        assert reward == pytest.approx(played[2])
    ended = [one for sample in samples for one in sample.episodes]
    lengths = {number: 7 + number % 3 for number in {episode for episode, _ in rows}}
    whole = [n for n, length in lengths.items() if all((n, step) in rows for step in range(length))]
    assert len(whole) == len(ended) > 10
    assert sorted(one.length for one in ended) == sorted(lengths[n] for n in whole)
    assert trainer.exactness == "D not bit-exact"


def test_P21_what_ends_is_an_end_and_what_goes_on_is_valued() -> None:
    trainer = ppo(f"{HERE}:Counting")
    try:
        (fragment,) = sampled(trainer)[0].fragments
        values = trainer.inference.actor.values
        for t, lane in np.argwhere(~fragment.autoreset):
            episode, step = (int(one * 128) for one in fragment.observations[t, lane][:2])
            last = step == 6 + episode % 3
            assert (fragment.terminated[t, lane], fragment.truncated[t, lane]) == (last, False)
            if t == len(fragment.valid) - 1 and not last:
                following = values(seen(episode, step + 1)[None])
                assert fragment.last_values[0, lane] == pytest.approx(following[0], abs=1e-6)
    finally:
        trainer.stop()


@pytest.mark.parametrize("algorithm", [PPO, DQN])
def test_P6_P19_logged_actions_replace_the_policys(
    algorithm: type[Trainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Counting, "logs", True)
    more = {} if algorithm is PPO else {"learning_starts": 40}
    trainer = algorithm({"env": f"{HERE}:Counting", **SMALL, **more})
    try:
        samples = sampled(trainer, 3)
        for (episode, step), (action, _) in rows_of(samples).items():
            assert action == PLAYED[f"counted {episode}"][step][1]
            assert step % 2 == 0 or action == (episode + step) % 3
        for fragment in samples[0].fragments if algorithm is PPO else ():
            real = ~fragment.autoreset
            likely = in_torch(trainer, fragment.observations[real], fragment.actions[real])
            assert fragment.logp[real] == pytest.approx(likely, abs=1e-5)
        trainer.train()
    finally:
        trainer.stop()


def in_torch(trainer: Trainer, observations: Any, actions: Any) -> Any:
    """Log-probabilities as the learner sees them."""
    model: Any = trainer.policy.in_torch().model
    with torch.no_grad():
        return model.evaluate(
            torch.from_numpy(observations), torch.from_numpy(actions)
        ).logp.numpy()


class Fixed(ExternalEnv):
    """Logs one action over and over, with the log-probability it was chosen with."""

    action: Any = None
    logp: float | None = None

    def run(self) -> None:
        while True:
            episode = self.start_episode()
            self.log_action(episode, np.ones(3, dtype=np.float32), self.action, self.logp)
            self.log_returns(episode, 1.0)
            self.end_episode(episode, np.zeros(3, dtype=np.float32))


def made(space: spaces.Space[Any], action: Any, logp: float | None = None) -> type[ExternalEnv]:
    """A class of `Fixed` that plays in this space."""

    class Made(Fixed):
        def __init__(self) -> None:
            super().__init__(space, BOX)
            self.action, self.logp = action, logp

    return Made


MIXED = spaces.Dict({"gear": spaces.Discrete(3, start=2), "speed": spaces.Box(-1, 1, (2,))})


@pytest.mark.parametrize(
    ("space", "action", "row"),
    [
        (spaces.Box(-1, 1, (2,), np.float32), [0.25, -0.5], [0.25, -0.5]),
        (spaces.MultiDiscrete([2, 3]), np.array([1, 2]), [1, 2]),
        (spaces.Discrete(3, start=5), 7, 2),
        (
            MIXED,
            {"gear": np.int64(4), "speed": np.array([0.5, -0.25], np.float32)},
            [2, 0.5, -0.25],
        ),
    ],
    ids=["box", "multidiscrete", "start", "dict"],
)
def test_P19_a_logged_action_of_any_space_is_learnt_with_the_policys_probability(
    space: spaces.Space[Any], action: Any, row: Any
) -> None:
    trainer = ppo(made(space, action))
    try:
        (fragment,) = sampled(trainer)[0].fragments
        real = ~fragment.autoreset
        assert np.array_equal(
            fragment.actions[real], np.broadcast_to(row, fragment.actions[real].shape)
        )
        likely = in_torch(trainer, fragment.observations[real], fragment.actions[real])
        assert fragment.logp[real] == pytest.approx(likely, abs=1e-5)
    finally:
        trainer.stop()


def test_P19_the_probability_with_which_an_action_was_chosen_is_kept_where_it_is_known() -> None:
    trainer = ppo(made(spaces.Discrete(2), 1, -0.125))
    try:
        (fragment,) = sampled(trainer)[0].fragments
        assert set(fragment.logp[~fragment.autoreset].tolist()) == {-0.125}
    finally:
        trainer.stop()


def test_P19_logged_actions_of_a_squashed_policy_are_learnt_from_without_probabilities() -> None:
    trainer = SAC(
        {
            "env": made(spaces.Box(-1, 1, (2,), np.float32), [0.25, -0.5]),
            "learning_starts": 8,
            "replay_batch_size": 8,
            "train_batch_size": 16,
            "model": {"hidden": [8]},
        }
    )
    try:
        result = trainer.train()
        assert result["timesteps_total"] >= 16
    finally:
        trainer.stop()


def test_P12_nothing_is_learnt_of_episodes_that_are_not_for_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = ExternalEnv.start_episode
    monkeypatch.setattr(
        Counting,
        "start_episode",
        lambda self, one: start(self, one, training_enabled=int(one.split()[-1]) % 2 == 0),
    )
    trainer = ppo(f"{HERE}:Counting")
    try:
        (fragment,) = sampled(trainer)[0].fragments
        numbers = np.rint(fragment.observations[..., 0] * 128)
        real = ~fragment.autoreset
        assert np.array_equal(fragment.valid[real], numbers[real] % 2 == 0)
        assert 0 < fragment.valid.sum() < real.sum()
    finally:
        trainer.stop()


# ---- what goes wrong -----------------------------------------------------------------------------


class Wrong(ExternalEnv):
    """Does something wrong once it has played a few steps."""

    what = ""

    def __init__(self) -> None:
        super().__init__(spaces.Discrete(3), BOX)
        self.hung = threading.Event()

    def run(self) -> None:
        episode = self.start_episode("first")
        self.get_action(episode, seen(0, 0))
        getattr(self, self.what)(episode)

    def raises(self, episode: str) -> None:
        raise ValueError("the joystick is unplugged")

    def returns(self, episode: str) -> None:
        pass

    def hangs(self, episode: str) -> None:
        self.hung.wait()

    def close(self) -> None:
        self.hung.set()
        super().close()

    def ends_twice(self, episode: str) -> None:
        self.end_episode(episode, seen(0, 1))
        self.end_episode(episode, seen(0, 1))

    def never_began(self, episode: str) -> None:
        self.get_action("second", seen(0, 1))

    def begins_twice(self, episode: str) -> None:
        self.start_episode(episode)

    def shape(self, episode: str) -> None:
        self.get_action(episode, np.zeros(4, dtype=np.float32))

    def nan(self, episode: str) -> None:
        self.get_action(episode, np.full(3, np.nan, dtype=np.float32))

    def reward(self, episode: str) -> None:
        self.log_returns(episode, float("inf"))

    def action(self, episode: str) -> None:
        self.log_action(episode, seen(0, 1), 3)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("raises", "run() raised ValueError: the joystick is unplugged"),
        ("returns", "run() has returned, but the trainer needs more steps"),
        ("hangs", "has not called the trainer for 0.2 s (external_timeout_s)"),
        ("ends_twice", "episode 'first' is not running: it has ended already"),
        ("never_began", "episode 'second' is not running: start_episode() was not called"),
        ("begins_twice", "episode 'first' runs already"),
        (
            "shape",
            "episode 'first': observation has shape (4,) and dtype float32; expected shape (3,)",
        ),
        ("nan", "episode 'first': observation array([nan, nan, nan], dtype=float32) is not finite"),
        ("reward", "episode 'first': the reward inf is not a number"),
        ("action", "episode 'first': action 3 is not in Discrete(3)"),
    ],
)
def test_P21_what_goes_wrong_ends_the_training_in_one_line(
    what: str, said: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Wrong, "what", what)
    limit = 0.2 if what == "hangs" else 60.0
    trainer = ppo(Wrong, external_timeout_s=limit)
    try:
        with pytest.raises(EnvError) as raised:
            trainer.train()
    finally:
        trainer.stop()
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
    if what not in ("returns", "hangs"):
        (record,) = [one for one in caplog.records if one.levelno == logging.ERROR]
        assert record.exc_info is not None
        assert record.exc_info[2] is not None


def test_P21_stopping_ends_the_threads_of_an_environment() -> None:
    before = {one.name for one in threading.enumerate()}
    trainer = ppo(f"{HERE}:Counting")
    trainer.train()
    playing = [one for one in threading.enumerate() if one.name not in before]
    assert any(one.name == "environment Counting" for one in playing)
    trainer.stop()
    for one in playing:
        one.join(120)
        assert not one.is_alive()


def test_P21_a_restore_loses_running_episodes_and_says_so_to_who_plays_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost = note_lost_episodes(Counting, monkeypatch)
    trainer = ppo(f"{HERE}:Counting")
    try:
        trainer.train()
        saved = trainer.save_to_object()
        trainer.train()
        trainer.restore_from_object(saved)
        assert trainer.train()["timesteps_total"] >= 96
    finally:
        trainer.stop()
    assert len(lost) == 4
    assert all("is lost: the trainer went back to a checkpoint" in one for one in lost)


def test_an_episode_of_which_nothing_is_heard_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def silently(self: Counting, which: int) -> Iterator[int]:
        self.start_episode("silent")  # of a number that no other episode comes to
        self.get_action("silent", seen(-900, 0))
        self.log_returns("silent", 1.0)
        self.get_action("silent", seen(-900, 1))
        yield from range(10**9)

    for name, value in (("episode_timeout_s", 3.0), ("threads", 1), ("_numbers", silently)):
        monkeypatch.setattr(Counting, name, value)
    trainer = ppo(f"{HERE}:Counting")
    try:
        samples = sampled(trainer, 2)
        deadline = Deadline()
        while deadline.waits(not any(e.faulty for sample in samples for e in sample.episodes)):
            samples += sampled(trainer)
    finally:
        trainer.stop()
    rows = rows_of(samples)
    assert (-900, 0) in rows  # it is known what followed
    assert (-900, 1) not in rows


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("env_level", "A"),
        ("sample_async", True),
        ("remote_worker_envs", True),
        ("restart_failed_sub_environments", True),
        ("normalize_rewards", True),
        ("horizon", 5),
        ("evaluation_interval", 1),
        ("callbacks", {"on_postprocess_traj": print}),
    ],
)
def test_settings_that_such_an_environment_cannot_have_are_refused(key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=key if key != "evaluation_interval" else "evaluation"):
        ppo(f"{HERE}:Counting", **{key: value})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("connectors", ["FrameStack"]),
        ("model", {"lstm_use_prev_action": True}),
        ("normalize_actions", True),
    ],
)
def test_E3_connectors_and_an_environment_that_calls_do_not_combine(key: str, value: Any) -> None:
    config = {"env": f"{HERE}:Counting", **SMALL, key: value}
    for refused in (PPO, PPO.check_config):
        with pytest.raises(ValueError, match=f"{key}.*convert them in the environment"):
            refused(config)


def test_E3_actions_far_from_0_are_not_spread_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for name, told in (("Dialled", True), ("Counting", False)):
        caplog.clear()
        trainer = ppo(f"{HERE}:{name}")
        trainer.stop()
        assert trainer.settings.sampling.normalize_actions is False
        assert ("normalize_actions is false with an external environment" in caplog.text) is told


def test_evaluation_plays_in_an_environment_that_can_be_stepped() -> None:
    trainer = PPO(
        {
            "env": f"{HERE}:CartPole",
            "evaluation_interval": 1,
            "evaluation_num_episodes": 1,
            "evaluation_config": {"env": "CartPole-v1"},
            **SMALL,
        }
    )
    try:
        assert trainer.train()["evaluation"]["episode_reward_mean"] > 0
    finally:
        trainer.stop()


@pytest.mark.slow
def test_P21_workers_in_children_have_an_environment_each() -> None:
    trainer = ppo(f"{HERE}:Counting", num_workers=2)
    try:
        result = trainer.train()
        assert result["timesteps_total"] >= 96
        assert result["num_healthy_workers"] == 2
    finally:
        trainer.stop()


# ---- polled environments of others ---------------------------------------------------------------


class Polling:
    """As RLlib's BaseEnv: five episodes at once, whose next first observation may come later."""

    observation_space = BOX
    action_space = spaces.Discrete(3)
    later = True

    def __init__(self) -> None:
        self.steps = dict.fromkeys(range(5), 0)
        self.sent: list[Mapping[int, Any]] = []

    def poll(self) -> tuple[dict[int, Any], ...]:
        observations = {env: {"agent0": seen(env, step)} for env, step in self.steps.items()}
        rewards = {env: {"agent0": 1.0} for env in self.steps}
        ended = {env: {"__all__": step == 4} for env, step in self.steps.items()}
        never = {env: {"__all__": False} for env in self.steps}
        infos: dict[int, Any] = {env: {"agent0": {}} for env in self.steps}
        for env, step in self.steps.items():
            if step == 4:
                self.steps[env] = -1
        return observations, rewards, ended, never, infos, {}

    def send_actions(self, actions: Mapping[int, Any]) -> None:
        self.sent.append(actions)
        self.steps = {env: step + 1 for env, step in self.steps.items()}

    def try_reset(self, env_id: int) -> Any:
        if self.later:
            return ASYNC_RESET
        self.steps[env_id] = 0
        return {env_id: {"agent0": seen(env_id, 0)}}, {env_id: {"agent0": {}}}

    def stop(self) -> None:
        pass


class AtOnce(Polling):
    later = False


class NoReset(Polling):
    def try_reset(self, env_id: int) -> Any:
        return None


@pytest.mark.parametrize("env", [Polling, AtOnce])
def test_P17_W15_polled_environments_are_decided_for_at_once(env: type[Polling]) -> None:
    trainer = ppo(env)
    try:
        worker = only_worker(trainer)
        rows: list[int] = []
        act = worker._actor.act

        def counted(observations: Any, *more: Any) -> Any:
            rows.append(len(observations))
            return act(observations, *more)

        worker._actor.act = counted
        (fragment,) = sampled(trainer)[0].fragments
        assert set(rows) == {5}
        (base,) = worker.foreach_env(lambda one: one)
        assert isinstance(base, env)
        real = ~fragment.autoreset
        assert (
            fragment.terminated[real].sum()
            == (np.rint(fragment.observations[real][:, 1] * 128) == 3).sum()
        )
        assert fragment.rewards[real].sum() == real.sum()
    finally:
        trainer.stop()


def test_P17_a_hard_horizon_needs_an_environment_that_can_be_reset() -> None:
    trainer = ppo(NoReset, horizon=2)
    try:
        with pytest.raises(EnvError, match=r"with a horizon \(2\) the environment needs a reset"):
            trainer.train()
    finally:
        trainer.stop()
    trainer = ppo(AtOnce, horizon=2)
    try:
        (fragment,) = sampled(trainer)[0].fragments
        real = ~fragment.autoreset
        assert fragment.truncated[real].sum() * 2 == real.sum()
        assert not fragment.terminated[real].any()
    finally:
        trainer.stop()


def test_an_id_may_be_used_again_after_its_end() -> None:
    class Same(ExternalEnv):
        def __init__(self) -> None:
            super().__init__(spaces.Discrete(3), BOX)

        def run(self) -> None:
            for number in range(10**9):
                self.start_episode("same")
                self.get_action("same", seen(number, 0))
                self.end_episode("same", seen(number, 1))

    trainer = ppo(Same)
    try:
        rows = rows_of(sampled(trainer, 2))
        assert {step for _, step in rows} == {0}
    finally:
        trainer.stop()


def test_an_environment_may_use_its_arrays_again_after_it_has_logged_them() -> None:
    seen_space = spaces.Dict({"at": spaces.Box(-9.0, 9.0, (1,))})
    env = ExternalEnv(spaces.MultiDiscrete([3, 3]), seen_space)
    env.start_episode("one")
    observation, action = {"at": np.zeros(1, np.float32)}, np.zeros(2, np.int64)
    for i in range(3):
        observation["at"][:] = action[:] = i
        env.log_action("one", observation, action)
    for i in range(3):
        polled = env.poll()
        assert polled.observations["one"]["agent0"]["at"].tolist() == [i]
        assert polled.off_policy_actions["one"]["agent0"].tolist() == [i, i]


@pytest.mark.parametrize("end", ["abandon", "close"])
def test_who_waits_to_use_an_id_again_hears_that_its_events_are_dropped(end: str) -> None:
    env = ExternalEnv(spaces.Discrete(2), spaces.Box(-1.0, 1.0, (1,)))
    env.start_episode("again")
    env.log_action("again", [0.0], 1)
    env.end_episode("again", [0.0])
    heard: list[str] = []
    begins = threading.Event()

    def begin_again() -> None:
        begins.set()
        try:
            heard.append(env.start_episode("again"))
        except SystemExit:
            heard.append("closed")

    caller = threading.Thread(target=begin_again, daemon=True)
    caller.start()
    assert begins.wait(60.0)
    caller.join(0.05)  # until it waits; before that, it would not have to
    assert caller.is_alive()
    if end == "abandon":
        env.abandon("the trainer went back to a checkpoint")
    else:
        env.close()
    caller.join(5.0)
    assert heard == ["again" if end == "abandon" else "closed"]


def test_an_error_of_a_call_is_one_of_the_package() -> None:
    with pytest.raises(EpisodeError, match="start_episode"):
        Counting().end_episode("never", seen(0, 0))


class Patient(ExternalEnv):
    """Plays one episode of 1200 steps after the other."""

    def __init__(self) -> None:
        super().__init__(spaces.Discrete(2), BOX)

    def run(self) -> None:
        while True:
            episode = self.start_episode()
            for step in range(1200):
                self.get_action(episode, seen(0, step))
                self.log_returns(episode, 1.0)
            self.end_episode(episode, seen(0, 1200))


def test_P8_steps_that_wait_for_an_episode_of_a_caller_are_warned_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level("WARNING"):
        trainer = ppo(f"{__name__}:Patient", batch_mode="complete_episodes")
        (sample,) = trainer.workers.sample()
        trainer.stop()
    assert sample.count == 1200
    (record,) = [one for one in caplog.records if "unfinished" in one.getMessage()]
    assert "worker 0 holds 1001 steps of 1 unfinished episode(s)" in record.getMessage()

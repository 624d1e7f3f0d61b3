"""SAC and TD3 as trainers: exact after a restore, explored, exported, refused with the reason."""

import math
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from tests.support.proofs import proofs_except
from tests.support.trainers import check_restored_exactly, differences, final_state, stable
from trainables.algorithms.sac import SAC
from trainables.algorithms.td3 import TD3
from trainables.errors import ConfigError
from trainables.policies.policy import Scalar
from trainables.rollout.workers.remote.worker_set import ChildWorkers
from trainables.trainable import TrialContext

OF_SPACES = "tests.support.environments:OfSpaces"
SMALL: dict[str, Any] = {
    "env": "Pendulum-v1",
    "num_envs_per_worker": 2,
    "rollout_fragment_length": 4,
    "learning_starts": 32,
    "replay_batch_size": 16,
    "updates_per_step": 3,
    "buffer_size": 200,
    "timesteps_per_iteration": 64,
    "model": {"hidden": [16, 8]},
    "exploration_config": {"random_timesteps": 16},
}
GSDE = {"type": "StateDependentNoise", "sample_freq": 5, "random_timesteps": 16}
DRIFT = {"type": "OrnsteinUhlenbeckNoise", "random_timesteps": 16}
#: Name → algorithm and settings.
KINDS: dict[str, tuple[type[SAC | TD3], dict[str, Any]]] = {
    "sac": (SAC, {}),
    "sac of choices": (SAC, {"env": "CartPole-v1"}),
    "sac with gsde": (SAC, {"exploration_config": GSDE}),
    "td3": (TD3, {}),
    "td3 that drifts": (TD3, {"exploration_config": DRIFT}),
}


def of_actions(words: str, observation: str = "") -> dict[str, Any]:
    """An environment with this action space."""
    return {"env": OF_SPACES, "env_config": {"action": words, "observation": observation}}


def make(kind: str = "sac", config: dict[str, Any] | None = None, seed: int = 5) -> SAC | TD3:
    cls, own = KINDS[kind]
    return cls({**SMALL, **own, **(config or {})}, TrialContext(seed=seed))


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def small() -> Iterator[SAC | TD3]:
    trainer = make()
    yield trainer
    trainer.stop()


def test_a_run_that_was_saved_goes_on_to_the_bit(kind: str, tmp_path: Path) -> None:
    exploring = {"evaluation_config": {"explore": True}, "evaluation_num_episodes": 2}
    first = make(kind, exploring)
    first.train()
    again = make(kind, exploring)
    again.restore(first.save(tmp_path))
    assert again.evaluate() == first.evaluate()
    check_restored_exactly(first, again, tmp_path, 3)
    data = first.get_state()["trainable"]["data"]
    assert len(first.replay) == data["replay"]["capacity"] == 200
    moments = data["policy"]["optimizer"]
    has = {name.split(".")[0] for name in moments if moments[name]}
    assert {"actor", "critics"} <= has
    assert ("log_alpha" in has) is (KINDS[kind][0] is SAC)
    assert not any(moments[name] for name in moments if name.startswith("target"))
    first.stop()


def test_what_it_explores_with_is_in_the_checkpoint() -> None:
    noisy, matrices = make("td3 that drifts"), make("sac with gsde")
    for trainer in (noisy, matrices):
        trainer.train()
    state = noisy.workers.get_state()[0]
    assert state["exploration"]["noise"].shape == (2, 1)
    assert np.abs(state["exploration"]["noise"]).min() > 0
    state = matrices.workers.get_state()[0]
    assert state["exploration"]["matrices"].shape == (2, 8, 1)
    # 64 steps, of which the first 16 are drawn evenly: 24 of each environment.
    assert state["exploration"]["ages"].tolist() == [24, 24]
    noisy.stop()
    matrices.stop()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sac with gsde", "td3"])
def test_children_collect_for_it_and_a_restored_run_is_exact(kind: str, tmp_path: Path) -> None:
    config = {"num_workers": 2, "evaluation_num_workers": 1, "evaluation_num_episodes": 2}
    first = make(kind, config)
    first.train()
    path = first.save(tmp_path)
    expected = [stable(first.train()), first.evaluate()]
    again = make(kind, config)
    again.restore(path)
    assert differences([stable(again.train()), again.evaluate()], expected) == []
    first.stop()
    again.stop()


@pytest.mark.slow
def test_the_curve_with_a_replaced_child_is_the_uninterrupted_one() -> None:
    def trained(killed: bool) -> Any:
        trainer = make("sac with gsde", {"num_workers": 2, "recreate_failed_workers": True})
        results = [stable(trainer.train())]
        if killed:
            assert isinstance(trainer.workers, ChildWorkers)
            os.kill(trainer.workers.pids()[0], signal.SIGKILL)
        results += [stable(trainer.train()), stable(trainer.train())]
        state = final_state(trainer)
        trainer.stop()
        return [results, state]

    assert differences(trained(True), trained(False)) == []


def test_updates_a_round_and_the_share_that_targets_go_are_as_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trainer = make("td3", {"policy_delay": 2, "tau": 0.25})
    followed: list[int] = []
    seen: list[tuple[int, int]] = []
    model, update = trainer.policy.model, trainer.update
    follow = model.update_targets

    def counted(rows: Any) -> dict[str, Scalar]:
        seen.append((trainer.progress.timesteps, len(rows["rewards"])))
        return update(rows)

    def followed_by(share: float) -> None:
        before = {n: p.detach().clone() for n, p in model.named_parameters()}
        follow(share)
        for name, now in model.named_parameters():
            if name.startswith("target"):
                ahead = before[name.replace("targets", "critics").replace("target_actor", "actor")]
                expected = before[name] + 0.25 * (ahead - before[name])
                np.testing.assert_allclose(now.detach(), expected, rtol=1e-6, atol=1e-7)
        followed.append(len(seen))

    monkeypatch.setattr(trainer, "update", counted)
    monkeypatch.setattr(model, "update_targets", followed_by)
    trainer.train()
    # Rounds of 8 steps; from the one that reaches 32 on there are updates: 3 each.
    assert seen == [(begun, 16) for begun in range(24, 64, 8) for _ in range(3)]
    assert followed == list(range(2, 16, 2))  # while the second of two updates is counted
    trainer.stop()


@pytest.mark.parametrize("learner", ["fused", "torch"])
@pytest.mark.parametrize("begin", ["clone", "restore"])
def test_a_temperature_that_is_not_learnt_is_that_of_the_settings(
    begin: str, learner: str, tmp_path: Path
) -> None:
    """Also if another trial's checkpoint has another one, as when a population is changed."""
    first = make(config={"learner": learner})
    first.train()
    path = first.save(tmp_path)
    first.stop()
    own: dict[str, Any] = {"learner": learner, "learn_alpha": False, "initial_alpha": 0.125}
    again = make(config={**own, **({"restore": str(path)} if begin == "restore" else {})})
    if begin == "clone":
        again.restore(path)
    assert again.train()["learner"]["alpha"] == pytest.approx(0.125)
    again.stop()


@pytest.mark.parametrize("learner", ["fused", "torch"])
@pytest.mark.parametrize("algorithm", ["sac", "sac of choices", "td3"])
def test_each_part_moves_by_its_own_rate_times_a_gradient_that_is_clipped_alone(
    algorithm: str, learner: str
) -> None:
    # Without moments a step is the rate times the gradient, of which the norm is 0.01 if clipped.
    config = {"lr": 1.0, "critic_lr": 4.0, "grad_clip": 0.01, "optimizer": {"name": "sgd"}}
    config |= {"policy_delay": 1} if algorithm == "td3" else {}
    trainer = make(algorithm, {**config, "learner": learner, "learning_starts": 200})
    trainer.train()
    before = trainer.policy.weights()
    trainer.learn_on_batch(trainer.replay.sample(16))
    moved = {name: now - before[name] for name, now in trainer.policy.weights().items()}
    trainer.stop()
    for part, rate in (("actor", 1.0), ("critics", 4.0)):
        squares = [np.square(one).sum() for name, one in moved.items() if name.startswith(part)]
        assert math.sqrt(sum(squares)) == pytest.approx(rate * 0.01, rel=1e-3)
    if algorithm != "td3":  # the temperature has one weight, and no clip
        assert abs(moved["log_alpha"]) > 0.01


def test_the_rate_of_the_critics_falls_as_that_of_the_actor_does() -> None:
    falling = {"lr": 1e-3, "critic_lr": 4e-3, "lr_schedule": "linear", "schedule_timesteps": 256}
    trainer = make("sac", falling)
    assert trainer.critic_learning_rate == pytest.approx(4e-3)
    trainer.train()  # 64 of these steps
    assert trainer.learning_rate == pytest.approx(0.75e-3)
    assert trainer.critic_learning_rate == pytest.approx(3e-3)
    trainer.stop()


@pytest.mark.parametrize("warm_up", [{"random_timesteps": 10_000}, {"random_timesteps": None}])
def test_evaluation_is_greedy_and_the_warm_up_even(kind: str, warm_up: dict[str, Any]) -> None:
    explored = {**KINDS[kind][1].get("exploration_config", {}), **warm_up}
    # Where it is not said otherwise, actions are drawn evenly until learning starts.
    starts = 10_000 if explored["random_timesteps"] is None else 32
    trainer = make(
        kind,
        {
            "exploration_config": explored,
            "learning_starts": starts,
            "buffer_size": 10_000,
        },
    )
    trainer.train()
    assert trainer.evaluate() == trainer.evaluate()
    observation = trainer.recent[0]
    assert len({trainer.compute_action(observation).item() for _ in range(5)}) == 1
    tried = [trainer.compute_action(observation, explore=True).item() for _ in range(300)]
    if KINDS[kind][1].get("env"):
        assert 0.3 < np.mean(tried) < 0.7
    else:
        assert np.histogram(tried, bins=4, range=(-2, 2))[0].min() > 40
    assert trainer.policy.model.weights()["actor.0.weight"].any()
    trainer.stop()


@pytest.mark.parametrize("kind", [name for name in KINDS if "choices" not in name])
def test_actions_stay_in_bounds_that_are_not_around_zero(kind: str) -> None:
    trainer = make(
        kind, of_actions("Box(np.array([0.0, -3.0]), np.array([1.0, -1.0]), dtype=np.float64)")
    )
    for _ in range(2):
        trainer.train()
    rows = trainer.replay.sample(200)
    low, high = np.array([0.0, -3.0]), np.array([1.0, -1.0])
    assert (rows["actions"] >= low).all()
    assert (rows["actions"] <= high).all()
    assert (np.ptp(rows["actions"], axis=0) > 0.5 * (high - low)).all()
    trainer.stop()


@pytest.mark.parametrize("observation_filter", ["NoFilter", "MeanStdFilter"])
def test_the_exported_policy_acts_as_the_trained_one(
    kind: str, observation_filter: str, tmp_path: Path
) -> None:
    trainer = make(kind, {"observation_filter": observation_filter})
    trainer.train()
    path = trainer.export_model("onnx", tmp_path)["onnx"]
    session = onnxruntime.InferenceSession(path)
    names = [one.name for one in session.get_outputs()]
    assert names == list(trainer.describe_model()["outputs"])
    assert "value" not in names
    raw = np.asarray(trainer.recent, dtype=np.float32)
    (actions,) = session.run(["action"], {"observation": raw})
    expected = [trainer.compute_action(one) for one in raw]
    np.testing.assert_allclose(actions, expected, atol=1e-5)
    trainer.stop()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("kind", "score"),
    proofs_except({("sac", -400)}, [("sac", -400), ("td3", -400), ("sac of choices", 80)]),
    ids=str,
)
def test_it_learns_within_some_thousand_steps(kind: str, score: float) -> None:
    """An untrained policy has -1200 on Pendulum and 22 on CartPole."""
    cls, own = KINDS[kind]
    config = {
        "env": "Pendulum-v1",
        "lr": 1e-3,
        "model": {"hidden": [64, 64]},
        "replay_batch_size": 128,
        "timesteps_per_iteration": 1000,
        "evaluation_num_episodes": 20,
        "evaluation_config": {"explore": False},
    }
    trainer = cls({**config, **own}, TrialContext(seed=1))
    while trainer.train()["timesteps_total"] < 10_000:
        pass
    assert trainer.evaluate()["episode_reward_mean"] >= score
    trainer.stop()


REFUSED: dict[str, tuple[type[SAC | TD3], dict[str, Any], str]] = {
    "warm-up": (SAC, {"buffer_size": 31}, r"buffer_size: 31 .*learning_starts"),
    "batch": (
        TD3,
        {"buffer_size": 40, "replay_batch_size": 64},
        r"buffer_size: 40 .*replay_batch_size",
    ),
    "lstm": (SAC, {"model": {"use_lstm": True}}, r"model.use_lstm: true cannot be used with SAC"),
    "hard targets": (
        SAC,
        {"target_network_update_freq": 500},
        r"target_network_update_freq: 500 cannot be used with SAC.* tau .*; set it to 1",
    ),
    "ranks": (
        TD3,
        {"data_parallel": True, "num_workers": 2},
        r"data_parallel: true cannot be used with TD3",
    ),
    "choices": (TD3, {"env": "CartPole-v1"}, r"env: .*Discrete\(2\).*float Box actions"),
    "several choices": (SAC, of_actions("MultiDiscrete([2, 3])"), r"env: .*float Box"),
    "unbounded": (SAC, of_actions("Box(-1.0, np.inf, (2,))"), r"env: .*finite bounds"),
    "images": (
        SAC,
        of_actions("Discrete(2)", "Box(0, 255, (40, 40, 3), np.uint8)"),
        r"env: .*SAC reads only vectors",
    ),
    "noise of choices": (
        SAC,
        {"env": "CartPole-v1", "exploration_config": {"type": "StateDependentNoise"}},
        r"exploration_config.type: StateDependentNoise cannot be used, .*StochasticSampling",
    ),
    "unread": (
        TD3,
        {"exploration_config": {"ou_theta": 0.3}},
        r"ou_theta: has no effect with type: GaussianNoise",
    ),
    "rate of the critics": (
        TD3,
        {"critic_lr": 1e-3, "lr_schedule": [[0, 1e-3], [900, 1e-4]]},
        r"critic_lr: 0.001 cannot be used with a list of points as lr_schedule",
    ),
    "unread, too": (
        SAC,
        {"exploration_config": {"sample_freq": 4}},
        r"sample_freq: has no effect with type: StochasticSampling",
    ),
    "target": (
        SAC,
        {"learn_alpha": False, "target_entropy": -1.0},
        r"target_entropy: has no effect with learn_alpha: false",
    ),
    "polling": (
        SAC,
        {"exploration_config": GSDE, "remote_worker_envs": True, "remote_env_batch_wait_ms": 5},
        r"remote_env_batch_wait_ms: 5.0 .*StateDependentNoise",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_together_is_refused_in_one_line(case: str) -> None:
    cls, config, message = REFUSED[case]
    with pytest.raises(ConfigError, match=message) as refused:
        cls.check_config({**SMALL, **config})
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (of_actions("Box(-1.0, 1.0, (3,))"), -3.0),
        ({"env": "CartPole-v1"}, 0.5 * math.log(2)),
        ({**of_actions("Box(-1.0, 1.0, (3,))"), "target_entropy": -0.5}, -0.5),
    ],
)
def test_the_target_entropy_is_that_of_the_settings_or_of_the_action_space(
    config: dict[str, Any], expected: float
) -> None:
    trainer = SAC({**SMALL, "env_level": "C", **config})
    assert trainer.target_entropy == pytest.approx(expected)
    trainer.stop()


def test_what_the_model_leaves_open_is_as_published() -> None:
    for given in ({}, {"model": {"hidden": [16]}}):
        trainer = SAC({"env": "Pendulum-v1", **given})
        assert trainer.architecture.activation == "relu"
        assert trainer.architecture.hidden == ((16,) if given else (256, 256))
        trainer.stop()

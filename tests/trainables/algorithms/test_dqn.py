"""DQN: what it learns from a batch, its options, its checkpoints, and that it learns."""

import copy
import tracemalloc
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor

from tests.support.trainers import differences, final_state, stable
from trainables.algorithms.dqn import DQN
from trainables.errors import ConfigError, in_yaml
from trainables.learners.replay import PrioritizedReplay
from trainables.learners.statistics import on_host
from trainables.policies.q.networks import QPolicy
from trainables.rollout.batch import Sample
from trainables.trainable import TrialContext

SMALL: dict[str, Any] = {
    "env": "CartPole-v1",
    "num_envs_per_worker": 2,
    "rollout_fragment_length": 8,
    "learning_starts": 32,
    "replay_batch_size": 16,
    "updates_per_step": 3,
    "buffer_size": 100,
    "timesteps_per_iteration": 64,
    "model": {"hidden": [16, 8]},
    "n_step": 1,
    "evaluation_num_episodes": 3,
    "evaluation_config": {"explore": False},
}
ALL: dict[str, Any] = {
    "dueling": True,
    "noisy": True,
    "n_step": 3,
    "prioritized_replay": True,
    "num_atoms": 11,
    "v_min": 0,
    "v_max": 50,
    "tau": 0.01,
}
FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "torch": {"learner": "torch"},
    "dueling": {"dueling": True},
    "noisy": {"noisy": True},
    "distributional": {"num_atoms": 11, "v_min": 0, "v_max": 50},
    "n-step": {"n_step": 3},
    "prioritized": {"prioritized_replay": True},
    "soft target": {"tau": 0.01},
    "all": ALL,
}
EPISODES = {"observation_filter": "MeanStdFilter", "batch_mode": "complete_episodes"}


def make(config: Mapping[str, Any] | None = None, seed: int = 5) -> DQN:
    return DQN({**SMALL, **(config or {})}, TrialContext(seed=seed))


@pytest.fixture
def small() -> Iterator[DQN]:
    trainer = make()
    yield trainer
    trainer.stop()


def batch_of(trainer: DQN, count: int = 64) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Rows of the replay, some of which end an episode, and the same as tensors."""
    rows = trainer.replay.sample(count)
    rows["terminated"] = np.arange(count) % 5 == 0
    return rows, {name: torch.from_numpy(column) for name, column in rows.items()}


# ---- what is learnt from a batch ----------------------------------------------------------------


@pytest.mark.parametrize("double", [False, True])
def test_loss_and_gradients_are_those_of_a_reference_written_by_hand(double: bool) -> None:
    trainer = make({"double_q": double, "learner": "torch"})
    trainer.train()
    rows, batch = batch_of(trainer)
    rows["rewards"] = np.linspace(-3, 3, 64, dtype=np.float32)  # both parts of Huber's loss
    batch["rewards"] = torch.from_numpy(rows["rewards"])

    def network() -> torch.nn.Sequential:
        layers = [torch.nn.Linear(4, 16), torch.nn.Linear(16, 8), torch.nn.Linear(8, 2)]
        return torch.nn.Sequential(
            layers[0], torch.nn.ReLU(), layers[1], torch.nn.ReLU(), layers[2]
        )

    online, target = network(), network()
    pairs = ((online, trainer.policy.model), (target, trainer.target.network))
    for reference, learnt in pairs:
        for one, other in zip(reference.parameters(), learnt.parameters(), strict=True):
            one.data.copy_(other.data)
    with torch.no_grad():
        following = target(batch["new_obs"])
        named = (online if double else target)(batch["new_obs"]).argmax(dim=1)
        following = following[torch.arange(64), named]
        goal = batch["rewards"] + (1 - batch["terminated"].float()) * 0.99 * following
    taken = online(batch["observations"]).gather(1, batch["actions"].reshape(-1, 1)).flatten()
    loss = torch.nn.functional.smooth_l1_loss(taken, goal)
    torch.autograd.backward(loss)
    norm = torch.nn.utils.clip_grad_norm_(online.parameters(), 10.0)
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-3, eps=1e-5)
    optimizer.load_state_dict(_moments_of(trainer, optimizer))
    optimizer.param_groups[0]["lr"] = trainer.learning_rate
    optimizer.step()
    (statistics,) = on_host([trainer.update(rows)])
    assert statistics["loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert statistics["grad_norm"] == pytest.approx(norm.item(), rel=1e-4)
    found = trainer.policy.gradients()
    for (name, mine), theirs in zip(
        trainer.policy.model.named_parameters(), online.parameters(), strict=True
    ):
        assert theirs.grad is not None
        np.testing.assert_allclose(found[name], theirs.grad, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(mine.detach(), theirs.detach(), rtol=1e-4, atol=1e-6)
    trainer.stop()


def _moments_of(trainer: DQN, optimizer: torch.optim.Adam) -> dict[str, Any]:
    moments = [copy.deepcopy(trainer.policy.moments(n)) for n in trainer.policy.parameters]
    return {**optimizer.state_dict(), "state": dict(enumerate(moments))}


def test_a_truncated_row_counts_the_value_that_follows_and_a_terminated_one_does_not(
    small: DQN,
) -> None:
    small.train()
    with torch.no_grad():
        for network in (small.target.network, small.policy.model):
            for parameter in network.parameters():
                parameter.zero_()
        dict(small.target.network.named_parameters())["head.1.bias"].fill_(100.0)
    _, batch = batch_of(small, 3)
    batch["rewards"] = torch.tensor([1.0, 1.0, 1.0])
    batch["terminated"] = torch.tensor([True, False, False])  # the second one was truncated
    assert small.differences(batch).errors.tolist() == pytest.approx([1.0, 100.0, 100.0])
    batch["discounts"] = torch.tensor([0.5, 0.5, 0.25])  # of two steps, and of one
    assert small.differences(batch).errors.tolist() == pytest.approx([1.0, 51.0, 26.0])


def test_the_shares_of_moved_atoms_go_to_their_neighbours() -> None:
    trainer = make({"num_atoms": 3, "v_min": -1, "v_max": 1})
    model, half = trainer.policy.model, torch.tensor(0.5)
    certain = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.25, 0.5, 0.25], [1.0, 0.0, 0.0]])
    rewards = torch.tensor([0.25, 9.0, 0.0, 0.5])
    moved = model.project(certain, rewards, torch.stack([half, half, half, half * 0]))
    expected = [[0, 0.75, 0.25], [0, 0, 1], [0.125, 0.75, 0.125], [0, 0.5, 0.5]]
    torch.testing.assert_close(moved, torch.tensor(expected))
    trainer.stop()


def test_importance_weights_scale_what_each_row_adds(small: DQN) -> None:
    small.train()
    rows, batch = batch_of(small, 4)
    losses = small.differences(batch).losses.detach()
    weights = np.array([1.0, 0.5, 0.0, 0.25], dtype=np.float32)
    found = small.update({**rows, "weights": weights})["loss"]
    assert found == pytest.approx(float((losses * torch.from_numpy(weights)).mean()), rel=1e-5)


def test_errors_become_the_priorities_of_their_rows() -> None:
    trainer = make({"prioritized_replay": True, "prioritized_replay_alpha": 1.0})
    trainer.train()
    rows = trainer.replay.sample(8)
    with torch.no_grad():
        batch = {name: torch.from_numpy(column) for name, column in rows.items()}
        errors = trainer.differences(batch).errors
    trainer.update(rows)
    assert isinstance(trainer.replay, PrioritizedReplay)
    shares = trainer.replay.get_state()["shares"][rows["indices"]]
    np.testing.assert_allclose(shares, errors.numpy() + 1e-6, rtol=1e-5)
    trainer.stop()


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"double_q": False, "model": {"hidden": [16], "activation": "tanh"}},
        {"n_step": 3, "prioritized_replay": True, "tau": 0.1},
        {"model": {"hidden": []}, "optimizer": {"weight_decay": 0.01}},
        {"optimizer": {"name": "rmsprop"}},
        {"env": "tests.support.spaces:AnySpaces", "env_config": {"observation": "image"}},
    ],
    ids=["plain", "one target", "all that it knows", "linear", "rmsprop", "pixels"],
)
def test_the_fused_learner_takes_the_steps_of_torch(config: dict[str, Any]) -> None:
    config = {"grad_clip": 0.5, **config}
    if "env" in config:
        config["model"] = {"hidden": [8], "conv_filters": []}
    trainers = [make({**config, "learner": learner}) for learner in ("torch", "fused")]
    for trainer in trainers:
        trainer.train()
    first = trainers[0].get_state()
    for trainer in trainers:
        trainer.load_checkpoint(copy.deepcopy(first["trainable"]["data"]))
        trainer.settings = trainer.settings.model_copy(
            update={"learner": "torch" if trainer is trainers[0] else "fused"}
        )
    for _ in range(20):
        rows = trainers[0].replay.sample(16)
        rows["rewards"] = rows["rewards"] * np.linspace(-3, 3, 16, dtype=np.float32)
        found = on_host([trainer.update(copy.deepcopy(rows)) for trainer in trainers])
        for name in ("loss", "mean_q", "grad_norm"):
            assert found[1][name] == pytest.approx(found[0][name], rel=2e-3, abs=1e-5)
    _assert_alike(trainers[1].policy, trainers[0].policy)
    for trainer in trainers:
        trainer.stop()


def _assert_alike(policy: QPolicy, reference: QPolicy) -> None:
    """Weights, moments and the latest gradients, up to rounding."""
    for name, weight in reference.model.weights().items():
        np.testing.assert_allclose(policy.model.weights()[name], weight, rtol=1e-3, atol=1e-5)
        for moment, value in reference.moments(name).items():
            np.testing.assert_allclose(policy.moments(name)[moment], value, rtol=2e-3, atol=1e-5)
        gradients = [one.gradients()[name] for one in (policy, reference)]
        torch.testing.assert_close(*gradients, rtol=2e-3, atol=1e-5)


def test_a_fused_update_gets_no_array_of_all_weights_anew() -> None:
    trainer = make({"learner": "fused", "model": {"hidden": [256, 256]}})
    try:
        trainer.train()
        rows = trainer.replay.sample(8)
        tracemalloc.start()
        trainer.update(rows)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        trainer.stop()
    assert most < 4 * 256 * 256


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"dueling": True}, "dueling is true"),
        ({"noisy": True}, "noisy is true"),
        ({"num_atoms": 51}, "num_atoms is not 1"),
        ({"optimizer": {"name": "sgd"}}, "optimizer.name is sgd"),
        (
            {"env": "tests.support.spaces:AnySpaces", "env_config": {"observation": "large image"}},
            "images are convolved",
        ),
    ],
)
def test_the_fused_learner_is_refused_where_it_is_not_known_and_auto_is_torch(
    config: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ConfigError, match=f"learner: fused cannot be used, because .*{reason}"):
        DQN.check_config({**SMALL, **config, "learner": "fused"})
    assert DQN.settle_config({**SMALL, **config})["learner"] == "torch"
    assert DQN.settle_config(SMALL)["learner"] == "fused"


def test_one_who_changes_how_it_learns_learns_in_torch() -> None:
    class Own(DQN):
        def differences(self, batch: Mapping[str, Tensor]) -> Any:
            return super().differences(batch)

    assert Own.settle_config(SMALL)["learner"] == "torch"


# ---- a round ------------------------------------------------------------------------------------


def one_round(trainer: DQN, samples: list[Sample], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make a round in which the workers give these samples; return its statistics."""
    monkeypatch.setattr(trainer.workers, "sample", lambda: samples)
    return trainer.training_step()


@pytest.mark.parametrize("n_step", [1, 3])
def test_a_row_that_is_not_valid_is_not_stored(
    n_step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make({"n_step": n_step, "learning_starts": 100})
    (sample,) = trainer.workers.sample()
    (fragment,) = sample.fragments
    fragment.rewards[:] = 1.0
    fragment.truncated[-1] = True  # so that no transition waits for later steps
    fragment.valid[3, 1], fragment.rewards[3, 1] = False, 50.0
    one_round(trainer, [sample], monkeypatch)
    assert len(trainer.replay) == fragment.valid.size - 1
    assert trainer.replay.sample(200)["rewards"].max() < 50.0
    trainer.stop()


def test_transitions_over_several_steps_are_of_one_workers_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trainer = make({"n_step": 3, "learning_starts": 100, "gamma": 0.5})
    (sample,) = trainer.workers.sample()
    for begun in (0, 8):
        samples = []
        for index, reward in ((1, 1.0), (2, 100.0)):
            fragment = sample.fragments[0].copy()
            fragment.rewards[:], fragment.t[:] = reward, begun + np.arange(8)[:, None]
            fragment.terminated[:] = fragment.truncated[:] = False
            samples.append(replace(sample, fragments=[fragment], index=index))
        one_round(trainer, samples, monkeypatch)
    assert len(trainer.replay) == 2 * 2 * (16 - 2)  # two environments of each; the last two wait
    assert set(trainer.replay.sample(500)["rewards"].tolist()) == {1.75, 175.0}
    trainer.stop()


def test_statistics_of_a_round_are_means_of_its_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make({"updates_per_step": 4, "learning_starts": 1})
    losses = iter([1.0, 2.0, 4.0, 9.0])
    monkeypatch.setattr(trainer, "update", lambda _: {"loss": next(losses)})
    assert one_round(trainer, trainer.workers.sample(), monkeypatch) == {"loss": 4.0}
    trainer.stop()


# ---- the target network -------------------------------------------------------------------------


def test_the_target_becomes_what_is_learnt_after_so_many_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small = make({"tau": None, "target_network_update_freq": 48})
    followed = list[tuple[int, float]]()
    follow = small.target.update_targets

    def noted(tau: float) -> None:
        followed.append((small.progress.timesteps, tau))
        follow(tau)

    monkeypatch.setattr(small.target, "update_targets", noted)
    small.train()
    small.train()
    assert followed == [(32, 1.0), (80, 1.0)]
    small.stop()


def test_a_soft_target_follows_after_every_update() -> None:
    trainer = make({"tau": 0.25})
    trainer.train()
    before = trainer.target.network.weights()
    trainer.update_target()  # is of targets that are copied
    assert differences(before, trainer.target.network.weights()) == []
    trainer.update(trainer.replay.sample(4))
    now, online = trainer.target.network.weights(), trainer.policy.model.weights()
    for name, weight in before.items():
        np.testing.assert_allclose(now[name], weight + 0.25 * (online[name] - weight), atol=1e-6)
    trainer.stop()


@pytest.mark.parametrize("learner", ["fused", "torch"])
@pytest.mark.parametrize("way", ["weights", "weights of the policy", "state", "file"])
def test_the_target_is_that_of_loaded_weights(way: str, learner: str, tmp_path: Path) -> None:
    """Else what is learnt next would be pulled towards values of the weights before them."""
    teacher, trainer = make({"learner": learner}), make({"learner": learner})
    teacher.train()
    before = trainer.target.network.weights()
    mine, its = trainer.get_policy(), teacher.get_policy()
    assert mine is not None
    assert its is not None
    if way == "weights":
        trainer.set_weights(teacher.get_weights())
    elif way == "weights of the policy":
        mine.set_weights(its.get_weights())
    elif way == "state":
        mine.set_state(its.get_state())
    else:
        trainer.import_policy_weights(teacher.export_policy_checkpoint(str(tmp_path)))
    loaded, target = teacher.policy.weights(), trainer.target.network.weights()
    for name, weight in loaded.items():
        np.testing.assert_array_equal(target[name], weight)
    assert any((before[name] != weight).any() for name, weight in loaded.items())
    teacher.stop()
    trainer.stop()


# ---- acting -------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("env", ["vectors", "images"])
def test_acting_exporting_and_learning_see_the_same_values(
    form: str, env: str, tmp_path: Path
) -> None:
    config = dict(FORMS[form])
    if env == "images":
        config["env"] = "tests.support.spaces:AnySpaces"
        config["env_config"] = {"observation": "image"}
        config["model"] = {"hidden": [8], "conv_filters": [[4, 3, 2]]}
    trainer = make(config)
    trainer.train()
    recent = trainer.recent[:7]
    whole = np.stack([trainer.inference.initial_memory()] * len(recent))
    seen, memory, _ = trainer.inference.prepare(recent, whole)
    model, actor = trainer.policy.model, trainer.inference.actor
    with torch.no_grad():
        q = model.values(model.outputs(torch.from_numpy(seen), {})).numpy()
        noise = trainer.noise()
        shaken = model.values(model.outputs(torch.from_numpy(seen), noise)).numpy()
    found, highest = actor.forward(seen)
    np.testing.assert_allclose(found, q, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(highest, q.max(1), rtol=1e-4, atol=1e-5)
    assert actor.act(seen, memory, None).actions.tolist() == q.argmax(1).tolist()
    assert actor.act_each(seen, memory, [None] * 7)[0].tolist() == q.argmax(1).tolist()
    assert bool(noise) is bool(config.get("noisy"))
    if noise:
        rows = seen if actor._takes_vectors else actor._features(seen)
        np.testing.assert_allclose(actor._q(rows, noise), shaken, rtol=1e-3, atol=1e-4)  # type: ignore[attr-defined]
        assert np.abs(shaken - q).max() > 1e-3
    path = trainer.export_model("onnx", tmp_path)["onnx"]  # compares with the actor itself
    given = [one.name for one in onnxruntime.InferenceSession(path).get_outputs()]
    assert given == ["action_logits", "action", "value"]
    trainer.stop()


def test_exploration_falls_with_the_steps_and_evaluation_is_greedy(small: DQN) -> None:
    small.train()
    worker = small.workers.foreach_worker(lambda one: one.for_policy(lambda policy: policy))[0]
    first, last, over = 1.0, 0.05, 10_000
    assert worker.exploration.epsilon == pytest.approx(first - 48 / over * (first - last))  # type: ignore[attr-defined]  # epsilon-greedy
    assert small.evaluate() == small.evaluate()
    observation = np.array([0.1, 0.0, 0.05, 0.0], dtype=np.float32)
    best = small.compute_action(observation)
    assert {small.compute_action(observation) for _ in range(20)} == {best}
    assert {small.compute_action(observation, explore=True) for _ in range(50)} == {0, 1}


def test_noise_explores_by_itself_and_is_another_in_each_row() -> None:
    trainer = make({"noisy": True, "sigma0": 5.0})
    trainer.train()
    actor = trainer.inference.actor
    same = np.zeros((200, 4), np.float32) + 0.05
    chosen = actor.act(same, actor.initial_memory(200), np.random.default_rng(1)).actions
    assert set(chosen.tolist()) == {0, 1}
    assert len(set(actor.act(same, actor.initial_memory(200), None).actions.tolist())) == 1
    trainer.stop()


def test_importance_weights_make_up_for_priorities_more_and_more_with_the_steps() -> None:
    beta = {"prioritized_replay_beta": 0.0, "prioritized_replay_beta_annealing_timesteps": 128}
    trainer = make({"prioritized_replay": True, **beta})
    assert isinstance(trainer.replay, PrioritizedReplay)
    for power in (0.5, 1.0):
        trainer.train()  # 64 steps
        rows = trainer.replay.sample(32)
        shares = trainer.replay.get_state()["shares"][rows["indices"]]
        np.testing.assert_allclose(rows["weights"], (shares.min() / shares) ** power, rtol=1e-4)
    trainer.stop()


# ---- checkpoints --------------------------------------------------------------------------------


def test_a_restored_replay_gives_a_user_rows_of_the_same_weights() -> None:
    config = {"prioritized_replay": True, "prioritized_replay_beta_annealing_timesteps": 128}
    trainer, other = make(config), make(config)
    trainer.train()
    other.set_state(trainer.get_state())
    expected, found = (one.replay.sample(32) for one in (trainer, other))
    assert differences(expected, found) == []
    trainer.stop()
    other.stop()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("collecting", [{}, EPISODES], ids=["fragments", "filtered episodes"])
def test_a_run_is_the_same_however_it_is_sliced(
    form: str, collecting: dict[str, Any], tmp_path: Path
) -> None:
    config = {**FORMS[form], **collecting}
    whole = make(config)
    expected = [stable(whole.train()) for _ in range(5)]
    found, path = [], tmp_path
    for first, last in ((0, 1), (1, 2), (2, 5)):  # before learning has begun, and after
        part = make(config)
        if first:
            part.restore(path)
        found += [stable(part.train()) for _ in range(first, last)]
        path = part.save(tmp_path)
        if last == 5:
            assert differences(final_state(part), final_state(whole)) == []
            assert part.evaluate() == whole.evaluate()
        part.stop()
    assert differences(found, expected) == []
    whole.stop()


@pytest.mark.slow
def test_children_collect_for_it_and_a_restored_run_is_exact(tmp_path: Path) -> None:
    config = {**ALL, "num_workers": 2, "evaluation_num_workers": 1}
    first = make(config)
    first.train()
    path = first.save(tmp_path)
    expected = [stable(first.train()), first.evaluate()]
    again = make(config)
    again.restore(path)
    assert differences([stable(again.train()), again.evaluate()], expected) == []
    first.stop()
    again.stop()


@pytest.mark.slow
def test_a_child_that_dies_is_replaced_and_the_curve_stays_the_same(tmp_path: Path) -> None:
    config: dict[str, Any] = {
        "env": "tests.support.failing_workers:Failing",
        "num_workers": 2,
        "n_step": 3,
        "prioritized_replay": True,
        "recreate_failed_workers": True,
    }
    curves: list[list[dict[str, Any]]] = []
    for at in (10_000, 20):
        marker = str(tmp_path / str(at))
        trainer = make({**config, "env_config": {"what": "kill", "at": at, "marker": marker}})
        results = [stable(trainer.train()) for _ in range(3)]
        curves.append([{k: v for k, v in one.items() if k != "config"} for one in results])
        assert Path(marker).exists() is (at == 20)
        trainer.stop()
    assert differences(curves[0], curves[1]) == []


# ---- what it refuses ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"env": "Pendulum-v1"}, r"env: .* dqn needs Discrete actions.*train ppo"),
        ({"model": {"use_lstm": True}}, r"model.use_lstm: true cannot be used with dqn"),
        ({"buffer_size": 31}, r"buffer_size: 31 is less than learning_starts, which is 32"),
        (
            {"buffer_size": 40, "replay_batch_size": 41},
            r"buffer_size: 40 is less than replay_batch_size, which is 41",
        ),
        (
            {"num_atoms": 51, "v_min": 3, "v_max": 3},
            r"v_min: 3.0 is not less than v_max, which is 3.0",
        ),
        (
            {"noisy": True, "exploration_config": {"final_epsilon": 0.1}},
            r"exploration_config: has no effect with noisy: true",
        ),
        ({"num_workers": 2, "data_parallel": True}, r"data_parallel: true cannot be used with DQN"),
    ],
)
def test_what_cannot_work_together_is_refused_before_training(
    config: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        DQN.check_config({**SMALL, **config})


def test_what_nothing_reads_is_refused_from_python_unless_a_sweep_began_with_it() -> None:
    given = {**SMALL, "sigma0": 0.4}
    with pytest.raises(ConfigError, match=r"sigma0: has no effect without noisy: true"):
        DQN(given)
    DQN(given, TrialContext(has_settled_config=True)).stop()


def test_a_checkpoint_of_another_replay_is_refused(small: DQN, tmp_path: Path) -> None:
    path = small.save(tmp_path)
    for key, value in (("buffer_size", 99), ("prioritized_replay", True)):
        other = make({key: value})
        with pytest.raises(
            ConfigError, match=f"{key}: {in_yaml(value)} differs from the checkpoint's"
        ):
            other.restore(path)
        other.stop()


# ---- it learns ----------------------------------------------------------------------------------


@pytest.mark.proof
@pytest.mark.timeout(1200)
def test_dqn_learns_cartpole() -> None:
    """With the default settings, at the end of what they need and no sooner."""
    config = {"env": "CartPole-v1", "env_level": "C", "timesteps_per_iteration": 50_000}
    evaluating = {"evaluation_num_episodes": 20, "evaluation_config": {"explore": False}}
    trainer = DQN({**config, **evaluating}, TrialContext(seed=1))
    trainer.train()
    assert trainer.evaluate()["episode_reward_mean"] >= 475
    trainer.stop()

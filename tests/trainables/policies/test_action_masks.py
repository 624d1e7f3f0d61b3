"""Choices that are not valid are neither chosen nor learnt of, by any policy that reads masks."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.masked import CHOICES
from tests.support.trainers import check_restored_exactly, run
from trainables.algorithms import a2c
from trainables.algorithms.a2c import A2C
from trainables.algorithms.dqn import DQN
from trainables.algorithms.impala import IMPALA
from trainables.algorithms.ppo import PPO, STATS, Config, fused_options, ppo_loss
from trainables.algorithms.sac import SAC
from trainables.envs.spaces.actions import ActionLayout
from trainables.errors import ConfigError, EnvError
from trainables.learners.fused.ppo import FusedLearner
from trainables.policies.architecture import Architecture, OptimizerConfig
from trainables.policies.learning.torch_policy import ActorCriticPolicy, build_policy
from trainables.policies.onnx.formats import FILES, load_model
from trainables.rollout.batch import TrainBatch
from trainables.trainable import TrialContext
from trainables.trainer.families import policy_gradient
from trainables.trainer.trainer import Trainer

VAULT = "tests.support.masked:Vault"
BOARD = "tests.support.masked:Board"
#: With environments that are not measured, which would take longer than a test.
IN_INFO: dict[str, Any] = {"env": VAULT, "action_mask": "info", "env_level": "C"}
OBSERVED: dict[str, Any] = {
    "env": VAULT,
    "env_config": {"source": "observation"},
    "action_mask": "observation",
    "env_level": "C",
}
TWO: dict[str, Any] = {**IN_INFO, "env_config": {"columns": 2}}
RAINBOW = {"dueling": True, "noisy": True, "num_atoms": 5, "v_min": 0.0, "v_max": 8.0}
WARM = {"learning_starts": 64}


def make(trainer: type[Trainer], config: Mapping[str, Any], seed: int = 3) -> Trainer:
    return trainer(dict(config), TrialContext(seed=seed))


CASES: dict[str, tuple[type[Trainer], dict[str, Any]]] = {
    "ppo": (PPO, IN_INFO),
    "ppo, observed": (PPO, OBSERVED),
    "ppo, two columns": (PPO, TWO),
    "ppo in torch, two columns": (PPO, {**TWO, "learner": "torch"}),
    "ppo, filtered": (PPO, {**IN_INFO, "observation_filter": "MeanStdFilter"}),
    "ppo, one environment": (PPO, {**OBSERVED, "num_envs_per_worker": 1}),
    "ppo, whole episodes": (PPO, {**IN_INFO, "batch_mode": "complete_episodes"}),
    "ppo with a memory": (PPO, {**TWO, "model": {"use_lstm": True}}),
    "a2c": (A2C, OBSERVED),
    "ppo with a module of one's own": (
        PPO,
        {**OBSERVED, "model": {"custom_model": "tests.support.own_networks:Net"}},
    ),
    "impala": (IMPALA, IN_INFO),
    "dqn": (DQN, {**IN_INFO, **WARM}),
    "dqn of rainbow": (DQN, {**OBSERVED, **WARM, **RAINBOW}),
    "dqn, all at random": (DQN, {**IN_INFO, "exploration_config": {"final_epsilon": 1.0}}),
}


@pytest.mark.parametrize(
    ("case", "explore"),
    [*((case, False) for case in CASES), *((case, True) for case in ("ppo", "impala", "dqn"))],
)
def test_no_invalid_choice_is_ever_made(case: str, explore: bool) -> None:
    kind, config = CASES[case]
    evaluation = {"evaluation_interval": 1, "evaluation_config": {"explore": explore}}
    trainer = make(kind, {**config, "train_batch_size": 64, "rollout_fragment_length": 8})
    evaluating = make(kind, {**config, **evaluation})
    for _ in range(4):
        assert trainer.train()["hist_stats"]["episode_lengths"] == [8] * 8  # an invalid one ends it
    found = evaluating.train()["evaluation"]
    assert found["hist_stats"]["episode_lengths"] == [8] * 10
    for one in (trainer, evaluating):
        one.stop()


def test_what_only_a_mask_makes_possible_is_learnt() -> None:
    means = []
    for config in (IN_INFO, {"env": VAULT, "env_config": {"source": "nowhere"}}):
        trainer = make(PPO, config)
        while trainer.progress.timesteps < 10_000:
            result = trainer.train()
        means.append(result["episode_reward_mean"])
        trainer.stop()
    assert means[0] > 5.5  # of the valid ones at random: 4
    assert means[1] < 0.5


def test_taxi_says_its_mask_and_is_never_sent_another_action() -> None:
    trainer = make(PPO, {"env": "Taxi-v4", "action_mask": "info", "train_batch_size": 256})
    trainer.train()
    assert trainer.spaces.observation_shape == (506,)
    (sample,) = trainer.workers.sample()
    for fragment in sample.fragments:
        masks, actions = fragment.observations[..., -6:], fragment.actions
        assert (np.take_along_axis(masks, actions[..., None], axis=-1) == 1).all()
        assert masks.sum() < masks.size
    trainer.stop()


# ---- gradients ---------------------------------------------------------------------------------

LAYOUTS = {
    "discrete": ActionLayout((4,), scalar=True),
    "multi-discrete": ActionLayout((3, 3)),
    "uneven": ActionLayout((2, 4, 3)),
    "mixed": ActionLayout((3, 0, 4, 0)),
}
FEATURES = 3


def policy_of(layout: ActionLayout, hidden: tuple[int, ...] = (7, 5)) -> ActorCriticPolicy:
    architecture = Architecture((FEATURES,), (), hidden, "tanh", masks=layout.logits)
    policy = build_policy((layout, architecture), OptimizerConfig(), 3)
    policy.model.to(torch.float64)
    stream = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            drawn = torch.randn(parameter.shape, generator=stream, dtype=torch.float64)
            parameter.add_(drawn, alpha=0.3)
    return policy


def masked_batch(layout: ActionLayout, rows: int = 60) -> TrainBatch:
    """Rows in which half of the choices are not valid, and the valid ones were taken."""
    stream = np.random.default_rng(1)
    masks: list[Any] = []
    columns: list[Any] = []
    for size in layout.sizes:
        if not size:
            columns.append(stream.standard_normal(rows))
            continue
        taken = stream.integers(0, size, rows)
        mask = stream.random((rows, size)) < 0.5
        mask[np.arange(rows), taken] = True
        masks.append(mask)
        columns.append(taken)
    actions = np.stack(columns, axis=1)
    actions = actions.astype(np.float64 if layout.real_columns else np.int64)
    features = stream.standard_normal((rows, FEATURES))
    logp = -0.7 * len(layout.sizes) + 0.3 * stream.standard_normal(rows)
    return TrainBatch(
        np.concatenate([features, *masks], axis=1),
        actions[:, 0] if layout.scalar else actions,
        logp,
        *stream.standard_normal((3, rows)),
    )


def settings(**options: Any) -> Config:
    given = {"entropy_coeff": 0.1, "normalize_advantages": False, **options}
    return Config.model_validate({"environment": {"env": "CartPole-v1"}, **given})


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_gradients_in_numpy_are_those_of_torch(layout: ActionLayout) -> None:
    policy, batch, of = policy_of(layout), masked_batch(layout), settings()
    columns = {name: torch.from_numpy(one) for name, one in batch.columns().items()}
    loss, parts = ppo_loss(policy.model, columns, of)
    expected = policy.compute_gradients(loss)
    learner = FusedLearner(policy, fused_options(of), STATS)
    with learner.learning():
        found = learner.gradient(learner.columns(batch))
    np.testing.assert_allclose(found, parts, rtol=1e-7)  # the share clipped is float32
    for name, gradient in policy.gradients().items():
        np.testing.assert_allclose(gradient, expected[name], rtol=0, atol=1e-9)


def test_an_invalid_choice_has_no_share_no_entropy_and_no_gradient() -> None:
    layout = LAYOUTS["discrete"]
    policy = policy_of(layout, ())
    row, mask, action, advantage = np.array([0.3, -1.0, 0.5]), [1, 0, 1, 0], 2, 0.8
    batch = TrainBatch(
        np.array([[*row, *mask]]),
        np.array([action]),
        *(np.array([x]) for x in (0, 0, advantage, 0)),
    )
    of = a2c.Config.model_validate(
        {"environment": {"env": "CartPole-v1"}, "entropy_coeff": 0.2, "vf_loss_coeff": 0.0}
    )
    # By hand: a softmax over choices 0 and 2 alone.
    weights = policy.model.weights()
    logits = weights["actor.0.weight"] @ row + weights["actor.0.bias"]
    first = 1.0 / (1.0 + np.exp(logits[2] - logits[0]))
    shares = np.array([first, 0.0, 1.0 - first, 0.0])
    entropy = -sum(p * np.log(p) for p in shares if p)
    by_entropy = np.array([-p * (np.log(p) + entropy) if p else 0.0 for p in shares])
    by_logits = -advantage * (np.eye(4)[action] - shares) - 0.2 * by_entropy

    columns = {name: torch.from_numpy(one) for name, one in batch.columns().items()}
    loss, parts = policy_gradient.policy_gradient_loss(policy.model, columns, of)
    in_torch = policy.compute_gradients(loss)["actor.0.bias"]
    learner = FusedLearner(policy, policy_gradient.fused_options(of), policy_gradient.STATS)
    with learner.learning():
        found = learner.gradient(learner.columns(batch))
    in_numpy = policy.gradients()["actor.0.bias"]
    for policy_loss, _, measured in (parts.tolist(), found.tolist()):
        assert policy_loss == pytest.approx(-advantage * np.log(1.0 - first), rel=1e-9)
        assert measured == pytest.approx(entropy, rel=1e-9)
    for gradient in (in_torch, in_numpy):
        np.testing.assert_allclose(gradient, by_logits, rtol=0, atol=1e-9)
        assert gradient[1] == gradient[3] == 0.0


@pytest.mark.parametrize("atoms", [{}, {"num_atoms": 5}], ids=["values", "distributions"])
def test_the_conservative_penalty_leaves_out_choices_that_are_invalid(atoms: Any) -> None:
    trainer = make(DQN, {**IN_INFO, **atoms, "cql_alpha": 0.5, "n_step": 1})
    assert isinstance(trainer, DQN)
    masks = np.zeros((2, CHOICES), np.float32)
    masks[:, [3, 7]] = 1.0
    batch = {
        "observations": np.concatenate([np.zeros((2, 1), np.float32), masks], axis=1),
        "actions": np.array([3, 4]),  # the second is invalid, and was taken all the same
        "rewards": np.zeros(2, np.float32),
        "terminated": np.ones(2, np.bool_),
    }
    batch["new_obs"] = batch["observations"]
    given = {name: torch.from_numpy(column) for name, column in batch.items()}
    model = trainer.policy.model
    values = model.values(model.outputs(given["observations"], {}))
    taken = values[[0, 1], given["actions"]]
    penalty = 0.5 * (values[:, [3, 7]].logsumexp(1) - taken)
    with_penalty = trainer.differences(given).losses
    trainer.settings = trainer.settings.model_copy(update={"cql_alpha": 0.0})
    added = with_penalty - trainer.differences(given).losses
    trainer.stop()
    torch.testing.assert_close(added, penalty, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("learner", ["fused", "torch"])
@pytest.mark.parametrize("double", [False, True])
def test_a_target_takes_the_best_of_the_valid_choices(learner: str, double: bool) -> None:
    given = {"double_q": double, "learner": learner, "gamma": 0.5, "tau": None, "n_step": 1}
    trainer = make(DQN, {**IN_INFO, **given})
    assert isinstance(trainer, DQN)
    stream = np.random.default_rng(2)
    features = stream.standard_normal((5, 1)).astype(np.float32)
    masks = (stream.random((5, CHOICES)) < 0.2).astype(np.float32)
    masks[:, 3] = 1.0
    masks[4] = 0.0  # as after an episode's end
    rows = np.concatenate([features, masks], axis=1)
    batch = {
        "observations": np.concatenate([features, np.ones_like(masks)], axis=1),
        "actions": np.zeros(5, dtype=np.int64),
        "rewards": np.ones(5, dtype=np.float32),
        "new_obs": rows,
        "terminated": np.array([False, False, False, False, True]),
    }
    for network in (trainer.policy.model, trainer.target.network):
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.add_(torch.from_numpy(stream.normal(0, 0.2, parameter.shape)).float())
    judge, values = (
        network.outputs(torch.from_numpy(rows), {}).detach().numpy()[..., 0]
        for network in (
            trainer.policy.model if double else trainer.target.network,
            trainer.target.network,
        )
    )
    before = trainer.policy.model.outputs(torch.from_numpy(rows), {}).detach().numpy()[:, 0, 0]
    best = np.where(masks > 0, judge, -np.inf)[:4].argmax(axis=1)
    assert any(best[i] != judge[i].argmax() for i in range(4))
    goals = [1.0 + 0.5 * values[i, best[i]] for i in range(4)] + [1.0]
    if learner == "torch":
        found = trainer.differences({n: torch.from_numpy(c) for n, c in batch.items()}).errors
    else:
        fused = trainer._fused_learner
        assert fused is not None
        with fused.learning():
            found = torch.from_numpy(fused.gradient(batch)[2])
    np.testing.assert_allclose(found, np.abs(before - goals), rtol=0, atol=1e-5)
    trainer.stop()


# ---- what people see ---------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["info", "observation"])
@pytest.mark.parametrize(
    ("fault", "says"),
    [("missing", "missing"), ("empty", "no valid choice"), ("short", "30 numbers")],
)
def test_a_mask_that_is_none_is_one_line_with_environment_and_step(
    where: str, fault: str, says: str
) -> None:
    config = {"env": VAULT, "action_mask": where, "env_config": {"source": where, "fault": fault}}
    trainer = make(PPO, config)
    with pytest.raises(EnvError, match="worker 0, environment 0: step 2 of its episode") as raised:
        trainer.train()
    assert says in str(raised.value)
    assert f'{where}["action_mask"] is' in str(raised.value)
    assert "\n" not in str(raised.value)
    trainer.stop()


def test_where_an_episode_ends_nothing_need_be_valid() -> None:
    for kind in (PPO, DQN):
        config = {"env": BOARD, "action_mask": "observation", **({} if kind is PPO else WARM)}
        trainer = make(kind, {**config, "train_batch_size": 128})
        for _ in range(3):
            result = trainer.train()
            assert result["episode_len_mean"] == 9.0
            assert all(np.isfinite(x) for x in result["learner"].values())
        trainer.stop()


def test_an_action_is_computed_of_an_observation_with_its_mask() -> None:
    for config in (IN_INFO, OBSERVED, TWO):
        trainer = make(PPO, config)
        mask = np.zeros(trainer.spaces.layout.logits, dtype=np.int8)
        mask[7] = mask[CHOICES - 1 + (config is TWO)] = 1
        observation: dict[str, Any] = {
            "observation": np.ones(1 + (config is TWO), dtype=np.float32),
            "action_mask": mask,
        }
        for _ in range(20):
            chosen = np.atleast_1d(trainer.compute_action(observation, explore=True))
            assert chosen.tolist() in ([[7, 0]] if config is TWO else [[7 + 5], [CHOICES - 1 + 5]])
        with pytest.raises(EnvError, match="a part of the action has no valid choice"):
            trainer.compute_action({**observation, "action_mask": mask * 0})
        trainer.stop()


EXPORTED = (
    *("ppo, filtered", "ppo with a memory", "ppo with a module of one's own"),
    *("dqn of rainbow", "a2c"),
)


@pytest.mark.parametrize("case", EXPORTED)
def test_an_exported_policy_takes_the_mask_as_an_input(case: str, tmp_path: Path) -> None:
    kind, config = CASES[case]
    trainer = make(kind, config)
    trainer.train()
    files = trainer.export_model(list(FILES), tmp_path)
    stream = np.random.default_rng(3)
    sizes, count = trainer.spaces.layout.sizes, 20
    masks = [np.eye(size, dtype=np.int8)[stream.integers(0, size, count)] for size in sizes]
    inputs: dict[str, Any] = {
        "observation.observation": stream.normal(0, 1, (count, len(sizes))).astype(np.float32),
        "observation.action_mask": np.concatenate(masks, axis=1),
        **{name: np.zeros((count, 64), np.float32) for name in ("state_in_0", "state_in_1")},
    }
    taken = trainer.describe_model()["inputs"]
    assert "observation.action_mask" in taken
    for form in FILES:
        given = load_model(Path(files[form]))({name: inputs[name] for name in taken})
        chosen = given["action"].reshape(count, -1) - (5 if len(sizes) == 1 else 0)
        assert chosen.tolist() == np.stack([m.argmax(1) for m in masks], axis=1).tolist()
    trainer.stop()


@pytest.mark.parametrize(
    ("trainer", "config", "says"),
    [
        (SAC, {"env": VAULT, "action_mask": "info"}, "action_mask: info cannot be used with SAC"),
        (
            PPO,
            {"env": "CartPole-v1", "action_mask": "info", "native_vector_env": True},
            "action_mask: info cannot be used with native_vector_env",
        ),
        (PPO, {"env": "Pendulum-v1", "action_mask": "info"}, "action_mask: info.*real-valued"),
        (
            PPO,
            {"env": "CartPole-v1", "action_mask": "observation"},
            "action_mask: observation needs observations that are a Dict",
        ),
        (
            PPO,
            {**IN_INFO, "evaluation_interval": 1, "evaluation_config": {"action_mask": None}},
            "evaluation_config.action_mask",
        ),
    ],
)
def test_a_mask_that_cannot_be_is_refused(
    trainer: type[Trainer], config: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        trainer.check_config(config)


@pytest.mark.parametrize("case", ["ppo with a memory", "dqn", "ppo, filtered"])
def test_a_restored_trial_equals_the_uninterrupted_one(case: str, tmp_path: Path) -> None:
    kind, config = CASES[case]
    config = {**config, "rollout_fragment_length": 6, "env_level": "auto"}
    straight = make(kind, config)
    run(straight, 2)
    other = make(kind, config, seed=4)
    other.train()
    check_restored_exactly(straight, other, tmp_path)
    straight.stop()


def test_a_policy_that_knew_no_mask_is_not_restored_where_there_is_one() -> None:
    plain = make(PPO, {"env": VAULT, "env_config": {"source": "nowhere"}})
    masked = make(PPO, IN_INFO)
    with pytest.raises(ConfigError, match="action_mask"):
        masked.set_state(plain.get_state())
    for one in (plain, masked):
        one.stop()

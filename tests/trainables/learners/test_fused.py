"""The learner in numpy, in C and in torch: all make the same steps and share one state."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.support.kernels import kernel
from tests.support.trainers import differences
from trainables.algorithms.ppo import STATS, Config, fused_options, ppo_loss
from trainables.envs.spaces.actions import ActionLayout
from trainables.errors import NotFiniteError
from trainables.learners import sgd
from trainables.learners.fused.compiled import CompiledLearner
from trainables.learners.fused.flat import FlatOptimizer
from trainables.learners.fused.ppo import FusedLearner, Loss
from trainables.learners.sgd import Learner
from trainables.learners.standardizing import LEAST_ROWS
from trainables.learners.torch_learner import TorchLearner
from trainables.policies.architecture import Activation, Architecture, OptimizerConfig
from trainables.policies.learning.torch_policy import ActorCriticPolicy, build_policy
from trainables.rollout.batch import TrainBatch
from trainables.trainer.families import policy_gradient
from trainables.trainer.families.policy_gradient import PolicyGradientConfig

#: What actions may be, by the sizes of their columns; 0 is a real number.
LAYOUTS = {
    "discrete": ActionLayout((3,), scalar=True),
    "multi-discrete": ActionLayout((3, 3)),
    "uneven": ActionLayout((2, 4, 3)),
    "box": ActionLayout((0, 0, 0)),
    "mixed": ActionLayout((2, 0, 3, 0)),
}
HIDDEN = ((), (8,), (7, 5), (6, 5, 4))
ACTIVATIONS: tuple[Activation, ...] = ("tanh", "relu")
#: Options of the loss, each away from its default.
OPTIONS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "entropy": {"entropy_coeff": 0.03},
    "values clipped": {"vf_clip_param": 0.2, "vf_loss_coeff": 0.7},
    "advantages as they are": {"normalize_advantages": False, "clip_param": 0.05},
    "all": {"entropy_coeff": 0.1, "vf_clip_param": 0.5, "clip_param": 0.4, "vf_loss_coeff": 1.3},
}
FEATURES = 5


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """As a trainer sets it; threads that wait for each other cost more than these products."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def settings(**options: Any) -> Config:
    many = {"num_sgd_iter": 3, "sgd_minibatch_size": 24, **options}
    return Config.model_validate({"environment": {"env": "CartPole-v1"}, **many})


def make_policy(
    layout: ActionLayout,
    hidden: tuple[int, ...] = (7, 5),
    activation: Activation = "tanh",
    dtype: torch.dtype = torch.float64,
    **optimizer: Any,
) -> ActorCriticPolicy:
    """A policy that is not at its beginning, where log-probabilities are all alike."""
    architecture = Architecture((FEATURES,), (), hidden, activation)
    policy = build_policy((layout, architecture), OptimizerConfig(**optimizer), 3)
    policy.model.to(dtype)
    stream = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=stream, dtype=dtype), alpha=0.3)
    return policy


def batch_of(layout: ActionLayout, rows: int = 100, seed: int = 0, kind: Any = np.float64) -> Any:
    """Rows of which many are beyond every bound of the loss."""
    stream = np.random.default_rng(seed)
    columns = [
        stream.integers(0, size, rows) if size else stream.standard_normal(rows)
        for size in layout.sizes
    ]
    actions = np.stack(columns, axis=1).astype(kind if layout.real_columns else np.int64)
    logp = -1.1 * len(layout.sizes) + 0.5 * stream.standard_normal(rows)
    values, advantages, returns = stream.standard_normal((3, rows)).astype(kind)
    observations = stream.standard_normal((rows, FEATURES)).astype(kind)
    actions = actions[:, 0] if layout.scalar else actions
    return TrainBatch(observations, actions, logp.astype(kind), values, advantages, returns)


#: How wide the registers of the kernel are that makes the steps; 0: numpy makes them.
WAYS = [
    pytest.param(0, id="numpy"),
    pytest.param(256, id="AVX2", marks=pytest.mark.slow),
    pytest.param(512, id="AVX-512", marks=pytest.mark.slow),
]
_way = [0]


@pytest.fixture(autouse=True, params=WAYS)
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test here is one of numpy, and of the kernel with each width of registers."""
    if request.param:
        kernel(request.param)  # skips where there is none
    _way[0] = request.param
    yield
    _way[0] = 0


def ours(policy: ActorCriticPolicy, of: Config) -> FusedLearner:
    return learner_of(policy, fused_options(of), STATS)


def learner_of(policy: ActorCriticPolicy, loss: Loss, stats: tuple[str, ...]) -> FusedLearner:
    if not _way[0]:
        return FusedLearner(policy, loss, stats)
    wide = policy.parameters["actor.0.weight"].dtype == torch.float64
    return CompiledLearner(policy, loss, stats, kernel=kernel(_way[0], wide))


def theirs(policy: ActorCriticPolicy, of: Config) -> TorchLearner:
    loss = partial(ppo_loss, settings=of)
    return TorchLearner(policy, loss, STATS, of.grad_clip)


def learn(
    learner: Learner, batch: TrainBatch, of: Config, seed: int | np.random.Generator = 0
) -> dict[str, float]:
    """What a learner says of its steps on one batch."""
    return sgd.learn(
        learner,
        batch,
        np.random.default_rng(seed),
        epochs=of.num_sgd_iter,
        minibatch_size=of.minibatch_size,
        rate=1e-3,
        target_kl=of.target_kl,
        normalize_advantages=of.normalize_advantages,
    )


BOTH: tuple[Callable[..., Learner], ...] = (ours, theirs)


def weights(policy: ActorCriticPolicy) -> Mapping[str, Any]:
    return policy.model.weights()


def assert_close(found: Mapping[str, Any], expected: Mapping[str, Any], tolerance: float) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        scale = max(1.0, float(np.abs(value).max()))
        np.testing.assert_allclose(found[name], value, rtol=0, atol=tolerance * scale, err_msg=name)


# ---- one gradient ----------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_gradients_are_those_of_torch(layout: ActionLayout, options: dict[str, Any]) -> None:
    batch, of = batch_of(layout), settings(**options)
    for hidden, activation in itertools.product(HIDDEN, ACTIVATIONS):
        policy = make_policy(layout, hidden, activation)
        found, gradients, expected, expected_gradients = both_gradients(policy, batch, of)
        np.testing.assert_allclose(found, expected, rtol=1e-7)
        assert 0.1 < found[STATS.index("clip_fraction")] < 1.0
        for name, gradient in gradients.items():
            scale = max(np.abs(expected_gradients[name]).max(), 1e-3)
            worst = np.abs(gradient - expected_gradients[name]).max() / scale
            assert worst < 1e-9, f"{name} of {hidden} with {activation}: {worst}"


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_what_is_evaluated_anew_is_what_torch_says(layout: ActionLayout) -> None:
    batch = batch_of(layout)
    for hidden, activation in itertools.product(HIDDEN, ACTIVATIONS):
        policy = make_policy(layout, hidden, activation)
        found, expected = (make(policy, settings()).evaluate(batch) for make in BOTH)
        assert np.ptp(expected[0]) > 0.1 and np.ptp(expected[1]) > 0.1
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)


def test_images_without_convolutions_are_rows_of_pixels() -> None:
    layout = LAYOUTS["discrete"]
    architecture = Architecture((2, 3, 1), (), (4,), "relu")
    policy = build_policy((layout, architecture), OptimizerConfig(), 3)
    images = np.random.default_rng(1).integers(0, 256, (40, 2, 3, 1)).astype(np.uint8)
    columns = vars(batch_of(layout, 40, kind=np.float32))
    batch = TrainBatch(**{**columns, "observations": images})
    _, gradients, _, expected = both_gradients(policy, batch, settings())
    assert_close(gradients, expected, 1e-5)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("normalize", [False, True])
def test_the_policys_own_gradient_is_that_of_torch(layout: ActionLayout, normalize: bool) -> None:
    given = {"entropy_coeff": 0.03, "vf_loss_coeff": 0.7, "normalize_advantages": normalize}
    of = PolicyGradientConfig.model_validate({"environment": {"env": "CartPole-v1"}, **given})
    batch, policy = batch_of(layout), make_policy(layout)
    columns = {name: torch.from_numpy(one) for name, one in batch.columns().items()}
    loss, parts = policy_gradient.policy_gradient_loss(policy.model, columns, of)
    expected = policy.compute_gradients(loss)
    learner = learner_of(policy, policy_gradient.fused_options(of), policy_gradient.STATS)
    with learner.learning():
        found = learner.gradient(learner.columns(batch))
    np.testing.assert_allclose(found, parts, rtol=1e-7)
    assert_close(policy.gradients(), expected, 1e-9)


def both_gradients(
    policy: ActorCriticPolicy, batch: TrainBatch, of: Config
) -> tuple[Any, Any, Any, Any]:
    """The parts of the loss and its gradients: in numpy, then in torch."""
    columns = {name: torch.from_numpy(one) for name, one in batch.columns().items()}
    loss, parts = ppo_loss(policy.model, columns, of)
    expected = policy.compute_gradients(loss)
    learner = ours(policy, of)
    with learner.learning():
        found = learner.gradient(learner.columns(batch))
    gradients = {name: one.copy() for name, one in policy.gradients().items()}
    return found, gradients, parts.tolist(), expected


# ---- updates ---------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_one_update_is_that_of_torch(layout: ActionLayout) -> None:
    of = settings(entropy_coeff=0.01, num_sgd_iter=1)
    batch = batch_of(layout, kind=np.float32)
    policies = [make_policy(layout, dtype=torch.float32) for _ in range(2)]
    told = [learn(make(one, of), batch, of) for make, one in zip(BOTH, policies, strict=True)]
    assert_close(weights(policies[0]), weights(policies[1]), 1e-5)
    assert told[0].keys() == told[1].keys() == {*STATS, "explained_variance", "lr", "grad_norm"}
    for name, value in told[1].items():
        assert told[0][name] == pytest.approx(value, rel=1e-4, abs=1e-5), name


@pytest.mark.parametrize("size", [1, 3, LEAST_ROWS - 1])
def test_minibatches_of_few_rows_are_standardised_by_the_whole_batch(size: int) -> None:
    layout, of = LAYOUTS["discrete"], settings(sgd_minibatch_size=size)
    batch = batch_of(layout, 22)
    scaled = (batch.advantages - batch.advantages.mean()) / (batch.advantages.std() + 1e-8)
    by_hand = TrainBatch(**{**vars(batch), "advantages": scaled})
    plain = settings(sgd_minibatch_size=size, normalize_advantages=False)
    expected = make_policy(layout)
    learn(theirs(expected, plain), by_hand, plain)
    begun = weights(make_policy(layout))["actor.0.weight"]
    assert np.abs(weights(expected)["actor.0.weight"] - begun).max() > 1e-3
    for make in BOTH:
        policy = make_policy(layout)
        learn(make(policy, of), batch, of)
        assert_close(weights(policy), weights(expected), 1e-7)


def test_a_batch_of_one_row_is_learnt_from_as_it_is_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    layout, of = LAYOUTS["discrete"], settings()
    batch = batch_of(layout, 1)
    for make in BOTH:
        caplog.clear()
        policy, plain = make_policy(layout), make_policy(layout)
        learn(make(policy, of), batch, of)
        assert "one row to learn from" in caplog.text
        caplog.clear()
        learn(make(plain, settings(normalize_advantages=False)), batch, of)
        assert_close(weights(policy), weights(plain), 1e-7)


OPTIMIZERS: dict[str, tuple[dict[str, Any], float | None]] = {
    "defaults": ({}, 0.5),
    "not clipped": ({}, None),
    "rmsprop": ({"name": "rmsprop", "alpha": 0.9}, 0.5),
    "rmsprop, weights decay": ({"name": "rmsprop", "weight_decay": 0.1, "eps": 1e-3}, None),
    "weights decay": ({"weight_decay": 0.1, "betas": (0.8, 0.95), "eps": 1e-3}, 0.5),
}


#: Each layout once, and each optimiser: what one does has nothing to do with the other.
PAIRS = [(name, "defaults") for name in LAYOUTS] + [
    ("mixed", name) for name in OPTIMIZERS if name != "defaults"
]


@pytest.mark.parametrize(("columns", "steps"), PAIRS)
def test_twenty_iterations_are_those_of_torch(columns: str, steps: str) -> None:
    layout, (optimizer, grad_clip) = LAYOUTS[columns], OPTIMIZERS[steps]
    of = settings(entropy_coeff=0.01, vf_clip_param=0.5, grad_clip=grad_clip)
    policies = [make_policy(layout, **optimizer) for _ in range(2)]
    for make, policy in zip(BOTH, policies, strict=True):
        learner, stream = make(policy, of), np.random.default_rng(2)
        for iteration in range(20):  # minibatches of several sizes
            learn(learner, batch_of(layout, 90 + iteration, seed=iteration), of, stream)
    assert_close(weights(policies[0]), weights(policies[1]), 1e-6)
    found, expected = (policy.get_state()["optimizer"] for policy in policies)
    for name, moments in expected.items():
        assert_close(found[name], moments, 1e-6)


def test_epochs_end_at_the_bound_of_the_divergence() -> None:
    layout = LAYOUTS["discrete"]
    for make in BOTH:
        policy, of = make_policy(layout), settings(target_kl=1e-6)
        learn(make(policy, of), batch_of(layout), of)
        steps = policy.get_state()["optimizer"]["actor.0.bias"]["step"]
        assert steps == math.ceil(100 / 24)


def test_each_epoch_is_held_against_the_bound_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    layout, of = LAYOUTS["discrete"], settings(target_kl=0.1)
    learner, divergences = ours(make_policy(layout), of), itertools.chain([0.0] * 5, [0.15] * 99)

    def step(*_: object) -> tuple[NDArray[Any], float]:
        return np.array([0.0, 0.0, 0.0, next(divergences), 0.0]), 0.0

    monkeypatch.setattr(learner, "step", step)
    assert learn(learner, batch_of(layout), of)["kl"] == pytest.approx(0.075)  # of two epochs


# ---- one state -------------------------------------------------------------------------------


def test_a_state_goes_on_to_the_bit() -> None:
    layout, of = LAYOUTS["mixed"], settings()
    batches = [batch_of(layout, seed=seed, kind=np.float32) for seed in range(4)]
    straight = make_policy(layout, dtype=torch.float32)
    learner = ours(straight, of)
    for seed, batch in enumerate(batches):
        if seed == 2:
            state = straight.get_state()
        learn(learner, batch, of, seed)
    restored = make_policy(layout, dtype=torch.float32)
    again = ours(restored, of)
    learn(again, batches[3], of, 9)  # it has learnt something else
    restored.set_state(state)
    for seed in (2, 3):
        learn(again, batches[seed], of, seed)
    assert differences(restored.get_state(), straight.get_state()) == []


def test_both_learners_take_turns_on_one_policy() -> None:
    layout, of = LAYOUTS["box"], settings()
    policies = [make_policy(layout) for _ in range(2)]
    in_turn = [make(policies[0], of) for make in BOTH]
    for turn in range(6):
        batch = batch_of(layout, seed=turn)
        learn(in_turn[turn % 2], batch, of, turn)
        learn(theirs(policies[1], of), batch, of, turn)
    assert_close(weights(policies[0]), weights(policies[1]), 1e-9)


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
def test_moments_of_what_has_no_gradient_come_to_nothing_before_they_are_subnormal(
    optimizer: str,
) -> None:
    policy = make_policy(LAYOUTS["box"], dtype=torch.float32, name=optimizer)
    shapes = {name: tuple(one.shape) for name, one in policy.parameters.items()}
    flat = FlatOptimizer(shapes, np.float32, policy.get_hyperparameters())
    moments, smallest = flat.vectors[2:4], np.finfo(np.float32).tiny
    for step in range(12_000):
        flat.gradient[:] = 1e-3 if step == 0 else 0.0
        flat.step(1e-3, None)
        assert not ((moments != 0) & (np.abs(moments) < smallest)).any()
    kept = moments[0] if optimizer == "adam" else moments[1]
    assert not kept.any()


def test_steps_of_some_parameters_count_for_them_alone() -> None:
    layout, of = LAYOUTS["discrete"], settings()
    policies = [make_policy(layout) for _ in range(2)]
    for make, policy in zip(BOTH, policies, strict=True):
        learner = make(policy, of)
        for turn in range(3):
            learn(learner, batch_of(layout, seed=turn), of, turn)
            policy.apply_gradients({"critic.0.bias": np.ones(7)}, 1e-3, None)
        moments = policy.get_state()["optimizer"]
        assert moments["critic.0.bias"]["step"] == moments["actor.0.bias"]["step"] + 3
    assert_close(weights(policies[0]), weights(policies[1]), 1e-9)


def test_weights_that_are_loaded_are_learnt_from_and_gradients_are_the_latest() -> None:
    layout, of = LAYOUTS["discrete"], settings()
    policies = [make_policy(layout) for _ in range(2)]
    for make, policy in zip(BOTH, policies, strict=True):
        learner = make(policy, of)
        assert policy.gradients() == {}
        learn(learner, batch_of(layout), of)
        policy.model.load_weights({n: w * 0.5 for n, w in weights(make_policy(layout)).items()})
        learn(learner, batch_of(layout, seed=1), of)
    assert_close(weights(policies[0]), weights(policies[1]), 1e-9)
    found, expected = (policy.gradients() for policy in policies)
    assert_close(found, expected, 1e-9)


# ---- numbers that are none -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "value", "told"),
    [
        ("returns", math.nan, "the loss is nan"),
        ("returns", 1e30, "the loss is inf"),
        ("advantages", math.inf, "the loss is nan"),
        ("logp", -math.inf, "the gradient's norm is nan"),
    ],
)
@pytest.mark.parametrize("make", BOTH, ids=["fused", "torch"])
def test_what_is_not_finite_is_refused_and_moves_nothing(
    make: Callable[..., Learner], column: str, value: float, told: str
) -> None:
    layout, of = LAYOUTS["discrete"], settings(num_sgd_iter=1, sgd_minibatch_size=100)
    good = batch_of(layout, kind=np.float32)
    broken = getattr(good, column).copy()
    broken[np.argmax(good.advantages)] = value
    bad = TrainBatch(**{**vars(good), column: broken})
    policy = make_policy(layout, dtype=torch.float32)
    learner = make(policy, of)
    learn(learner, good, of)
    before = policy.get_state()
    advice = "; a smaller lr, a grad_clip or clip_rewards may keep it finite"
    with pytest.raises(NotFiniteError, match=f"{told}{advice}$"):
        learn(learner, bad, of)
    assert differences(policy.get_state(), before) == []

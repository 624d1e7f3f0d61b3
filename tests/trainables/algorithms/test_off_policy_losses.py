"""Losses and gradients of SAC and TD3, by either learner, equal plain ones that stand here."""

import math
import tracemalloc
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import Normal

from trainables.algorithms.sac import SAC
from trainables.algorithms.td3 import TD3
from trainables.policies.bounded.twins import Twins
from trainables.trainable import TrialContext

Rows = Mapping[str, NDArray[Any]]
ROWS, GAMMA, TAU = 33, 0.97, 0.01
SMALL: dict[str, Any] = {
    "buffer_size": 100,
    "learning_starts": 8,
    "replay_batch_size": 8,
    "gamma": GAMMA,
    "tau": TAU,
    "lr": 2e-3,
    "model": {"hidden": [16, 12]},
}
KINDS: dict[str, dict[str, Any]] = {
    "drawn": {},
    "tanh": {"model": {"hidden": [16, 12], "activation": "tanh"}},
    "gsde": {"exploration_config": {"type": "StateDependentNoise", "log_std_init": -1.0}},
}
#: The kind whose means lie on both sides of the bound at which they are clipped.
AT_THE_BOUND, BOUND = "gsde, at the bound", 2.0


def batch(space: str, seed: int = 0) -> Rows:
    """Random transitions, of which some end and some are cut off."""
    stream = np.random.default_rng(seed)
    actions: NDArray[Any] = stream.uniform(-2, 2, (ROWS, 1)).astype(np.float32)
    if space == "CartPole-v1":
        actions = stream.integers(0, 2, ROWS)
    features = 4 if space == "CartPole-v1" else 3
    return {
        "observations": stream.standard_normal((ROWS, features)).astype(np.float32),
        "actions": actions,
        "rewards": stream.standard_normal(ROWS).astype(np.float32),
        "new_obs": stream.standard_normal((ROWS, features)).astype(np.float32),
        "terminated": stream.random(ROWS) < 0.3,
    }


class Plain:
    """A policy's networks run by torch, on copies of their weights."""

    def __init__(self, model: Twins) -> None:
        self.of = {n: p.detach().clone().requires_grad_() for n, p in model.named_parameters()}
        self.activation = torch.tanh if model.architecture.activation == "tanh" else torch.relu
        self.layers = len(model.actor)

    def actor(self, x: Tensor, name: str = "actor") -> tuple[Tensor, Tensor]:
        for i in range(self.layers):
            units = x
            x = x @ self.of[f"{name}.{i}.weight"].T + self.of[f"{name}.{i}.bias"]
            x = self.activation(x) if i < self.layers - 1 else x
        return x, units

    def critics(self, x: Tensor, name: str = "critics") -> Tensor:
        both = []
        for k in range(2):
            y = x
            for i in range(self.layers):
                y = y @ self.of[f"{name}.{i}.weight"][k] + self.of[f"{name}.{i}.bias"][k]
                y = self.activation(y) if i < self.layers - 1 else y
            both.append(y)
        return torch.stack(both)

    def drawn(self, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        head, units = self.actor(x)
        if "actor_log_std" in self.of:
            std = self.of["actor_log_std"].exp()
            mean, away = head.clamp(-2, 2), units @ (std * noise)
            deviation = (units.square() @ std.square() + 1e-6).sqrt()
        else:
            mean, log_std = head.chunk(2, dim=1)
            deviation = log_std.clamp(-20, 2).exp()
            away = deviation * noise
        drawn = mean + away
        logp: Tensor = Normal(mean, deviation).log_prob(drawn)  # type: ignore[no-untyped-call]
        logp = logp - torch.log(1 - drawn.tanh().square())
        return drawn.tanh(), logp.sum(1)


def in_doubles(trainer: SAC | TD3) -> None:
    """Let the networks have float64 weights, of which the actor's head decides something."""
    stream = torch.Generator().manual_seed(3)
    for parameter in trainer.policy.model.parameters():
        parameter.data = parameter.data.double()
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=stream, dtype=torch.float64)


def tensors(rows: Rows) -> dict[str, Tensor]:
    return {
        name: torch.from_numpy(column if column.dtype != np.float32 else column.astype(np.float64))
        for name, column in rows.items()
    }


def assert_same(trainer: SAC | TD3, plain: Plain, part: str) -> None:
    """The gradients of all parameters that begin so are those of torch's graph."""
    compared = 0
    for name, parameter in trainer.policy.model.named_parameters():
        if name.startswith(part):
            found, expected = parameter.grad, plain.of[name].grad
            assert found is not None
            assert expected is not None
            assert expected.abs().max() > 0
            torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
            compared += 1
    assert compared


@pytest.fixture(params=["fused", "torch"])
def learner(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[*KINDS, AT_THE_BOUND])
def of_numbers(request: pytest.FixtureRequest, learner: str) -> Iterator[SAC]:
    kind = KINDS["gsde" if request.param == AT_THE_BOUND else request.param]
    settings = {**SMALL, "env": "Pendulum-v1", "learner": learner, **kind}
    trainer = SAC(settings, TrialContext(seed=1))
    in_doubles(trainer)
    if request.param == AT_THE_BOUND:
        trainer.policy.model.get_parameter("actor.2.bias").data.fill_(BOUND)
        means, _ = trainer.policy.model.heads(tensors(batch("Pendulum-v1"))["observations"])
        assert 0 < (means > BOUND).sum() < ROWS
    yield trainer
    trainer.stop()


def test_sac_of_numbers_is_as_published(of_numbers: SAC) -> None:
    plain, losses = Plain(of_numbers.policy.model), of_numbers.losses
    rows = batch("Pendulum-v1")
    losses.begin(rows, np.random.default_rng(7))
    stream = np.random.default_rng(7)
    shape = (12, 1) if "actor_log_std" in plain.of else (2 * ROWS, 1)
    noise = torch.from_numpy(stream.standard_normal(shape, np.float32).astype(np.float64))
    first, second = (noise, noise) if "actor_log_std" in plain.of else (noise[:ROWS], noise[ROWS:])
    of = tensors(rows)
    alpha = plain.of["log_alpha"].exp().detach()

    critic_loss, mean_q = losses.critics(rows)
    with torch.no_grad():
        following, logp = plain.drawn(of["new_obs"], second)
        least = plain.critics(torch.cat([of["new_obs"], following], 1), "targets").min(0).values
        goes_on = (~of["terminated"]).double()
        targets = of["rewards"] + GAMMA * goes_on * (least.squeeze(1) - alpha * logp)
    # The action space of Pendulum is (-2, 2).
    q = plain.critics(torch.cat([of["observations"], of["actions"] / 2], 1)).squeeze(2)
    loss = sum(0.5 * torch.nn.functional.mse_loss(one, targets) for one in q)
    assert isinstance(loss, Tensor)
    torch.autograd.backward(loss)
    assert critic_loss == pytest.approx(loss.item(), rel=1e-9)
    assert mean_q == pytest.approx(q.mean().item(), rel=1e-9)
    assert_same(of_numbers, plain, "critics.")

    actor_loss = losses.actor()
    drawn, logp = plain.drawn(of["observations"], first)
    q = plain.critics(torch.cat([of["observations"], drawn], 1))
    loss = (alpha * logp - q.min(0).values.squeeze(1)).mean()
    torch.autograd.backward(loss)
    assert actor_loss == pytest.approx(loss.item(), rel=1e-9)
    assert_same(of_numbers, plain, "actor.")
    if "actor_log_std" in plain.of:
        assert_same(of_numbers, plain, "actor_log_std")

    losses.temperature()
    plain.of["log_alpha"].grad = None
    torch.autograd.backward(-(plain.of["log_alpha"] * (logp.detach() - 1.0)).mean())
    assert_same(of_numbers, plain, "log_alpha")


def test_deviations_below_their_least_have_that_and_no_gradient(learner: str) -> None:
    trainer = SAC({**SMALL, "env": "Pendulum-v1", "learner": learner}, TrialContext(seed=1))
    in_doubles(trainer)
    bias = trainer.policy.model.get_parameter("actor.2.bias")
    bias.data[1] = -50.0
    rows = batch("Pendulum-v1")
    means = Plain(trainer.policy.model).actor(tensors(rows)["observations"])[0][:, 0]
    noise = np.random.default_rng(7).standard_normal((2 * ROWS, 1), np.float32)[:ROWS, 0]
    each = 0.5 * np.square(noise) - 20.0 + 0.5 * math.log(2 * math.pi)
    slopes = torch.log(1 - means.tanh().square()).detach().numpy()
    trainer.losses.begin(rows, np.random.default_rng(7))
    trainer.losses.actor()
    assert float(trainer.losses.entropy) == pytest.approx((each + slopes).mean(), rel=1e-6)
    assert bias.grad is not None
    assert bias.grad[0] != 0.0
    assert bias.grad[1] == 0.0
    trainer.stop()


def test_sac_of_choices_is_as_published(learner: str) -> None:
    trainer = SAC({**SMALL, "env": "CartPole-v1", "learner": learner}, TrialContext(seed=1))
    in_doubles(trainer)
    plain, losses, rows = Plain(trainer.policy.model), trainer.losses, batch("CartPole-v1")
    of, alpha = tensors(rows), plain.of["log_alpha"].exp().detach()
    losses.begin(rows, np.random.default_rng(7))

    critic_loss, _ = losses.critics(rows)
    with torch.no_grad():
        logs = plain.actor(of["new_obs"])[0].log_softmax(1)
        least = plain.critics(of["new_obs"], "targets").min(0).values
        following = (logs.exp() * (least - alpha * logs)).sum(1)
        targets = of["rewards"] + GAMMA * (~of["terminated"]).double() * following
    q = plain.critics(of["observations"])[:, torch.arange(ROWS), of["actions"]]
    loss = 0.5 * (q - targets).square().mean(1).sum()
    torch.autograd.backward(loss)
    assert critic_loss == pytest.approx(loss.item(), rel=1e-9)
    assert_same(trainer, plain, "critics.")

    actor_loss = losses.actor()
    logs = plain.actor(of["observations"])[0].log_softmax(1)
    least = plain.critics(of["observations"]).detach().min(0).values
    loss = (logs.exp() * (alpha * logs - least)).sum(1).mean()
    torch.autograd.backward(loss)
    assert actor_loss == pytest.approx(loss.item(), rel=1e-9)
    assert_same(trainer, plain, "actor.")

    losses.temperature()
    entropy = -(logs.exp() * logs).sum(1).mean().detach()
    plain.of["log_alpha"].grad = None
    torch.autograd.backward((plain.of["log_alpha"] * (entropy - 0.5 * np.log(2))).sum())
    assert_same(trainer, plain, "log_alpha")
    trainer.stop()


def test_td3_is_as_published(learner: str) -> None:
    given = {"env": "Pendulum-v1", "learner": learner, "target_noise_clip": 0.3}
    trainer = TD3({**SMALL, **given}, TrialContext(seed=1))
    in_doubles(trainer)
    trainer.policy.model.get_parameter("target_actor.2.bias").data.fill_(1.0)  # noise leads beyond
    plain, losses, rows = Plain(trainer.policy.model), trainer.losses, batch("Pendulum-v1")
    of = tensors(rows)
    critic_loss, _ = losses.critics(rows, np.random.default_rng(7))
    drawn = np.random.default_rng(7).standard_normal((ROWS, 1), np.float32).astype(np.float64)
    noise = (0.2 * torch.from_numpy(drawn)).clamp(-0.3, 0.3)
    assert (noise.abs() == 0.3).any()
    with torch.no_grad():
        best = plain.actor(of["new_obs"], "target_actor")[0].tanh()
        assert ((best + noise).abs() > 1).any()
        x = torch.cat([of["new_obs"], (best + noise).clamp(-1, 1)], 1)
        least = plain.critics(x, "targets").min(0).values.squeeze(1)
        targets = of["rewards"] + GAMMA * (~of["terminated"]).double() * least
    q = plain.critics(torch.cat([of["observations"], of["actions"] / 2], 1)).squeeze(2)
    loss = (q - targets).square().mean(1).sum()
    torch.autograd.backward(loss)
    assert critic_loss == pytest.approx(loss.item(), rel=1e-9)
    assert_same(trainer, plain, "critics.")

    actor_loss = losses.actor(rows)
    best = plain.actor(of["observations"])[0].tanh()
    loss = -plain.critics(torch.cat([of["observations"], best], 1))[0].mean()
    torch.autograd.backward(loss)
    assert actor_loss == pytest.approx(loss.item(), rel=1e-9)
    assert_same(trainer, plain, "actor.")
    trainer.stop()


@pytest.mark.parametrize("of", [SAC, TD3])
def test_an_episode_that_is_cut_off_goes_on_and_one_that_ends_does_not(
    of: type[SAC], learner: str
) -> None:
    """By hand: networks of zeros but for the last biases, so that every Q is 5 and every next 7."""
    given = {"learner": learner, **({"initial_alpha": 1e-9} if of is SAC else {})}
    trainer = of({**SMALL, "env": "Pendulum-v1", **given}, TrialContext(seed=1))
    model = trainer.policy.model
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.startswith(("critics.", "targets.")):
                parameter.zero_()
        model.get_parameter("critics.2.bias").fill_(5.0)
        model.get_parameter("targets.2.bias").fill_(7.0)
    ends, cut = (
        {name: column[:1] for name, column in batch("Pendulum-v1").items()}
        | {"rewards": np.ones(1, np.float32), "terminated": np.array([end])}
        for end in (True, False)
    )
    losses: Any = trainer.losses
    for rows, target in ((ends, 1.0), (cut, 1.0 + GAMMA * 7.0)):
        stream = np.random.default_rng(0)
        if of is SAC:
            losses.begin(rows, stream)
        loss, q = losses.critics(rows, *([] if of is SAC else [stream]))
        assert q == 5.0
        assert loss == pytest.approx((1 if of is SAC else 2) * (5.0 - target) ** 2, rel=1e-5)
    trainer.stop()


@pytest.mark.parametrize("of", [SAC, TD3])
def test_an_update_gets_no_array_of_units_anew(of: type[SAC] | type[TD3]) -> None:
    """Such arrays are got from and given back to the system: that takes as long as the products."""
    config = {**SMALL, "env": "Pendulum-v1", "model": {"hidden": [256, 256]}, "policy_delay": 1}
    if of is SAC:
        del config["policy_delay"]
    trainer = of(config, TrialContext(seed=1))
    try:
        rows = {name: np.tile(one, (8, *(1,) * (one.ndim - 1))) for name, one in batch("").items()}
        trainer.update(rows)
        tracemalloc.start()
        trainer.update(rows)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        trainer.stop()
    units = 2 * 8 * ROWS * 256  # of a layer of both critics; a byte of each says what is above 0
    assert most < 2 * units

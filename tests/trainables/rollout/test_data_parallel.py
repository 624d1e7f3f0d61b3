"""Two ranks that learn together: equal to one process, exact to resume, quick to fail."""

import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributed import distributed_c10d

from tests.support.trainers import differences, final_state, make
from tests.support.trainers import run as run_with_config
from trainables.algorithms.ppo import PPO, STATS, ppo_loss
from trainables.core import rng
from trainables.errors import ConfigError, ExchangeError, WorkerError
from trainables.learners.schedules import learning_rate
from trainables.learners.torch_learner import TorchLearner, shuffled
from trainables.policies import filters as filters_
from trainables.policies.filters import make_filters
from trainables.rollout.batch import TrainBatch
from trainables.rollout.workers.ranks.group import RankGroup
from trainables.rollout.workers.ranks.process_group import (
    add_up,
    find_free_port,
    get_node_ip,
    leave_group,
    setup_torch_data_parallel,
)
from trainables.rollout.workers.ranks.rank import Rank
from trainables.rollout.workers.worker import RolloutWorker
from trainables.trainer.families.actor_critic import valid_rows
from trainables.trainer.trainer import Trainer

TWO: dict[str, Any] = {
    "num_workers": 2,
    "data_parallel": True,
    "train_batch_size": None,
    "sgd_minibatch_size": 40,
    "evaluation_interval": None,
    "timesteps_per_iteration": 192,
    "env": "tests.support.failing_workers:FailingAndFaulty",
    "restart_failed_sub_environments": True,
}
ROUNDS = 2
"""Of sampling and learning in one iteration."""
#: Rank 1 dies while it samples for the second time after the save, and rank 0 waits for it in an
#: exchange.
DIES = 53
Runs = tuple[PPO, Any, Path]


def failing(what: str, marker: Path | str = "", **settings: Any) -> PPO:
    at = settings.pop("at", DIES)
    env_config = {"what": what, "at": at, "marker": str(marker), "index": 1}
    return make({**TWO, "env_config": env_config, **settings})


def run(trainer: PPO, iterations: int) -> list[dict[str, Any]]:
    """Results without the settings, which differ between runs that are equal."""
    results = run_with_config(trainer, iterations)
    return [{key: value for key, value in one.items() if key != "config"} for one in results]


def group(trainer: PPO) -> RankGroup:
    assert isinstance(trainer.workers, RankGroup)
    return trainer.workers


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """A trainer after 3 iterations whose rank 1 died in the second; saved after the first."""
    folder = tmp_path_factory.mktemp("disturbed")
    trainer = failing("kill", folder / "failed", recreate_failed_workers=True)
    run(trainer, 1)
    path = Path(trainer.save(folder))
    results = run(trainer, 2)
    assert (folder / "failed").exists()
    assert group(trainer).restarts == 1
    yield trainer, [results, final_state(trainer)], path
    trainer.stop()


@pytest.fixture(scope="module")
def resumed(disturbed: Runs) -> Iterator[Runs]:
    """A fresh trainer that went on from the save, undisturbed."""
    _, _, path = disturbed
    marker = next(path.parent.glob("**/failed"))
    trainer = failing("kill", marker)
    trainer.restore(path)
    results = run(trainer, 2)
    yield trainer, [results, final_state(trainer)], path
    trainer.stop()


@pytest.mark.slow
def test_B9_what_two_ranks_learn_is_what_one_process_learns(disturbed: Runs) -> None:
    trainer, (results, _), _ = disturbed
    weights, stats = learn_in_one_process(trainer, 3 * ROUNDS)
    for name, value in trainer.policy.model.weights().items():
        np.testing.assert_allclose(value, weights[name], rtol=1e-4, atol=1e-6, err_msg=name)
    learner = results[-1]["learner"]
    for name, mean in stats.items():
        assert learner[name] == pytest.approx(mean, rel=1e-3, abs=1e-6), name
    assert [one["timesteps_this_iter"] for one in results] == [192, 192]


def learn_in_one_process(trainer: PPO, rounds: int) -> tuple[dict[str, Any], dict[str, float]]:
    """The same samples, the union of both ranks' minibatches; nothing is exchanged."""
    settings, policy = trainer.settings, _policy(trainer)
    spec = replace(trainer.worker_spec(), learner=None)
    workers = [RolloutWorker(replace(spec, index=i)) for i in range(2)]
    streams = [rng.generator(trainer.seed, "minibatch", i) for i in range(2)]
    filters = make_filters(settings.filters, trainer.spaces.observation_shape)
    measured: list[torch.Tensor] = []
    deltas: list[Any] = []
    uneven = 0
    for i in range(rounds):
        merged = filters_.synchronise(filters, deltas)
        for worker in workers:
            worker.sync(policy.model.weights(), merged)
        samples = [worker.sample() for worker in workers]
        deltas = [sample.deltas for sample in samples]
        rows = [
            TrainBatch.join([valid_rows(f, settings.gamma, settings.lambda_) for f in s.fragments])
            for s in samples
        ]
        uneven += len(rows[0]) != len(rows[1])
        rate = learning_rate(settings.schedule, i * 96)
        measured = []
        for _ in range(settings.num_sgd_iter):
            drawn = zip(rows, streams, strict=True)
            own = [shuffled(batch, 20, stream, count=48) for batch, stream in drawn]
            for pair in zip(*own, strict=True):
                union = {name: torch.cat([one[name] for one in pair]) for name in pair[0]}
                loss, parts = ppo_loss(policy.model, union, settings)
                policy.minimise(loss, rate, settings.grad_clip)
                measured.append(parts)
    for worker in workers:
        worker.close()
    assert uneven, "faulty episodes leave the ranks different numbers of rows"
    means = torch.stack(measured).mean(0).tolist()
    return policy.model.weights(), dict(zip(STATS, means, strict=True))


def _policy(trainer: PPO) -> Any:
    return trainer.learner_spec().make_learner().policy


@pytest.mark.slow
def test_B9_a_group_answers_as_other_workers_do(resumed: Runs) -> None:
    workers = group(resumed[0])
    asked = workers.foreach_worker(lambda worker: (worker.spec.index, worker.get_global_vars()))
    timestep = resumed[1][0][0]["timesteps_total"]  # before the latest iteration
    assert asked == [(index, {"timestep": timestep}) for index in range(2)]
    told = workers.foreach_worker(lambda rank: rank.policy.global_timestep)  # type: ignore[attr-defined]  # a rank's
    assert told == [timestep] * 2


@pytest.mark.slow
def test_B9_a_restored_run_and_one_whose_rank_died_are_equal_to_the_bit(
    disturbed: Runs, resumed: Runs
) -> None:
    assert differences(disturbed[1], resumed[1]) == []
    assert disturbed[1][0][-1]["num_healthy_workers"] == 2


@pytest.mark.slow
def test_B9_the_trainer_acts_with_what_the_ranks_learnt(resumed: Runs) -> None:
    trainer = resumed[0]
    rows = np.linspace(-1, 1, 20, dtype=np.float32).reshape(5, 4)
    with torch.no_grad():
        values = trainer.policy.model.value(torch.from_numpy(rows)).numpy()
    np.testing.assert_allclose(trainer.inference.actor.values(rows), values, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_B9_ranks_whose_weights_differ_end_the_trial_s_slice(disturbed: Runs) -> None:
    trainer = disturbed[0]
    states = [trainer.policy.get_state() for _ in range(2)]
    states[1]["weights"]["critic.0.bias"] += 1e-3
    group(trainer)._ask("load_policy", lambda index: (states[index],))
    with pytest.raises(WorkerError, match=r"ranks have diverged.*rank 0: \w{12}, rank 1"):
        trainer.train()
    assert group(trainer).healthy() == 0


#: Seconds in which a rank that stands still is to be given up; others are waited for as usual.
SOON_S = 3.0


def be_quick(rank: Any) -> None:
    """Wait so long in an exchange from now on, in which all the ranks have met already."""
    distributed_c10d._set_pg_timeout(timedelta(seconds=SOON_S))
    rank.policy.reduce = partial(add_up, timeout_s=SOON_S)


@pytest.mark.slow
def test_B10_a_rank_that_stands_still_is_waited_for_so_long_and_no_longer(resumed: Runs) -> None:
    trainer = resumed[0]
    group(trainer).foreach_worker(be_quick)
    os.kill(group(trainer).pids()[1], signal.SIGSTOP)
    words = r"did not arrive within 3.0 s \(data_parallel_timeout_s\)"
    with pytest.raises(WorkerError, match=words) as one:
        group(trainer).sample_and_learn(*trainer.rank_request())
    assert isinstance(one.value.__cause__, ExchangeError | WorkerError)
    assert group(trainer).pids() == []
    with pytest.raises(WorkerError, match="has ended; restore the trainer to continue"):
        trainer.train()


@pytest.mark.proof
def test_B10_a_rank_that_stands_still_is_told_nothing_for_ever(resumed: Runs) -> None:
    trainer, _, path = resumed
    trainer.restore(path)
    group(trainer)._timeout_s = 10.0
    os.kill(group(trainer).pids()[1], signal.SIGSTOP)
    words = r"rollout worker 1 \(pid \d+\) hangs: no answer within 10.0 s \(data_parallel_timeout_s"
    with pytest.raises(WorkerError, match=words):
        trainer.train()
    assert group(trainer).healthy() == 0


@pytest.mark.slow
def test_B10_a_restored_group_goes_on_until_a_rank_dies(resumed: Runs) -> None:
    trainer, before, path = resumed
    trainer.restore(path)
    assert differences(before[0][:1], run(trainer, 1)) == []
    os.kill(group(trainer).pids()[1], signal.SIGKILL)
    words = r"rollout worker 1 \(pid \d+\) died; exit code -9"
    with pytest.raises(WorkerError, match=words) as one:
        trainer.train()
    assert "recreate_failed_workers: true restarts all ranks" in str(one.value)
    assert one.value.__cause__ is not None
    assert group(trainer).healthy() == 0


@pytest.fixture
def alone(request: pytest.FixtureRequest) -> Iterator[Rank]:
    """A rank in this process, the only one of its group; a parameter has further settings."""
    trainer = make({"train_batch_size": None, **getattr(request, "param", {})})
    rank = Rank(replace(trainer.worker_spec(), learner=trainer.learner_spec()))
    rank.sync(trainer.policy.model.weights(), filters_.synchronise(trainer.filters, []))
    yield rank
    rank.close()
    trainer.stop()


@pytest.mark.parametrize("alone", [{"target_kl": 1e-4}], indirect=True)
def test_B9_a_target_kl_ends_the_epochs_of_ranks(alone: Rank) -> None:
    alone.sample_and_learn(48, 20, 16, ("advantages",), 0.05)
    steps = {int(one["step"]) for one in alone.policy.get_state()["optimizer"].values()}
    assert max(steps) < 60  # 20 epochs of 3 minibatches


def test_B9_a_batch_of_another_size_is_out_of_step(alone: Rank) -> None:
    words = r"batch sizes are out of step between workers: worker 0 sampled 48 rows; expected 47"
    with pytest.raises(WorkerError, match=words):
        alone.sample_and_learn(47, 1, 16, (), 1e-3)


def test_B9_the_named_fields_are_standardised_in_each_minibatch(alone: Rank) -> None:
    seen: list[Mapping[str, torch.Tensor]] = []
    assert isinstance(alone.learner, TorchLearner)
    loss = alone.learner.loss

    def watching(model: Any, minibatch: Mapping[str, torch.Tensor]) -> Any:
        seen.append(minibatch)
        return loss(model, minibatch)

    alone.learner.loss = watching
    info, count = alone.sample_and_learn(48, 2, 16, ("advantages", "returns"), 1e-3)
    assert (count, len(seen)) == (48, 6)
    assert set(info) >= {"policy_loss", "kl", "grad_norm", "lr"}
    for name in ("advantages", "returns"):
        column = np.stack([one[name].numpy() for one in seen])
        np.testing.assert_allclose(column.mean(1), 0.0, atol=1e-5)
        np.testing.assert_allclose(column.std(1), 1.0, atol=1e-4)
    assert abs(float(seen[0]["values"].mean())) > 0


def test_B9_minibatches_of_few_rows_are_standardised_by_the_batch_of_all_ranks(alone: Rank) -> None:
    seen: list[torch.Tensor] = []
    assert isinstance(alone.learner, TorchLearner)
    loss = alone.learner.loss

    def watching(model: Any, minibatch: Mapping[str, torch.Tensor]) -> Any:
        seen.append(minibatch["advantages"])
        return loss(model, minibatch)

    alone.learner.loss = watching
    alone.sample_and_learn(48, 1, 1, ("advantages",), 1e-3)
    assert [len(one) for one in seen] == [1] * 48
    column = torch.cat(seen)
    assert column.mean().item() == pytest.approx(0.0, abs=1e-5)
    assert column.std(correction=0).item() == pytest.approx(1.0, abs=1e-4)


def test_B10_a_group_of_one_meets_at_a_free_port_of_this_machine(alone: Rank) -> None:
    url = f"tcp://{get_node_ip()}:{find_free_port()}"
    alone.setup_torch_data_parallel(url, 0, 1, "gloo", 20.0)
    assert alone.policy.distributed_world_size == 1
    assert get_node_ip() == "127.0.0.1"
    info, _ = alone.sample_and_learn(48, 1, 16, ("advantages",), 1e-3)
    assert np.isfinite(info["policy_loss"])
    leave_group()


def test_B10_a_policy_that_is_not_torch_s_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a torch policy, but this one is a dict"):
        setup_torch_data_parallel({}, "file:///nowhere", 0, 2, "gloo", 1.0)


class LearnsAlone(Trainer):
    """An algorithm that says nothing of ranks."""

    config_class = PPO.config_class


def test_B10_an_algorithm_that_says_nothing_of_ranks_is_refused_by_its_name() -> None:
    words = "data_parallel: true cannot be used with LearnsAlone"
    with pytest.raises(ConfigError, match=words):
        LearnsAlone.check_config({"env": "CartPole-v1", "num_workers": 2, "data_parallel": True})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"num_workers": 1}, "num_workers: 1 cannot be used .*; set it to 2 or more"),
        (
            {"ignore_worker_failures": True},
            "ignore_worker_failures: true cannot be used with data_par",
        ),
        (
            {"batch_mode": "complete_episodes"},
            "set it to truncate_episodes, or remove data_parallel",
        ),
        ({"sample_async": True, "observation_filter": "NoFilter"}, "samples and learns in turn"),
        ({"compress_observations": True}, "observations stay in the child that learns from them"),
        ({"num_gpus": 1}, "num_gpus: 1.* cannot be used .*; set it to 0, or remove data_p"),
        ({"num_gpus_per_worker": 0.5}, "num_gpus_per_worker: 0.5 cannot be used .*; set it to 0"),
        ({"model": {"use_lstm": True}}, "model.use_lstm: true cannot be used .* single rows"),
        ({"callbacks": {"on_postprocess_traj": print}}, "on_postprocess_traj: .* data_parallel"),
        ({"sgd_minibatch_size": 1}, "sgd_minibatch_size: 1 rows .*; raise it to at least 2"),
    ],
)
def test_B10_settings_that_do_not_fit_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make({**TWO, **settings})

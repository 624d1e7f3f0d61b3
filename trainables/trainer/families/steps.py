"""Rounds of sampling and learning, for the `training_step` of each family of algorithms.

An algorithm calls one of these functions, or writes its own round with the same parts.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables.learners.replay import NStep, ReplayBuffer, ReplayConfig
from trainables.learners.statistics import on_host
from trainables.policies.policy import Scalar
from trainables.rollout.batch import Fragment, Sample, rows
from trainables.rollout.workers.access import DEFAULT_POLICY_ID
from trainables.rollout.workers.ranks.group import RankGroup
from trainables.trainer.config import timed
from trainables.trainer.trainer import Trainer

#: Function that learns from the fragments of all workers and returns statistics by name.
Learn = Callable[[list[Fragment]], dict[str, float]]
#: Function that takes a gradient step on rows (B, …) and returns statistics by name.
Update = Callable[[Mapping[str, NDArray[Any]]], Mapping[str, Scalar]]
#: Columns of a fragment that a replay stores.
TRANSITION = ("observations", "actions", "rewards", "new_obs", "terminated")


def on_policy_step(trainer: Trainer, learn: Learn) -> dict[str, float]:
    """Make a round of an on-policy algorithm: sample, learn, synchronise, and count.

    `learn` takes the fragments of all samples, in the order of workers, and returns statistics,
    which are returned. If the trainer sets `keeps_rows`, the samples' filter statistics are merged
    before it learns, else afterwards.
    """
    with timed(trainer.timers, "sample_time_ms"):
        samples = trainer.workers.sample()
    trainer.reporter.sampled(samples)
    if trainer.keeps_rows:
        samples = trainer.merge_filters(samples)
    with timed(trainer.timers, "learn_time_ms"):
        learner = learn([fragment for one in samples for fragment in one.fragments])
    trainer.reporter.log_learning(trainer.policy, learner)
    trainer.end_round(samples)
    return learner


def step_in_ranks(trainer: Trainer, ranks: RankGroup, *request: object) -> dict[str, float]:
    """Make a round in which each worker learns from its own sample; returns the statistics.

    Gradients are summed over all workers. `request` are the arguments of `Rank.sample_and_learn`,
    such as epochs and learning rate. The trainer's policy then takes over the ranks' weights and
    optimiser, filters are synchronised, and steps and episodes counted.

    Raises TrainableError if a worker failed for good, and WorkerError if the workers' weights are
    no longer equal.
    """
    with timed(trainer.timers, "sample_and_learn_time_ms"):
        learnt = ranks.sample_and_learn(*request)
    samples = [one.sample for one in learnt]
    trainer.reporter.sampled(samples)
    trainer.policy.set_state(learnt[0].policy or {})
    trainer.reporter.log("training output", learnt[0].info)
    trainer.end_round(samples)
    return learnt[0].info


def off_policy_step(
    trainer: Trainer,
    replay: ReplayBuffer,
    config: ReplayConfig,
    update: Update,
    update_target: Callable[[], None],
    n_step: NStep | None = None,
    learning: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> dict[str, float]:
    """Make a round of an off-policy algorithm: sample, store, update, synchronise, and count.

    Returns the means of the updates' statistics; an empty dict without updates, as before
    ``learning_starts`` steps. Exploration depends on the steps sampled before
    this round. The replay stores rows before the filters, whose statistics change: drawn rows are
    filtered with the statistics of all samples so far, including this round's.

    Args:
        trainer: trainer whose round it is; its workers' fragments have the column ``new_obs``, with
            `n_step` also ``t``.
        config: number and size of updates, and their beginning.
        update: function that makes one gradient step on rows of the replay and returns statistics.
        update_target: called after the updates of each round in which the number of environment
            steps passes a multiple of `target_network_update_freq`; also before updates begin.
        n_step: makes transitions over several steps, which have ``discounts``; None for single
            steps.
        learning: function that makes a context manager around all updates of the round.

    Raises:
        TypeError: the trainer does not set `keeps_rows`, so its workers filter the rows.
        NotFiniteError: a loss or gradient was not finite.
    """
    if not trainer.keeps_rows:
        raise TypeError(f"{type(trainer).__name__} learns from a replay; set keeps_rows = True")
    before = trainer.progress.timesteps
    trainer.set_global_vars({"timestep": before})
    with timed(trainer.timers, "sample_time_ms"):
        samples = trainer.workers.sample()
    trainer.reporter.sampled(samples)
    samples = trainer.merge_filters(samples)
    weight = n_step.weight if n_step else 1.0
    after = before + sum(one.count for one in samples)
    statistics: list[Mapping[str, Scalar]] = []
    with timed(trainer.timers, "learn_time_ms"):
        _store(trainer, samples, replay, n_step)
        replay.set_timesteps(after)
        if after >= config.learning_starts and len(replay):
            with learning():
                for _ in range(config.updates_per_step):
                    rows_ = replay.sample(config.replay_batch_size)
                    statistics.append(update(trainer.filter_rows(rows_, weight)))
        if is_target_due(config, before, after):
            update_target()
        fetched = on_host(statistics)
        trainer.policy.require_finite()
    names = fetched[0] if fetched else ()
    learner = {name: float(np.mean([one[name] for one in fetched])) for name in names}
    trainer.reporter.log_learning(trainer.policy, learner)
    trainer.end_round(samples)
    return learner


def is_target_due(config: ReplayConfig, before: int, after: int) -> bool:
    """Return whether the target network is copied in a round between these environment steps.

    It is if the round passes or reaches a multiple of `target_network_update_freq`.
    """
    every = config.target_network_update_freq
    return after // every > before // every


def learn_on_rows(
    trainer: Trainer, rows_: Mapping[str, NDArray[Any]], update: Update
) -> dict[str, dict[str, float]]:
    """Make one update from rows, column → (B, …) as the networks see them; synchronise workers.

    Returns policy → the update's statistics and ``batch_count``, the number of rows. Raises
    NotFiniteError if a loss or gradient was not finite.
    """
    # The gradients' norms show values that are not finite, so numpy need not warn of them.
    with np.errstate(all="ignore"):
        (info,) = on_host([update(rows_)])
    trainer.policy.require_finite()
    trainer.broadcast()
    return {DEFAULT_POLICY_ID: {**info, "batch_count": len(rows_["observations"])}}


def _store(
    trainer: Trainer, samples: list[Sample], replay: ReplayBuffer, n_step: NStep | None
) -> None:
    """Add the valid rows of all samples to the replay, after the callback ``on_postprocess_traj``.

    `n_step` joins rows to n-step transitions first, and keeps those that are incomplete for the
    next round; None to store rows as they are.
    """
    sources = [(sample.index, fragment) for sample in samples for fragment in sample.fragments]
    fragments = [fragment for _, fragment in sources]
    batches = [{name: rows(getattr(one, name)) for name in TRANSITION} for one in fragments]
    trainer.reporter.postprocessed(trainer.policy, fragments, batches)
    for (source, fragment), batch in zip(sources, batches, strict=True):
        if n_step is None:
            valid = rows(fragment.valid)
            replay.add({name: column[valid] for name, column in batch.items()})
            continue
        shape = fragment.valid.shape
        columns = {name: one.reshape(*shape, *one.shape[1:]) for name, one in batch.items()}
        flags = ("truncated", "valid", "autoreset", "t")
        columns |= {name: getattr(fragment, name) for name in flags}
        replay.add(n_step(source, columns))

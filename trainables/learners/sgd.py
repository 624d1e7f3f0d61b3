"""Minibatch SGD: the one learning loop, over epochs of shuffled minibatches, on one rank or more.

In data-parallel learning every rank draws minibatches from its own batch. Minibatch k of an epoch
is the union of the k-th minibatches of all ranks: means, standardised columns and the gradient are
those of the union, so that the weights equal those that one process would learn. R rows of this
process's minibatch, S statistics.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from trainables.learners.standardizing import Moments, Reduce, means, moments
from trainables.learners.statistics import fetch
from trainables.policies.policy import Policy, Scalar
from trainables.rollout.batch import TrainBatch


class Learner(Protocol):
    """Protocol of an object that makes the gradient steps of an on-policy algorithm."""

    stats: tuple[str, ...]
    """Names of the statistics that `step` returns; one of them is ``kl``."""

    @property
    def policy(self) -> Policy:
        """Policy that learns."""

    def learning(self) -> AbstractContextManager[None]:
        """Return a context manager to be entered around all steps on one batch."""

    def minibatches(
        self, batch: TrainBatch, size: int, stream: np.random.Generator, count: int
    ) -> list[Any]:
        """Return the minibatches of one epoch in a random order, in the form that `step` takes.

        `size` is the largest number of rows of a minibatch, `count` the number of rows that decides
        the number of minibatches.
        """

    def standardize_few(self, minibatches: list[Any], moments: Moments) -> None:
        """Standardise the advantages of minibatches with fewer than `LEAST_ROWS` rows, in place.

        `moments` has the mean and the deviation with which they are standardised. The loss
        standardises the advantages of larger minibatches only.
        """

    def evaluate(self, batch: TrainBatch) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return present log-probabilities (B,) of a batch's actions, and present values (B,)."""

    def step(self, minibatch: Any, rate: float, share: float = 1.0) -> tuple[Any, Scalar]:
        """Make one gradient step with the learning rate `rate`.

        Args:
            minibatch: one of `minibatches`; it may be empty if there are other ranks.
            share: this minibatch's share of the rows of all ranks' minibatches together; 1 without
                other ranks.

        Returns:
            Means (S,) of the statistics over the rows, times `share`, as an array or a tensor; and
                the norm of the gradient over all ranks' minibatches, before clipping.

        Raises:
            NotFiniteError: loss or gradient is NaN or infinite; the weights are unchanged. A policy
                that checks its steps later raises it in `Policy.require_finite`.
        """


def learn(
    learner: Learner,
    batch: TrainBatch,
    stream: np.random.Generator,
    *,
    epochs: int,
    minibatch_size: int,
    rate: float,
    target_kl: float | None = None,
    normalize_advantages: bool = False,
    batch_size: int | None = None,
    standardize: Sequence[str] = (),
) -> dict[str, float]:
    """Learn from one batch; return the means of the statistics over all minibatches, by name.

    Further entries are ``lr``, ``grad_norm`` (the mean norm before clipping) and
    ``explained_variance``, if the returns vary. The result is empty if no rank has rows. Statistics
    stay on the policy's device until the end, or with `target_kl` until the end of an epoch. Raises
    NotFiniteError if a loss or gradient is NaN or infinite.

    Args:
        batch: batch of this process.
        stream: random numbers for the order of the rows.
        epochs: number of passes over the batch.
        minibatch_size: largest number of rows of a minibatch.
        rate: learning rate of all steps.
        target_kl: mean KL divergence of an epoch above which no other epoch follows, or None.
        normalize_advantages: True if the loss standardises advantages; those of minibatches with
            fewer than `LEAST_ROWS` rows are standardised here, by the moments of the whole batch.
        batch_size: number of rows that decides the number of minibatches, which must be equal on
            all ranks; by default that of the batch.
        standardize: columns to standardise here, so that the loss need not: over the rows of one
            minibatch of every rank together, or by the moments of the whole batch if these are few.
    """
    reduce = learner.policy.reduce
    stats: list[Any] = []
    norms: list[Scalar] = []
    alone = batch_size is None and not standardize
    named = ("advantages",) if normalize_advantages else tuple(standardize)
    of_batch = {name: moments(getattr(batch, name), reduce) for name in named}
    with learner.learning():
        for _ in range(epochs):
            minibatches = learner.minibatches(
                batch, minibatch_size, stream, batch_size or len(batch)
            )
            shares = [1.0] * len(minibatches)
            if normalize_advantages:
                learner.standardize_few(minibatches, of_batch["advantages"])
            if not alone:
                from trainables.learners.torch_learner import standardize_together

                by = {name: of_batch[name] for name in standardize}
                shares = standardize_together(minibatches, by, reduce)
            # A minibatch that is empty on all ranks is skipped by all of them.
            pairs = [(m, share) for m, share in zip(minibatches, shares, strict=True) if share >= 0]
            if not pairs:
                return {}
            steps = [learner.step(minibatch, rate, share) for minibatch, share in pairs]
            epoch = [measured for measured, _ in steps]
            if reduce is not None:
                reduce(epoch)
            norms += [norm for _, norm in steps]
            if target_kl:
                epoch = list(fetch(epoch))
            stats += epoch
            if target_kl and np.mean([one[learner.stats.index("kl")] for one in epoch]) > target_kl:
                break
    learner.policy.require_finite()
    averages = np.mean(fetch(stats), axis=0).tolist()
    return {
        **dict(zip(learner.stats, averages, strict=True)),
        **explained_variance(batch, reduce),
        "lr": rate,
        "grad_norm": float(np.mean(fetch(norms), dtype=np.float64)),
    }


def explained_variance(batch: TrainBatch, reduce: Reduce | None) -> dict[str, float]:
    """Return ``explained_variance``: the share of the returns' variance that old values explain.

    The result is empty if the returns have no variance. `reduce` sums over ranks, None for one
    rank.
    """
    returns = batch.returns.astype(np.float64)
    columns = np.stack([returns, returns - batch.values])
    deviations = columns - means(columns, reduce)[0][:, None]
    variance, unexplained = means(np.square(deviations), reduce)[0].tolist()
    return {"explained_variance": 1.0 - unexplained / variance} if variance else {}

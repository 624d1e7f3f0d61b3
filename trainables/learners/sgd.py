"""Minibatch SGD: epochs of shuffled minibatches, the one learning loop, alone or with other ranks.

In data-parallel learning every rank draws minibatches from its own batch. Minibatch k of an epoch
is the union of all ranks' minibatches k: means, standardised fields and the gradient are those of
the union, so that the weights are what one process would have made of it. R rows of this process's
minibatch, S statistics.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from trainables.learners.standardizing import Moments, Reduce, means, moments
from trainables.policies.policy import Policy
from trainables.rollout.batch import TrainBatch


class Learner(Protocol):
    """A learner that takes gradient steps."""

    stats: tuple[str, ...]
    """Names of the statistics; one of them is ``kl``."""

    @property
    def policy(self) -> Policy:
        """Whose weights it moves."""

    def learning(self) -> AbstractContextManager[None]:
        """Entered while steps are taken on one batch."""

    def minibatches(
        self, batch: TrainBatch, size: int, stream: np.random.Generator, count: int
    ) -> list[Any]:
        """The minibatches of one epoch, as `step` takes them; see `torch_learner.shuffled`."""

    def standardize_few(self, minibatches: list[Any], by: Moments) -> None:
        """Standardise, in place, the advantages of minibatches with fewer than `LEAST_ROWS` rows.

        The loss, which standardises those of larger ones, leaves them as they are.
        """

    def evaluate(self, batch: TrainBatch) -> tuple[NDArray[Any], NDArray[Any]]:
        """(B,) log-probabilities of a batch's actions and values of its observations, now."""

    def step(self, minibatch: Any, rate: float, share: float = 1.0) -> tuple[Any, float]:
        """One gradient step.

        Args:
            minibatch: one of `minibatches`; without a row only beside other ranks.
            rate: the learning rate.
            share: of the union's rows that these are; 1 alone.

        Returns:
            (S,) statistics as means over the rows, times `share`, as an array or a tensor; the norm
            of the gradient of the union before it is clipped.
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
    """Learn from one batch; returns the means of the statistics over all minibatches.

    Args:
        learner: takes the steps.
        batch: of this process.
        stream: draws the order of its rows.
        epochs: passes over the batch.
        minibatch_size: rows of a minibatch, at most.
        rate: the learning rate of every step.
        target_kl: no further epoch once the mean KL of one exceeds it; None: none.
        normalize_advantages: the loss standardises the advantages of every minibatch that has
            `LEAST_ROWS` rows; of smaller ones it is done here, by the whole batch.
        batch_size: rows by which the minibatches are counted, learnt from or not: all ranks take
            the same number of steps; None: those of the batch.
        standardize: columns that get mean 0 and deviation 1 in each minibatch of all ranks, by the
            whole batch where that has few rows; the loss then does nothing of the kind.
    """
    reduce = learner.policy.reduce
    stats: list[NDArray[Any]] = []
    norms: list[float] = []
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
                from trainables.learners.torch_learner import union

                by = {name: of_batch[name] for name in standardize}
                shares = union(minibatches, by, reduce)
            # A minibatch without a row on any rank is one for all of them: none takes a step.
            pairs = [(m, share) for m, share in zip(minibatches, shares, strict=True) if share >= 0]
            if not pairs:
                return {}
            steps = [learner.step(minibatch, rate, share) for minibatch, share in pairs]
            epoch = [measured for measured, _ in steps]
            if reduce is not None:
                reduce(epoch)
            found = [np.asarray(measured) for measured in epoch]
            stats += found
            norms += [norm for _, norm in steps]
            if target_kl and np.mean([one[learner.stats.index("kl")] for one in found]) > target_kl:
                break
    averages = np.mean(stats, axis=0).tolist()
    return {
        **dict(zip(learner.stats, averages, strict=True)),
        **explained_variance(batch, reduce),
        "lr": rate,
        "grad_norm": float(np.mean(norms)),
    }


def explained_variance(batch: TrainBatch, reduce: Reduce | None) -> dict[str, float]:
    """Share of the returns' variance that the old values explain; absent if there is none."""
    returns = batch.returns.astype(np.float64)
    columns = np.stack([returns, returns - batch.values])
    deviations = columns - means(columns, reduce)[0][:, None]
    variance, unexplained = means(np.square(deviations), reduce)[0].tolist()
    return {"explained_variance": 1.0 - unexplained / variance} if variance else {}

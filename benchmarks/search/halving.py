"""Searches on a game, cut from its table: synchronous successive halving in results and in seeds.

Hundreds of such searches take seconds, so that small differences between ways to judge trials show.
They leave out what other parts of a search do: the order of decisions, proposals by a model, and
trials that end early.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.search.game import Array, Game
from sweep.history.posterior.scores import Scores
from sweep.history.posterior.shrinkage import estimate
from sweep.schedulers._shared.best_tests import WORTH
from sweep.schedulers._shared.seeding import AUTO_SEEDS

ETA = 3
"""One in so many trials is promoted at each step."""


class Step(NamedTuple):
    """A step at which trials are compared."""

    result: int
    """Number of results of each seed, from 1."""
    seeds: int
    """Number of seeds of each trial."""


Steps = Sequence[Step]


class Search(NamedTuple):
    """One search that has ended."""

    scores: Scores
    truth: Array
    """Mean final score of each setting on the seeds that judge, (settings,)."""
    truth_error: Array
    """Standard error of `truth`, (settings,)."""


class Outcome(NamedTuple):
    """One pick; regret and excess in per cent of the game's range."""

    regret: float
    excess: float
    """Claim less truth."""
    within_one: float
    """1 if the truth is within one standard error of the claim, else 0; or a mean of these."""
    within_two: float
    """1 if the truth is within two standard errors of the claim, else 0; or a mean of these."""


def rungs(game: Game) -> list[int]:
    """Return the results 1, 3, 9, … at which trials of a game are compared, and its last one."""
    found = [1]
    while found[-1] * ETA < game.points:
        found.append(found[-1] * ETA)
    return [*found, game.points]


def search(
    game: Game,
    settings: int,
    steps: Steps,
    stream: np.random.Generator,
    share: float = 1.0,
    tests_best: bool = False,
) -> Search:
    """Return a search on a game; scores are divided so that none is much above 1.

    Args:
        settings: number of settings that are drawn.
        steps: steps that trials climb, in order.
        stream: source of the settings, and of the split of their seeds.
        share: share of the game's settings from which they are drawn, the best ones, as if a prior
            had excluded the others.
        tests_best: True if the trial with the best expected score is then tested under further
            seeds, as with ``seeds: auto``.
    """
    half, levels = game.seeds // 2, sorted({step.result for step in steps})
    pool = np.argsort(-game.worth)[: max(ETA, round(share * len(game.rows)))]
    rows = pool[stream.integers(len(pool), size=settings)]
    orders = np.array([stream.permutation(game.seeds) for _ in rows])
    curves = game.evals[rows[:, None], orders[:, :half]] / (2 * np.abs(game.evals).max())
    weights = np.arange(1, game.points + 1.0)
    means = np.cumsum(curves * weights, axis=-1) / np.cumsum(weights)
    at, paired, curve, paired_curves = np.full((4, settings, len(levels)), np.nan)
    seeds, last = np.ones((settings, len(levels))), np.zeros(settings, int)
    sums, alive, before = np.zeros((3, settings)), np.arange(settings), Step(0, 1)
    arrived = 1
    for step in steps:
        column, count = levels.index(step.result), min(step.seeds, half)
        if step.result > before.result:
            arrived = min(before.seeds, half)  # seeds that came along from the level below
        scores = curves[alive, :count, step.result - 1]
        so_far = means[alive, :count, step.result - 1]
        at[alive, column], curve[alive, column] = scores.mean(1), so_far.mean(1)
        paired[alive, column] = scores[:, :arrived].mean(1)
        paired_curves[alive, column] = so_far[:, :arrived].mean(1)
        seeds[alive, column], last[alive], before = count, column, step
        sums[:, alive] = _products(scores, so_far)
        best = np.argsort(-at[alive, column], kind="stable")
        alive = alive[best[: len(alive) // ETA]]
        if not len(alive):
            break
    judges = np.take_along_axis(game.final[rows], orders[:, half:], axis=1)
    error = (
        judges.std(axis=1, ddof=1) / math.sqrt(judges.shape[1]) if game.seeds > 3 else 0 * at[:, 0]
    )
    lengths = np.broadcast_to(np.array(levels, float), at.shape)
    measured = Scores(
        at, paired, seeds, last, sums[0], np.zeros(settings), curve, paired_curves, sums[1],
        sums[2], lengths,
    )  # fmt: skip
    if tests_best:
        _test_best(measured, sums, curves, means)
    return Search(measured, judges.mean(1), error)


def _test_best(measured: Scores, sums: Array, curves: Array, means: Array) -> None:
    """Test the trial with the best expected score at the top under further seeds, again and again.

    If it has all of them, another one is tested if it is expected to improve on it by enough. As
    many further seeds are used as half of the trials at the top. The arrays change.

    Args:
        measured: scores of the search.
        sums: sums of products of its last scores, (3, settings).
        curves: results of all seeds that the search may use, (settings, seeds, points).
        means: weighted means of the curves up to each point, like `curves`.
    """
    top = np.flatnonzero(measured.last_levels == measured.level_scores.shape[1] - 1)
    left = len(top) // 2
    while len(top):
        found, most = estimate(measured, 0.0), curves.shape[1]
        best = int(top[found.value[top].argmax()])
        able = top[measured.seeds[top, -1] < min(most, AUTO_SEEDS[-1])]
        if best not in able and len(able):  # another one may still be better
            gains = found.improvements(able, best)
            best = int(able[gains.argmax()]) if gains.max() >= WORTH else best
        have = int(measured.seeds[best, -1])
        count = next((min(n, most) for n in AUTO_SEEDS if n > have), have)
        left -= count - have
        if count == have or left < 0:
            break
        scores, so_far = curves[best, :count, -1], means[best, :count, -1]
        measured.level_scores[best, -1] = scores.mean()
        measured.curves[best, -1] = so_far.mean()
        measured.seeds[best, -1] = count
        sums[:, best] = _products(scores, so_far)


def _products(scores: Array, curves: Array) -> tuple[Array, Array, Array]:
    """Return sums over the seeds, the last axis, of products of deviations from the mean.

    They are those of the scores with themselves, with the curves' means, and of these with
    themselves.
    """
    up = scores - scores.mean(-1, keepdims=True)
    along = curves - curves.mean(-1, keepdims=True)
    return (up * up).sum(-1), (up * along).sum(-1), (along * along).sum(-1)


def pick(game: Game, ended: Search) -> Outcome:
    """Return the outcome of the pick of the model."""
    found = estimate(ended.scores, 0.0)
    size, best = 2 * float(np.abs(game.evals).max()), int(found.value.argmax())
    truth = float(ended.truth[best])
    excess = float(found.value[best]) * size - truth
    error = math.hypot(float(found.error[best]) * size, float(ended.truth_error[best]))
    regret = float(game.worth.max()) - truth
    percent = 100 / game.scale
    off = abs(excess) / max(error, 1e-12)
    return Outcome(regret * percent, excess * percent, float(off <= 1), float(off <= 2))


def mean(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the mean of outcomes."""
    return Outcome(*(math.fsum(column) / len(outcomes) for column in zip(*outcomes, strict=True)))


def cost(game: Game, settings: int, steps: Steps, tests_best: bool = False) -> int:
    """Return the results that a search with so many settings computes.

    With `tests_best` it is the most that a search may compute.
    """
    before, total, arrived = Step(0, 1), 0, settings
    for step in steps:
        now = Step(step.result, min(step.seeds, game.seeds // 2))
        total += settings * (now.result * now.seeds - before.result * before.seeds)
        before, arrived, settings = now, settings, settings // ETA
    return total + tests_best * (arrived // 2) * before.result


def affordable(game: Game, trainings: float, steps: Steps, tests_best: bool = False) -> int:
    """Return the most settings (1 or more) that so many full trainings are enough for."""
    settings = 1
    while cost(game, settings + 1, steps, tests_best) <= trainings * game.points:
        settings += 1
    return settings

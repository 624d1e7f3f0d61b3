"""Off-policy evaluation: the return of a policy, estimated from episodes of another one.

``is``    importance sampling: the mean of each return times its whole episode's ratio
``wis``   weighted: the same, divided by the mean of the ratios; biased, with far less variance
``pdis``  per decision: each reward times the ratio of the actions up to it
``dr``    doubly robust (Jiang and Li 2016): per decision, corrected by fitted values

A ratio is that of the probabilities of actions: the policy's by those with which they were taken
(Precup et al. 2000). All estimates are quotients of means over episodes, which the bootstrap draws.
With several agents an episode is one agent's part of it, and its ratio that of the agent's own
actions: the estimate is for a policy among the others as they were when the files were written. E
episodes of at most T steps, zeros after their ends; R rows of all, A choices, F features.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainables.core import rng
from trainables.envs.make import EnvSpaces
from trainables.offline.batches import Array, Batch, Columns
from trainables.offline.config import SAMPLER, IOContext
from trainables.offline.following import REMEDY, is_followed_by, pieces
from trainables.offline.reader import InputReader, Rows, RowsByPolicy, each_once
from trainables.offline.sources import make_reader

logger = logging.getLogger(__name__)
#: Array of float64.
Reals = NDArray[np.float64]
LogLikelihoods = Callable[[Array, Array], Array]
"""Function of observations (R, *S) and actions (R, …) that returns log-probabilities (R,)."""
#: Resamples of a bootstrap.
RESAMPLES = 1000
#: Probability with which an interval contains the value.
LEVEL = 0.95
#: Maximum logarithm of a product of ratios: the largest float64 is a little above.
HIGHEST = 600.0
#: Maximum number of batches in which episodes are searched, for readers without an end.
MOST_BATCHES = 10_000
#: Weight of the squared coefficients in a regression.
RIDGE = 1e-6
#: Maximum size of an observation for which values are fitted.
MOST_FEATURES = 16


class Terms(NamedTuple):
    """Numerator and denominator of an estimated return, for each episode.

    The estimate is the mean of the numerators divided by that of the denominators.
    """

    numerators: Reals
    """Numerator of each episode, (E,)."""
    denominators: Reals
    """Denominator of each episode, (E,)."""


class Estimate(NamedTuple):
    """An estimated return, and its confidence interval of 95 % (`LEVEL`)."""

    value: float
    """Estimated discounted return of an episode."""
    low: float
    """Lower end of the interval."""
    high: float
    """Upper end of the interval."""


@dataclass(frozen=True, kw_only=True)
class Episodes:
    """Whole episodes that another policy played: E episodes of at most T steps, R rows."""

    rewards: Reals
    """Rewards, (E, T); 0 after an episode's end."""
    logp: Reals
    """Log-probabilities of the actions by the policy that took them, (E, T); 0 after the end."""
    valid: NDArray[np.bool_]
    """Flags (E, T), True before an episode's end."""
    observations: Array
    """Observations (R, *S), the first episode's first."""
    following: Array
    """Next observations (R, *S), in the same order."""
    terminated: NDArray[np.bool_]
    """Flags (R,), True where an episode terminated."""
    actions: Array
    """Actions (R,) or (R, K)."""

    def __len__(self) -> int:
        return len(self.rewards)

    def arrange_by_episode(self, of_rows: Array) -> Reals:
        """Return values (R,) of all rows as an array (E, T), with 0 after an episode's end."""
        made = np.zeros(self.valid.shape)
        made[self.valid] = of_rows
        return made


def terms(
    name: str,
    rewards: Reals,
    log_ratios: Reals,
    gamma: float,
    valued: tuple[Reals, Reals] | None = None,
) -> Terms:
    """Compute numerators and denominators of an estimate by importance sampling.

    Products of ratios are at most e^`HIGHEST`; those of ``wis`` are scaled by the highest one.
    Raises ValueError for ``dr`` without fitted values.

    Args:
        name: estimator: ``is``, ``wis``, ``pdis`` or ``dr``.
        rewards: (E, T) rewards.
        log_ratios: (E, T) logarithms of each action's probability under the policy, divided by that
            under the policy that took it.
        valued: (E, T) fitted values of the actions taken, and of the states; needed for ``dr``.
    """
    episodes, steps = rewards.shape
    discounts = gamma ** np.arange(steps)
    ones = np.ones(episodes)
    so_far = np.exp(np.minimum(log_ratios.cumsum(axis=1), HIGHEST))
    if name == "pdis":
        return Terms((so_far * discounts * rewards).sum(axis=1), ones)
    if name == "dr":
        if valued is None:
            raise ValueError("dr needs fitted values")
        taken, of_state = valued
        # The recursion of the paper multiplied out: products of ratios, which stand here by
        # themselves, are bounded; each ratio alone may be small.
        before = np.concatenate([ones[:, None], so_far[:, :-1]], axis=1)
        by_step = before * of_state + so_far * (rewards - taken)
        return Terms((discounts * by_step).sum(axis=1), ones)
    of_episode = log_ratios.sum(axis=1)
    returns = (discounts * rewards).sum(axis=1)
    if name == "wis":
        highest = of_episode.max()
        weights = np.exp(of_episode - (highest if np.isfinite(highest) else 0.0))
        return Terms(weights * returns, weights)
    return Terms(np.exp(np.minimum(of_episode, HIGHEST)) * returns, ones)


def count_bounded(name: str, log_ratios: Reals) -> int:
    """Return the number of episodes in which `terms` limits a product of ratios, for a warning.

    Args:
        name: estimator: ``is``, ``wis``, ``pdis`` or ``dr``.
        log_ratios: (E, T) logarithms of each action's ratio of probabilities.
    """
    if name == "wis":  # its weights are scaled by the highest of all
        return 0
    products = log_ratios.cumsum(axis=1)
    highest = products[:, -1] if name == "is" else products.max(axis=1)
    return int((highest > HIGHEST).sum())


def estimate(
    terms: Terms, stream: np.random.Generator, resamples: int = RESAMPLES
) -> Estimate | None:
    """Return the estimate of these terms, with a bootstrap interval of `resamples` draws.

    The draws are made from `stream`. Returns None if all denominators are 0: the policy takes none
    of the actions.
    """
    if terms.denominators.sum() <= 0.0:
        return None
    count = len(terms.numerators)
    drawn = stream.integers(count, size=(resamples, count), dtype=np.int32)
    above, below = terms.numerators[drawn].sum(axis=1), terms.denominators[drawn].sum(axis=1)
    quotients = above[below > 0] / below[below > 0]
    low, high = np.quantile(quotients, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    estimate = terms.numerators.sum() / terms.denominators.sum()
    return Estimate(float(estimate), float(low), float(high))


def fitted_values(
    episodes: Episodes, now: Reals, next_values: Reals, gamma: float
) -> tuple[Reals, Reals]:
    """Return values (R,) of the choices taken, and of the states, by fitted Q evaluation.

    The values are its fixed point. They are quadratic in the observation, one polynomial for each
    choice. A round of fitting maps the weights w to c + B w, whatever the targets are, so the fixed
    point solves a linear equation (Lagoudakis and Parr 2003).

    Args:
        episodes: episodes with one choice in each step.
        now: (R, A) probabilities of the policy for the observations.
        next_values: (R, A) probabilities for the next observations.
    """
    observed, following = _features(episodes.observations), _features(episodes.following)
    features, choices = observed.shape[1], now.shape[1]
    rewards = episodes.rewards[episodes.valid]
    ahead = gamma * next_values * ~episodes.terminated[:, None]
    size = features * choices
    constant, step = np.zeros(size), np.zeros((size, size))
    for choice in range(choices):
        rows = episodes.actions == choice
        columns = slice(choice * features, (choice + 1) * features)
        moments = observed[rows].T @ observed[rows] + RIDGE * max(1, rows.sum()) * np.eye(features)
        fit = np.linalg.solve(moments, observed[rows].T)
        constant[columns] = fit @ rewards[rows]
        for other in range(choices):
            to = slice(other * features, (other + 1) * features)
            step[columns, to] = fit @ (ahead[rows, other, None] * following[rows])
    weights = np.linalg.lstsq(np.eye(size) - step, constant)[0].reshape(choices, features).T
    values = observed @ weights
    return values[np.arange(len(values)), episodes.actions], (now * values).sum(axis=1)


def _features(observations: Array) -> Reals:
    """Return features (R, F) for observations (R, *S): 1, each number, and their products.

    Numbers are clipped to ±1e6; those of about ±1 are fitted best.
    """
    flat = observations.reshape(len(observations), -1).astype(np.float64)
    flat = np.clip(flat, -1e6, 1e6)
    i, j = np.triu_indices(flat.shape[1])
    return np.concatenate([np.ones((len(flat), 1)), flat, flat[:, i] * flat[:, j]], axis=1)


# -------------------------------------------------------------------------------------------------
# Episodes, out of the batches of files.


def read_episodes(reader: InputReader, limit: int, policy: str | None = None) -> Episodes | None:
    """Read whole episodes, the first `limit` that are complete within `MOST_BATCHES` batches.

    Returns None, and logs a warning, if there are no whole episodes, or if a batch lacks rewards,
    ends, next observations or the probabilities of its actions.

    Args:
        policy: policy whose agents' episodes are read, if there are several.
    """
    episodes: list[Columns] = []
    joining = _EpisodeJoiner()
    read = islice(each_once(reader), MOST_BATCHES)
    for batch in read if policy is None else _select_policy(read, policy):
        if "action_logp" not in batch or "terminateds" not in batch or "rewards" not in batch:
            logger.warning(
                "input_evaluation: there are no estimates, because action_logp, terminateds or "
                "rewards are missing"
            )
            return None
        if "new_obs" not in batch:
            logger.warning(
                "input_evaluation: there are no estimates, because the column new_obs is "
                "missing; %s",
                REMEDY,
            )
            return None
        episodes += joining.add(batch)
        if len(episodes) >= limit:
            break
    return _pad_episodes(episodes[:limit])


class _EpisodeJoiner:
    """Joins pieces of episodes, from successive batches, to whole episodes.

    A piece continues one of an earlier line if ``eps_id``, ``agent_index``, ``t`` and the
    observations match. Without ``t`` an episode begins with a new ``eps_id``; without ``eps_id``
    either, with a line and after the end of another episode in it.
    """

    def __init__(self) -> None:
        self._open: dict[tuple[int, int], list[Columns]] = {}
        self._known: set[tuple[int, int]] = set()

    def add(self, batch: Columns) -> list[Columns]:
        """Take the next batch, and return the episodes that are complete with its rows.

        Pieces that have not ended are kept for later batches if they have an ``eps_id``; pieces
        without the start of their episode are dropped.
        """
        episodes: list[Columns] = []
        ended = True
        for piece in pieces(batch):
            before: list[Columns] = []
            key = None
            if "eps_id" in piece:
                key = int(piece["eps_id"][0]), int(piece.get("agent_index", [0])[0])
                before = self._open.pop(key, [])
                ended = key not in self._known
                self._known.add(key)
            begins = piece["t"][0] == 0 if "t" in piece else ended
            ended = bool(piece["terminateds"][-1] or piece["truncateds"][-1])
            if before and is_followed_by(before[-1], piece):
                whole = [*before, piece]
            elif begins:
                whole = [piece]
            else:
                continue
            if ended:
                episodes.append({n: np.concatenate([p[n] for p in whole]) for n in piece})
            elif key is not None:
                self._open[key] = whole
        return episodes


def _select_policy(read: Iterable[Batch], policy: str) -> Iterator[Columns]:
    """Yield the columns of one policy, from batches of several; batches without it are left out."""
    by_policy = (batch["policy_batches"] for batch in read)
    return (one[policy] for one in by_policy if policy in one)


def _pad_episodes(episodes: list[Columns]) -> Episodes | None:
    """Join episodes: rewards and log-probabilities padded to (E, T), all else as rows (R, …).

    Returns None, and logs a warning, if there are no episodes.
    """
    if not episodes:
        logger.warning(
            "input_evaluation: there are no estimates, because no episode is complete, from "
            "t = 0 to its end; the last row of an episode that was cut off counts only if "
            "the file has new_obs"
        )
        return None
    lengths = np.array([len(one["obs"]) for one in episodes])
    valid = np.arange(lengths.max()) < lengths[:, None]
    joined = {name: np.concatenate([one[name] for one in episodes]) for name in episodes[0]}
    rewards, logp = np.zeros(valid.shape), np.zeros(valid.shape)
    rewards[valid], logp[valid] = joined["rewards"], joined["action_logp"]
    return Episodes(
        rewards=rewards,
        logp=logp,
        valid=valid,
        observations=joined["obs"],
        following=joined["new_obs"],
        terminated=joined["terminateds"],
        actions=joined["actions"],
    )


class Estimates:
    """Estimates of a policy's return from recorded episodes, as `input_evaluation` asks for.

    Args:
        context: the settings; the episodes are the first ones of the first source but ``sampler``,
            which is read anew and in order.
        policy: name of the policy, if there are several.
    """

    def __init__(
        self,
        context: IOContext,
        rows: Rows | RowsByPolicy,
        spaces: EnvSpaces,
        gamma: float,
        policy: str | None = None,
    ) -> None:
        self._context = context
        self._rows, self._spaces = rows, spaces
        self._gamma = gamma
        self._policy = policy
        self._names = [name for name in context.offline.input_evaluation if name != "simulation"]
        self._warned: set[str] = set()

    @cached_property
    def episodes(self) -> Episodes | None:
        """Recorded episodes, read at the first access; None if there are none that can be used.

        The reasons for None are logged. Raises ConfigError or StoredDataError if the source cannot
        be read.
        """
        config = self._context.offline
        source = next(one for one in config.sources if one != SAMPLER)
        in_order = config.model_copy(update={"shuffle_buffer_size": 0})
        reader = make_reader(source, self._rows, replace(self._context, offline=in_order))
        return read_episodes(reader, config.input_evaluation_num_episodes, self._policy)

    def of(self, policy: LogLikelihoods, iteration: int) -> dict[str, Any]:
        """Return estimates of a policy's return: ``<name>``, ``<name>_low`` and ``<name>_high``.

        ``low`` to ``high`` is the 95 % interval; ``episodes`` is the number of recorded episodes.
        An estimator that cannot be computed, or is not finite, is left out; the latter is logged,
        once. Empty if no estimator is set, or there are no episodes to use. The first call reads
        them, and raises ConfigError or StoredDataError if it cannot. `iteration`, its number, seeds
        the bootstrap.
        """
        if not self._names or self.episodes is None:
            return {}
        result: dict[str, Any] = {"episodes": len(self.episodes)}
        own = () if self._policy is None else (self._policy,)
        stream = rng.generator(self._context.seed, "off_policy", iteration, *own)
        for name in self._names:
            given = self._terms(name, policy, self.episodes)
            found = estimate(given, stream) if given else None
            if found is not None and not np.isfinite(found).all():
                self._warn(f"{name} is left out, because its value is {found.value:g}")
            elif found is not None:
                result |= {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}
        return result

    def _warn(self, warning: str) -> None:
        """Log a warning that begins with an estimator's name, only the first one for each name."""
        if (name := warning.partition(" ")[0]) not in self._warned:
            self._warned.add(name)
            logger.warning("input_evaluation: %s", warning)

    def _terms(self, name: str, policy: LogLikelihoods, episodes: Episodes) -> Terms | None:
        """Return the terms of the estimator `name` for this policy.

        Ratios that have to be limited are logged, once. Returns None if the estimator is ``dr``,
        and actions are not a single choice or observations have more than `MOST_FEATURES` numbers.
        """
        own = np.asarray(policy(episodes.observations, episodes.actions), dtype=np.float64)
        log_ratios = episodes.arrange_by_episode(own - episodes.logp[episodes.valid])
        if (count := count_bounded(name, log_ratios)) > 0:
            self._warn(
                f"{name} limits the ratios of {count} of {len(episodes)} episodes to "
                f"e^{HIGHEST:g}, because the policy differs too much from the one that "
                "played them; use wis instead"
            )
        if name != "dr":
            return terms(name, episodes.rewards, log_ratios, self._gamma)
        layout = self._spaces.layout
        if not layout.scalar or episodes.observations[0].size > MOST_FEATURES:
            return None
        now, then = (
            _probabilities(policy, seen, episodes.actions, layout.sizes[0])
            for seen in (episodes.observations, episodes.following)
        )
        taken, of_state = fitted_values(episodes, now, then, self._gamma)
        valued = episodes.arrange_by_episode(taken), episodes.arrange_by_episode(of_state)
        return terms(name, episodes.rewards, log_ratios, self._gamma, valued)


def _probabilities(policy: LogLikelihoods, observations: Array, like: Array, choices: int) -> Reals:
    """Return a policy's probabilities (R, A) of all choices for observations (R, *S).

    `like` is an array of actions, which gives shape and dtype; `choices` is A.
    """
    logs = [policy(observations, np.full_like(like, choice)) for choice in range(choices)]
    return np.exp(np.stack(logs, axis=1).astype(np.float64))

"""IMPALA (Espeholt et al. 2018): workers sample while the learner learns; V-trace corrects for it.

One round: take samples, each chosen by the weights that its worker had last → advantages and value
targets by V-trace with the current networks → one policy gradient step
(`trainer.families.policy_gradient`) on all rows.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from trainables.errors import ConfigError
from trainables.learners.returns import Bounds, next_values, v_trace
from trainables.learners.sequences import RowsToEvaluate, rows_to_evaluate
from trainables.rollout.batch import Fragment, TrainBatch, rows
from trainables.rollout.config import SamplingConfig
from trainables.rollout.workers.worker_spec import WorkerSpec
from trainables.trainer.config import TrainerConfig, has_policies
from trainables.trainer.families.policy_gradient import PolicyGradientConfig, PolicyGradientTrainer
from trainables.trainer.families.steps import on_policy_step


class Config(PolicyGradientConfig):
    """Settings of IMPALA; the defaults suit classic control."""

    sampling: SamplingConfig = SamplingConfig(num_envs_per_worker=8, rollout_fragment_length=20)
    train_batch_size: int | None = Field(
        default=None,
        gt=0,
        description="Minimum number of environment steps per round of learning, rounded up to "
        "whole fragments of one worker's environments; the fragments may come from any worker. "
        "null: one fragment of every environment of one worker.",
    )
    lambda_: float = Field(
        default=1.0,
        ge=0,
        le=1,
        description="λ of V-trace, the decay per step back. Usually 0.9 to 1; 1 as published.",
    )
    rho_bar: float | None = Field(
        default=1.0,
        gt=0,
        description="Upper bound of the importance weight of a temporal difference; the lower it "
        "is, the closer the values are to those of the sampling policy. null: no bound. Usually 1 "
        "to 10.",
    )
    c_bar: float | None = Field(
        default=1.0,
        gt=0,
        description="Upper bound of the importance weight with which a temporal difference is "
        "traced back; at most rho_bar. c_bar changes the speed of learning, not the "
        "values that are learned. null: no bound. Usually 0.5 to 1.",
    )
    pg_rho_bar: float | None = Field(
        default=1.0,
        gt=0,
        description="Upper bound of the importance weight in the policy gradient; null: no bound. "
        "Usually 1 to 10.",
    )

    @property
    def samples_on(self) -> bool:
        """True if child processes sample while the trainer learns.

        With several policies they wait.
        """
        return self.workers.num_workers > 0 and not has_policies(self.agents.multiagent)

    @property
    def fragment_size(self) -> int:
        """Environment steps of one sample: of one child if `samples_on`, else of all workers."""
        own = self.sampling.num_envs_per_worker * self.sampling.rollout_fragment_length
        return own if self.samples_on else super().fragment_size

    @property
    def clock_settings(self) -> tuple[str, ...]:
        """Keys of settings by which a clock influences training.

        They are those of every trainer, and ``num_workers`` if `samples_on`.
        """
        return (*super().clock_settings, *(("num_workers",) if self.samples_on else ()))


class IMPALA(PolicyGradientTrainer):
    """Importance-weighted actor-learner architecture: workers may sample with older weights."""

    config_class: ClassVar[type[TrainerConfig]] = Config
    samples_on: ClassVar[bool] = True
    """True for this class: child processes may sample while the trainer learns."""
    settings: Config

    @classmethod
    def validate_config(cls, settings: TrainerConfig) -> None:
        """Raise ConfigError for settings that do not work together, or not with IMPALA.

        The latter are ``sample_async``, and ``c_bar`` above ``rho_bar`` or without a bound.
        """
        super().validate_config(settings)
        if settings.sampling.sample_async:
            problem = "true cannot be used with impala"
            hint = "set it to false; with num_workers: 1 or more, workers sample while it learns"
            raise ConfigError("sample_async", True, hint=hint, problem=problem)
        if not isinstance(settings, Config) or settings.rho_bar is None:
            return
        if settings.c_bar is None or settings.c_bar > settings.rho_bar:
            given = "null (no limit)" if settings.c_bar is None else settings.c_bar
            problem = (
                f"{given} is more than rho_bar, which is {settings.rho_bar}, and V-trace would not "
                "converge"
            )
            hint = f"set it to at most {settings.rho_bar}, or raise rho_bar"
            raise ConfigError("c_bar", settings.c_bar, hint=hint, problem=problem)

    def worker_spec(self) -> WorkerSpec:
        """Return the description of workers, whose samples also have the next observation.

        Children that sample while the trainer learns return samples of `Config.fragment_size`
        steps.
        """
        spec, settings = super().worker_spec(), self.settings
        spec = replace(spec, columns=spec.columns | {"new_obs"})
        return replace(spec, steps=settings.fragment_size) if settings.samples_on else spec

    def training_step(self) -> dict[str, float]:
        """Take samples, learn from them, and synchronise workers; return statistics.

        One of them is ``rho``, the mean ratio of probabilities under the new and the sampling
        policy. They are empty if no row is valid. Raises NotFiniteError if loss or gradient is NaN
        or infinite.
        """
        learnt = on_policy_step(self, self.learn)
        return {**learnt, "rho": self._mean_ratio} if learnt else learnt

    def all_rows(self, fragments: list[Fragment]) -> list[TrainBatch]:
        """Return all rows of each fragment, valid or not, with advantages and targets of V-trace.

        The present networks evaluate the valid ones first; the mean ratio of their probabilities is
        kept for `training_step`. If none is valid, the advantages are not those of V-trace.
        """
        asked = [
            rows_to_evaluate(fragment, self.settings.longest_sequence) for fragment in fragments
        ]
        batch = type(asked[0].batch).join([one.batch for one in asked])
        if len(batch) == 0:
            return super().all_rows(fragments)
        logp, values = self.learner.evaluate(batch)
        ends = np.cumsum([len(one.row) for one in asked])[:-1]
        now = zip(np.split(logp, ends), np.split(values, ends), strict=True)
        made = [
            rows_with_v_trace(*one, self.settings)
            for one in zip(fragments, asked, now, strict=True)
        ]
        self._mean_ratio = float(np.concatenate([ratios for _, ratios in made]).mean())
        return [found for found, _ in made]


def rows_with_v_trace(
    fragment: Fragment,
    valid_rows: RowsToEvaluate,
    current: Sequence[NDArray[np.floating]],
    settings: Config,
) -> tuple[TrainBatch, NDArray[np.float64]]:
    """Return all T·N rows of a fragment with targets of V-trace, and the ratios of the valid rows.

    Args:
        fragment: fragment (T, N).
        valid_rows: valid rows of the fragment, and the observations after them.
        current: log-probabilities and values of `valid_rows`, each (B,), by the policy that learns.
        settings: discount, λ and bounds of the ratios.
    """
    is_current, row = ~valid_rows.is_next_observation, valid_rows.row
    judged = rows(np.stack([fragment.logp, fragment.values], axis=2)).astype(np.float64)
    judged[row[is_current]] = np.stack(current, axis=1)[
        is_current
    ]  # invalid rows keep their old values
    logp, values = judged.T.reshape(2, *fragment.valid.shape)
    following = next_values(
        values, fragment.last_values[0], fragment.final_values, fragment.truncated
    )
    np.put(
        following, row[valid_rows.is_next_observation], current[1][valid_rows.is_next_observation]
    )
    ratios = np.exp(logp - fragment.logp)
    advantages, targets = v_trace(
        fragment.rewards,
        values,
        following,
        (fragment.terminated, fragment.truncated),
        (settings.gamma, settings.lambda_),
        ratios,
        Bounds(settings.rho_bar, settings.c_bar, settings.pg_rho_bar),
    )
    batch = TrainBatch(
        observations=rows(fragment.observations),
        actions=rows(fragment.actions),
        logp=rows(fragment.logp),
        values=rows(values).astype(np.float32),
        advantages=rows(advantages).astype(np.float32),
        returns=rows(targets).astype(np.float32),
    )
    return batch, rows(ratios)[row[is_current]]

"""Data-parallel learning, seen from the trainer: which settings it refuses, and one round of it.

Each rollout worker is a rank, which learns from its own sample (`trainables.rollout.ranks.rank`).
The trainer keeps weights and optimiser, as it does where it learns itself.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

from trainables.envs.make import for_children
from trainables.errors import ConfigError
from trainables.policies.torch_policy import TorchPolicy
from trainables.rollout.batch import Sample
from trainables.rollout.callbacks import CallbacksConfig, make_calls
from trainables.rollout.ranks.group import RankGroup
from trainables.rollout.worker_spec import LearnerSpec
from trainables.trainable import Trainable
from trainables.trainer.config import TrainerConfig, timed
from trainables.trainer.reporting import Reporter

C = TypeVar("C", bound=TrainerConfig)
#: Key → the only value that it may have with data_parallel, and why.
NEEDED: dict[str, tuple[Any, str]] = {
    "ignore_worker_failures": (False, "all ranks take every step together"),
    "batch_mode": ("truncate_episodes", "all ranks need batches of one size"),
    "sample_async": (False, "a rank samples and learns in turn"),
    "compress_observations": (False, "observations stay in the child that learns from them"),
    "num_gpus": (0, "ranks learn on the CPU"),
    "num_gpus_per_worker": (0, "ranks learn on the CPU"),
}


class LearnsInRanks(Trainable):
    """What a trainer does where its workers learn."""

    settings: TrainerConfig
    policy: TorchPolicy
    reporter: Reporter

    # ---- what an algorithm writes --------------------------------------------------------------

    def learner_spec(self) -> LearnerSpec:
        """What each rank learns with."""
        raise NotImplementedError(f"{type(self).__name__} must define learner_spec()")

    def rank_request(self) -> tuple[Any, ...]:
        """The arguments of this round's `Rank.sample_and_learn`, the same for all ranks."""
        raise NotImplementedError(f"{type(self).__name__} must define rank_request()")

    # ---- inside --------------------------------------------------------------------------------

    @classmethod
    def check_data_parallel(cls, settings: TrainerConfig) -> None:
        """Raise ConfigError for settings that do not fit data-parallel learning."""
        workers = settings.workers
        if not workers.data_parallel:
            return
        if cls.learner_spec is LearnsInRanks.learner_spec:
            raise ConfigError(
                "data_parallel", True, "false", f"{cls.__name__} defines no learner_spec()"
            )
        if workers.num_workers < 2:
            raise ConfigError(
                "num_workers",
                workers.num_workers,
                "at least 2 with data_parallel: each is a learner",
            )
        sections = (settings.recovery, settings.sampling, settings.resources)
        given = {key: value for one in sections for key, value in one if key in NEEDED}
        for key, (allowed, why) in NEEDED.items():
            if given[key] != allowed:
                raise ConfigError(key, given[key], f"{allowed} with data_parallel", why)
        if settings.model.use_lstm:
            raise ConfigError(
                "model.use_lstm",
                True,
                "false with data_parallel",
                "ranks learn from single rows, not from sequences",
            )
        calls = make_calls(settings.callbacks)
        if calls and calls.wants("on_postprocess_traj"):
            raise ConfigError(
                "callbacks.on_postprocess_traj",
                settings.callbacks.callbacks,
                "absent with data_parallel",
                "rows stay in the child that learns from them, where no trainer can show them",
            )

    def _learn_in_ranks(
        self, ranks: RankGroup, timers: dict[str, float]
    ) -> tuple[Sequence[Sample], dict[str, float]]:
        """One round of all ranks; the policy here becomes theirs."""
        with timed(timers, "sample_and_learn_time_ms"):
            learnt = ranks.sample_and_learn(*self.rank_request())
        samples = [one.sample for one in learnt]
        self.reporter.sampled(samples)
        self.policy.set_state(learnt[0].policy or {})
        self.reporter.log("training output", learnt[0].info)
        return samples, learnt[0].info


def for_ranks(settings: C) -> C:
    """The settings as they travel to ranks, which need no functions of a person."""
    update = {"environment": for_children(settings.environment), "callbacks": CallbacksConfig()}
    return settings.model_copy(update=update)

"""A member: the trainer of one policy among several, without an environment of its own."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trainables.envs.exactness.measuring import Inquiry, Inspection
from trainables.envs.make import EnvironmentConfig
from trainables.rollout.batch import Sample
from trainables.rollout.workers.worker_set import WorkerSet
from trainables.trainable import TrialContext
from trainables.trainer.config import TrainerConfig
from trainables.trainer.multi_agent.agents import (
    Agents,
)
from trainables.trainer.trainer import Trainer


class _MemberWorkers(WorkerSet):
    """Stand-in for a member's workers: returns the part of common samples that it was given."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []

    def sample(self) -> list[Sample]:
        """Return `samples`: the member's part of this round, which the common trainer has set."""
        return self.samples

    def _ask(self, method: str, args: Any) -> dict[int, Any]:
        """Do nothing, since the common workers are asked instead; returns an empty dict."""
        return {}


@dataclass(frozen=True)
class MemberContext(TrialContext):
    """The connections of a member to the trainer of all policies."""

    inspection: Inspection | None = None
    """Inspected environment as the member's agents see it; a member always has one."""
    broadcast: Callable[[], None] | None = None
    """Function that sends the weights and filters of all members to all workers; a member always
    has one."""


class _KnownInquiry(Inquiry):
    """An `Inquiry` about an environment that was inspected before; nothing is measured."""

    def __init__(self, config: EnvironmentConfig, inspection: Inspection) -> None:
        super().__init__(config)
        self._seen = inspection

    def inspect(self) -> Inspection:
        """Return the inspection that the constructor got."""
        return self._seen


class Member(Trainer):
    """Base of members: trainers of one policy among several, which get samples from a common one.

    A member class derives from this one and from its algorithm's trainer.
    """

    context: MemberContext
    """Connections to the trainer of all policies."""
    workers: _MemberWorkers
    """Workers that return the member's part of the common samples."""

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Any:
        """Return this class, also for settings of several policies: a member learns one of them."""
        return cls

    def _inquiry(self) -> Inquiry:
        """Return an `Inquiry` with what the trainer of all policies found about the environment."""
        assert self.context.inspection is not None  # noqa: S101 as `_make_member` gives it
        return _KnownInquiry(self.settings.environment, self.context.inspection)

    @staticmethod
    def _log_batch_size(settings: TrainerConfig) -> None:
        """Log nothing: the batch size is that of all policies."""

    def _make_workers(self, seed: int) -> WorkerSet:
        """Return the stand-in for workers, which returns the member's part of common samples.

        `seed` is not used.
        """
        return _MemberWorkers()

    def broadcast(self) -> None:
        """Send the weights and filters of all policies to all workers."""
        assert self.context.broadcast is not None  # noqa: S101 as `_make_member` gives it
        self.context.broadcast()


@functools.cache
def member_class(algorithm: type[Trainer]) -> type[Trainer]:
    """Return the class, derived from `Member` and `algorithm`, of trainers of one policy.

    It is made once per algorithm.
    """
    return type(algorithm.__name__, (Member, algorithm), {"__module__": algorithm.__module__})


def member_key(pid: str) -> str:
    """Return the name of the setting ``restore`` of a policy, for errors."""
    return f"multiagent.policies.{pid}.restore"


def do_nothing(agents: Agents, members: Mapping[str, Trainer]) -> None:
    """Do nothing with new policies; passed as the function that sets their initial weights."""

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
    """A member's workers: they return its part of the common samples."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []

    def sample(self) -> list[Sample]:
        """Return the samples of the member's agents in this round."""
        return self.samples

    def _ask(self, method: str, args: Any) -> dict[int, Any]:
        """Ignore the request, which the common workers answer; returns an empty dict."""
        return {}


@dataclass(frozen=True)
class MemberContext(TrialContext):
    """The connections of a member to the trainer of all policies."""

    inspection: Inspection | None = None
    """Inspected environment as the member's agents see it; None before the member is made."""
    broadcast: Callable[[], None] | None = None
    """Function that sends the weights and filters of all members to all workers."""


class _KnownInquiry(Inquiry):
    """The inquiry about a member's environment, which was inspected before; nothing is measured."""

    def __init__(self, config: EnvironmentConfig, inspection: Inspection) -> None:
        super().__init__(config)
        self._seen = inspection

    def inspect(self) -> Inspection:
        """Return the given inspection."""
        return self._seen


class Member(Trainer):
    """The trainer of one policy among several, as far as it differs from a single one."""

    context: MemberContext
    """Connections to the trainer of all policies."""
    workers: _MemberWorkers
    """Workers that return the member's part of the common samples."""

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Any:
        """Return this class, also for settings of several policies: a member learns one of them."""
        return cls

    def _inquiry(self) -> Inquiry:
        """Return the measurements of the environment that the trainer of all policies has made."""
        assert self.context.inspection is not None  # noqa: S101 as `_make_member` gives it
        return _KnownInquiry(self.settings.environment, self.context.inspection)

    @staticmethod
    def _log_batch_size(settings: TrainerConfig) -> None:
        """Log nothing: the batch size is that of all policies."""

    def _make_workers(self, seed: int) -> WorkerSet:
        """Return workers that return the member's part of the common samples."""
        return _MemberWorkers()

    def broadcast(self) -> None:
        """Send the weights and filters of all policies to all workers."""
        assert self.context.broadcast is not None  # noqa: S101 as `_make_member` gives it
        self.context.broadcast()


@functools.cache
def member_class(algorithm: type[Trainer]) -> type[Trainer]:
    """Return an algorithm's class of members."""
    return type(algorithm.__name__, (Member, algorithm), {"__module__": algorithm.__module__})


def member_key(pid: str) -> str:
    """Return the key of a policy's file of trained weights."""
    return f"multiagent.policies.{pid}.restore"


def do_nothing(agents: Agents, members: Mapping[str, Trainer]) -> None:
    """Leave new policies as they were made: their weights are loaded from a checkpoint later."""

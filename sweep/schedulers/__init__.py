"""Schedulers decide which trials run, and how far; one file each.

The driver calls one in a loop:

    plan = scheduler.plan(history, free)       # free: number of free slots
    record(plan)                               # one transaction
    run(plan)

A scheduler is a function of the history and has no state between calls, so there is nothing to save
or to lose. It does not see trials that were interrupted before their goals; the driver resumes
those first.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from pydantic import BaseModel

from sweep.core import plugins
from sweep.history.events import Evidence, Goal, Status
from sweep.history.history import History
from sweep.spec.sections import Seeds
from sweep.spec.space import Space

PACKAGE = __name__
#: Reason for which a scheduler has no option ``finish_best``.
NOBODY_WAITS = "no trial waits for a promotion there"
#: Scheduler that has it, as in a spec.
WAITING = "{name: asha, type: promotion}"


@dataclass(frozen=True)
class Resume:
    """Decision that a paused trial continues from its newest checkpoint."""

    trial: int
    """Number of the trial."""
    goal: Goal
    """Point up to which the trial trains before the next decision."""
    reason: str
    """Reason for the decision, as a text for people, stored in the ledger."""
    evidence: Evidence = field(default_factory=dict)
    """Name → number, text or list of them: values that the decision was based on."""


@dataclass(frozen=True)
class NewTrial:
    """Decision that a new trial starts, with settings that the searcher will propose."""

    goal: Goal
    """Point up to which the trial trains before the next decision."""
    reason: str
    """Reason for the decision, as a text for people, stored in the ledger."""
    evidence: Evidence = field(default_factory=dict)
    """Name → number, text or list of them: values that the decision was based on."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """Searched parameter → value that the scheduler has chosen; the searcher proposes the
    others."""


@dataclass(frozen=True)
class Exploit:
    """Decision that a new trial starts from another one's newest checkpoint, with new settings.

    Such an offspring does not count among the searched trials.
    """

    parent: int
    """Number of the trial from whose newest checkpoint the new one starts."""
    searched: Mapping[str, Any]
    """Searched parameter → value of the new trial; derived settings follow from them."""
    goal: Goal
    """Point up to which the new trial trains before the next decision."""
    reason: str
    """Reason for the decision, as a text for people, stored in the ledger."""
    evidence: Evidence = field(default_factory=dict)
    """Name → number, text or list of them: values that the decision was based on."""


@dataclass(frozen=True)
class AddSeed:
    """Decision that a waiting or completed trial is trained under one more seed, from scratch."""

    trial: int
    """Number of the trial."""
    index: int
    """Index of the new replica: follows the indices of the trial's replicas, also of those that
    earlier decisions of the same plan add."""
    goal: Goal
    """Point up to which the new replica trains before the next decision."""
    reason: str
    """Reason for the decision, as a text for people, stored in the ledger."""
    evidence: Evidence = field(default_factory=dict)
    """Name → number, text or list of them: values that the decision was based on."""


@dataclass(frozen=True)
class Stop:
    """Decision that a paused trial ends."""

    trial: int
    """Number of the trial."""
    status: Status
    """Status with which the trial ends: PRUNED, or COMPLETED if it has reached the top rung."""
    reason: str
    """Reason for the decision, as a text for people, stored in the ledger."""
    evidence: Evidence = field(default_factory=dict)
    """Name → number, text or list of them: values that the decision was based on."""


@dataclass(frozen=True)
class Plan:
    """Decisions of a scheduler, carried out together by the driver; false if there are none.

    `resume`, `breed`, `seeds` and `fresh` have at most as many entries in total as slots are free.
    """

    stop: tuple[Stop, ...] = ()
    """Paused trials to end."""
    resume: tuple[Resume, ...] = ()
    """Paused trials to continue."""
    breed: tuple[Exploit, ...] = ()
    """Offspring to start from checkpoints of other trials."""
    fresh: tuple[NewTrial, ...] = ()
    """New trials to start from scratch."""
    seeds: tuple[AddSeed, ...] = ()
    """Further seeds under which to train trials."""

    def __bool__(self) -> bool:
        return bool(self.stop or self.resume or self.breed or self.fresh or self.seeds)


@dataclass(frozen=True)
class SchedulerContext:
    """Properties of a sweep that its scheduler needs when it is created."""

    stop: Mapping[str, float] = field(default_factory=dict)
    """Stopping criteria: name of a result → least value at which a trial ends."""
    trials: int = 1
    """Number of settings to search; a user may raise it later."""
    space: Space = field(default_factory=lambda: Space.parse({}))
    """Search space of the sweep."""
    seed: int = 0
    """Seed of the sweep; random decisions use named streams derived from it."""
    fixed: Collection[str] = ()
    """Names of searched settings that offspring must inherit, since their parent's checkpoint
    depends on them."""
    seeds: Seeds = 1
    """Number of seeds of each trial, or a plan by which trials that get far get more seeds."""


class Scheduler(Protocol):
    """Base of all schedulers, whose main method is `plan`."""

    Options: ClassVar[type[BaseModel]]
    """Pydantic model of the scheduler's options in a spec."""
    time_attr: str = "training_iteration"
    """Name of the result in whose values goals and rungs are counted."""
    levels: tuple[float, ...] = ()
    """Rungs (values of `time_attr`), ascending, at which searchers compare trials; empty if they
    are not known in advance."""
    remark: str = ""
    """Sentence about the rungs for the user, shown before a sweep runs; empty for none."""
    pauses: bool
    """True if paused trials wait while others take their slots; the trainable must then be able to
    save checkpoints."""
    adds_seeds: ClassVar[bool] = False
    """True if the scheduler can follow a plan of seeds, adding seeds (`AddSeed`) to trials that get
    far."""
    default_seeds: Seeds = 1
    """Number or plan of seeds if the spec has none, for trainables whose results depend on the
    seed."""
    ranks_by_fronts: ClassVar[bool] = False
    """True if trials at a rung are ranked by all objectives; False if by the metric alone."""
    startup_trials: int | None = None
    """Number of trials that are always completed before any is judged and ended early; used to
    estimate progress without `remaining_training`. None if trials are not judged one by one."""

    def __init__(self, options: BaseModel, context: SchedulerContext) -> None:
        """Read the options, which are an instance of `Options`; this default reads nothing."""
        del options, context

    @classmethod
    def settle(cls, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the options to store in the ledger of a new sweep, from those in its spec.

        An option whose default has changed since older sweeps were created is added explicitly: the
        default in `Options` is for ledgers that lack the key. This default returns the options
        unchanged.
        """
        return options

    def plan(self, history: History, free: int) -> Plan:
        """Return the decisions for `free` free slots, from the history alone, which stays as it is.

        At most `free` trials are continued or started. The sweep ends if the plan is empty while
        nothing runs.
        """
        ...

    def remaining_training(self, history: History) -> float | None:
        """Return an estimate of the training left, for progress; None if the scheduler has none.

        It is summed over all trials, in units of `time_attr`. Without an estimate, one is made from
        the lengths of ended trials.
        """
        return None

    def promotion_count(self, count: int) -> int | None:
        """Return how many of `count` trials at a rung continue, for explanations.

        Returns None if the answer depends on more than `count`.
        """
        del count
        return None


KIND: plugins.Kind[Scheduler] = plugins.Kind(
    "scheduler", PACKAGE, Scheduler, "Scheduler", ("Options", "plan")
)
find = KIND.find

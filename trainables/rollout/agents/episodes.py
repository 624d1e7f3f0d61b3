"""Plans of policies, running episodes and collected fragments of the sampler of several agents."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from numpy.typing import NDArray

from trainables.envs.make import EnvSpaces
from trainables.policies.acting.actor import Actor
from trainables.rollout.batch import Fragment
from trainables.rollout.episodes.metrics import RolloutMetrics

Array = NDArray[Any]


@dataclass(frozen=True)
class PolicyPlan:
    """Actor, spaces and columns of one policy in a worker; it is sent to child processes."""

    make_actor: Callable[[], Actor]
    """Function that makes the policy's actor."""
    spaces: EnvSpaces
    """Spaces of the policy's agents."""
    columns: frozenset[str]
    """Requested columns of fragments, in addition to the standard ones and those of the actor."""
    learns: bool
    """False if the policy does not learn; its filter is not updated either."""
    gamma: float
    """Discount of the returns by which rewards are scaled."""
    unfiltered: bool = False
    """True if fragments store observations and rewards before the filters, as with
    `WorkerSpec.unfiltered`."""


class CollectedByPolicy(NamedTuple):
    """The fragments of one call of `AgentsSampler.sample`, by policy."""

    fragments: dict[str, list[Fragment]]
    """Policy → its fragments; absent if its agents made no transition."""
    env_steps: int
    """Number of environment steps."""
    counted_steps: int
    """Number of environment steps, or of agent steps if the setting `count_steps_by` says so."""
    episodes: list[RolloutMetrics]
    """Episodes that ended, in the order of their ends."""
    recent: dict[str, Array]
    """Policy → latest raw observations (≤ 64, D)."""


@dataclass
class RunningEpisode:
    """The running episode of one environment."""

    number: int
    """Number of the episode, unique in a trial."""
    policies: dict[str, str] = field(default_factory=dict)
    """Agent → its policy in this episode."""
    rewards: dict[str, float] = field(default_factory=dict)
    """Agent → sum of its rewards so far."""
    waiting: dict[str, Array] = field(default_factory=dict)
    """Agent → raw observation (*S) on which it acts in the next step of the environments."""
    open: dict[str, int] = field(default_factory=dict)
    """Agent → index of the row of its policy whose consequence is not known yet."""
    lanes: dict[str, int] = field(default_factory=dict)
    """Agent → lane of its trajectory, that is, its column in the policy's fragments."""
    steps: dict[str, int] = field(default_factory=dict)
    """Agent → steps of its trajectory."""
    memory: dict[str, Array] = field(default_factory=dict)
    """Agent → memory (M + L,) for the next observation: the policy's, then the connectors'."""
    acted: int = 0
    """Number of decisions of all agents so far."""


#: Fields of an episode that are dicts of plain values.
PLAIN = ("policies", "rewards", "open", "lanes", "steps")


def reward_filter_name(pid: str) -> str:
    """Return the name of a policy's filter of rewards."""
    return f"{pid}/reward"

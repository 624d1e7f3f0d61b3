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
    """Names of the requested columns of fragments (`trainables.rollout.batch.REQUESTABLE`)."""
    learns: bool
    """False if the policy does not learn; its filter is not updated either."""
    gamma: float
    """Discount factor of the running return whose spread scales the rewards."""
    unfiltered: bool = False
    """True if fragments store observations and rewards before the filters, as with
    `WorkerSpec.unfiltered`."""


class CollectedByPolicy(NamedTuple):
    """The fragments of one call of `AgentsSampler.sample`, by policy."""

    fragments: dict[str, list[Fragment]]
    """Policy → its fragments; a policy whose agents made no transition is absent."""
    env_steps: int
    """Number of environment steps; one step of an environment counts once for all its agents.

    With whole episodes it is the sum of the ended ones' lengths.
    """
    counted_steps: int
    """Steps that count towards the minimum of a sample, as `MultiAgentBatch.counted_steps` says."""
    episodes: list[RolloutMetrics]
    """Episodes that ended, in the order of their ends."""
    recent: dict[str, Array]
    """Policy → its agents' latest raw observations (≤ 64, *S) of this call, the newest last.

    Policies whose agents did not act are absent.
    """


@dataclass
class RunningEpisode:
    """The running episode of one environment, with what is stored for each of its agents."""

    number: int
    """Number of the episode, unique among all workers of a trial."""
    policies: dict[str, str] = field(default_factory=dict)
    """Agent → name of its policy in this episode; agents that have not appeared are absent."""
    rewards: dict[str, float] = field(default_factory=dict)
    """Agent → sum of its rewards in the episode so far; agents that have not appeared are absent.
    """
    waiting: dict[str, Array] = field(default_factory=dict)
    """Agent → raw observation (*S) on which it acts in the next step of the environments."""
    open: dict[str, int] = field(default_factory=dict)
    """Agent → index in `Transitions.rows` of its latest decision, if the observation that follows
    the decision has not arrived yet."""
    lanes: dict[str, int] = field(default_factory=dict)
    """Agent → index on the environment axis of its policy's fragments, where its steps stand;
    agents without a running trajectory are absent."""
    steps: dict[str, int] = field(default_factory=dict)
    """Agent → number of its decisions in its running trajectory, from 0; agents without one are
    absent."""
    memory: dict[str, Array] = field(default_factory=dict)
    """Agent → (M + L,) state carried to its next decision: the M numbers of the policy's recurrent
    state, then L numbers of the connectors, such as stacked frames or previous actions. An agent
    is absent before its first decision in a trajectory, and if M + L is 0."""
    acted: int = 0
    """Number of decisions of all agents so far."""


#: Fields of an episode that are dicts of plain values.
PLAIN = ("policies", "rewards", "open", "lanes", "steps")


def reward_filter_name(pid: str) -> str:
    """Return ``<pid>/reward``, the key of the filter of a policy's rewards in a worker's filters.

    The filter of its observations has the key `pid`.
    """
    return f"{pid}/reward"

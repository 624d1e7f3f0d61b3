"""What every sampler has to give, stated once more: rows, what a policy sees, how rewards scale.

All of it is slow and plain on purpose: loops over agents, one row at a time, statistics taken anew
from all that was ever counted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.support.oracle.players import MEMORY, Decision, decide, observed, value
from tests.support.oracle.scripts import ACTIONS, AGENTS, LENGTH, ONLY, SENT
from trainables.policies.acting.actor import Actor

Array = NDArray[Any]
EPSILON = 1e-8
#: That are compared, of those that can be requested.
COLUMNS = frozenset(
    {"new_obs", "t", "eps_id", "infos", "agent_index", "prev_actions", "prev_rewards", "state_out"}
)


@dataclass(frozen=True)
class Rules:
    """How is sampled: the settings, in the oracle's words."""

    envs: int = 2
    fragment: int = 4
    steps: int = 8
    """That one sample has to bring."""
    whole: bool = False
    """Whether episodes stay whole."""
    kind: str = "choice"
    """Of actions."""
    horizon: int | None = None
    soft: bool = False
    no_done: bool = False
    filtered: bool = False
    previous: bool = False
    """Whether policies see their last action and reward, too."""
    clip: float | bool | None = None
    """How rewards are clipped."""
    scaled: bool = False
    unfiltered: bool = False
    """Whether rows are held as they are before filters, which count them all the same."""
    gamma: float = 0.9
    worker: tuple[int, int] = (0, 1)
    """Index, and how many there are."""
    seed: int = 3
    policies: Mapping[str, str] = field(default_factory=lambda: dict.fromkeys(AGENTS, "one"))
    """Agent → policy."""
    frozen: frozenset[str] = frozenset()
    """Policies that do not learn."""
    agent_steps: bool = False
    """Whether steps of agents are counted."""

    def number(self, env: int, before: int) -> int:
        """The number in the trial of an environment's episode, `before` of which there were."""
        index, workers = self.worker
        return before * workers * self.envs + index * self.envs + env


@dataclass
class Row:
    """One decision and what followed; None is compared with nothing."""

    observations: Array
    actions: Any
    values: float
    memory: Array | None
    t: int
    eps_id: int
    agent_index: int = 0
    rewards: float | None = None
    terminated: bool = False
    truncated: bool = False
    valid: bool = True
    final_values: float | None = 0.0
    new_obs: Array | None = None
    infos: Mapping[str, Any] | None = None
    prev_actions: Any = 0
    prev_rewards: float = 0.0
    state_out: Array | None = None
    logp: float | None = None


@dataclass
class Lane:
    """A column of a fragment: its rows stand at the end, before them nothing is a transition."""

    rows: list[Row] = field(default_factory=list)
    last_values: float | None = None


@dataclass
class Ended:
    """What is said of an episode that is over."""

    total: float
    length: int
    faulty: bool = False
    by_agent: dict[str, tuple[str, float]] | None = None
    """Agent → its policy and the sum of its rewards."""


@dataclass
class Carried:
    """What an agent carries from step to step; nothing as its part begins."""

    memory: Array = field(default_factory=lambda: np.zeros(MEMORY, np.float32))
    action: Any = None
    """The last one, as far as it is sent: clipped."""
    reward: float = 0.0
    """Since the last action."""

    def acted(self, rules: Rules, decision: Decision) -> None:
        """Take note of a decision."""
        self.memory, self.reward = decision.memory, 0.0
        self.action = decision.action
        if rules.kind == "interval":
            self.action = sent(decision.action)

    def copy(self) -> "Carried":
        """As it is now."""
        return Carried(self.memory.copy(), self.action, self.reward)


def sent(action: Any) -> Any:
    """What of a number, (1,), arrives at the environment."""
    box: Any = ACTIONS["interval"]
    return np.clip(action, box.low, box.high)


class Policy:
    """What one policy sees, and decides; its filter.

    With an `actor` that draws, its actions are those that arrived at the environments.
    """

    def __init__(self, rules: Rules, learns: bool = True, actor: Actor | None = None) -> None:
        self.rules, self.learns, self.actor = rules, learns, actor
        self.counted: list[Array] = []
        """All observations that the filter has counted."""
        self.returns: list[float] = []
        """All discounted returns that the filter of rewards has counted."""

    def count(self, raws: Sequence[Array]) -> None:
        """Count the observations of one decision."""
        if self.rules.filtered and self.learns:
            self.counted += raws

    def see(self, raw: Array, carried: Carried) -> Array:
        """(D,) as the networks see it: the reward and action before, then the filtered row."""
        row = raw.astype(np.float64)
        if self.rules.filtered:
            row = np.clip((row - self._mean) / (self._deviation(self.counted) + EPSILON), -10, 10)
        return self._beside(row, carried)

    def hold(self, raw: Array, carried: Carried) -> Array:
        """(D,) as fragments hold it."""
        return self._beside(raw, carried) if self.rules.unfiltered else self.see(raw, carried)

    def _beside(self, row: Array, carried: Carried) -> Array:
        before: list[Array] = []
        if self.rules.previous:
            before = [np.array([carried.reward]), self._last_action(carried)]
        return np.concatenate([*before, row]).astype(np.float32)

    def decide(
        self, raw: Array, carried: Carried, place: tuple[int, int, int] = (0, 0, 0)
    ) -> tuple[Array, Decision]:
        """What a fragment holds of it, and what is decided.

        `place` is the environment, its episode and the step.
        """
        seen, held = self.see(raw, carried), self.hold(raw, carried)
        if self.actor is not None:
            return held, observed(self.actor, seen, SENT[place][ONLY])
        return held, decide(self.rules.kind, seen, carried.memory)

    def judge(self, raw: Array, carried: Carried) -> float:
        """The value of an observation."""
        seen = self.see(raw, carried)
        if self.actor is not None:
            return observed(self.actor, seen, 0).value
        return value(seen, carried.memory)

    def learnt(self, reward: float) -> float:
        """A reward as it is clipped."""
        clip = self.rules.clip
        if clip is True:
            return float(np.sign(reward))
        return float(np.clip(reward, -clip, clip)) if clip else reward

    def scale(self, reward: float) -> float:
        """A reward by the deviation of all returns that were counted, as fragments hold it."""
        if self.rules.unfiltered:
            return reward
        return float(np.clip(reward / (self._deviation(self.returns) + EPSILON), -10, 10))

    @property
    def _mean(self) -> Any:
        return np.mean(np.array(self.counted, np.float64), axis=0) if self.counted else 0.0

    @staticmethod
    def _deviation(counted: Sequence[Any]) -> Any:
        return np.std(np.array(counted, np.float64), axis=0) if len(counted) > 1 else 1.0

    def _last_action(self, carried: Carried) -> Array:
        if self.rules.kind == "interval":
            return np.zeros(1) if carried.action is None else np.asarray(carried.action)
        one_hot = np.zeros(LENGTH)
        one_hot[carried.action or 0] = 1.0
        return one_hot

"""Records of each agent of a running episode: its observations, actions, rewards and policy.

Kept only where callbacks look at episodes. A memory (M,) is the policy's own, then what the
connectors carry, as `trainables.policies.inference` has it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables.envs.external.calling import AGENT
from trainables.policies.inference import InferencePolicy

Array = NDArray[Any]
#: The outputs of a decision by their names, or what gives them.
Outputs = Mapping[str, float] | Callable[[], Mapping[str, float]]


class Cast:
    """Which policies play the agents of one episode.

    Args:
        players: policy → what plays with it; a live view where policies come and go.
        policy_of: gives the policy of an agent, also of one that has not appeared yet.
    """

    def __init__(
        self, players: Mapping[str, InferencePolicy], policy_of: Callable[[str], str]
    ) -> None:
        self.players = players
        self.policy_of = policy_of


@dataclass
class AgentRecord:
    """The record of one agent."""

    seen: Any = None
    """(*O) its latest observation, as the environment gave it."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """Of the latest step that had one for it."""
    actions: tuple[Array | None, Array | None] = (None, None)
    """The last one and the one before, each as the policy chose it."""
    rewards: tuple[float, float] = (0.0, 0.0)
    """The last one and the one before."""
    memory: Array | None = None
    """(M,) with which the latest observation is seen; None: as an episode begins."""
    outputs: Outputs | None = None
    """Of the last action."""
    is_over: bool = False
    """True if its trajectory has ended; an agent that returns begins another one."""

    def observe(self, seen: Any) -> None:
        """Take note of an observation."""
        if self.is_over:
            self.memory, self.is_over = None, False
        self.seen = np.array(seen)

    def decide(self, action: Array, memory: Array, outputs: Outputs) -> None:
        """Take note of an action and the memory after it; both are copied."""
        self.actions = np.array(action), self.actions[0]
        self.memory = np.array(memory)
        self.outputs = outputs

    def reward(self, reward: float, player: InferencePolicy | None) -> None:
        """Take note of a reward, also in what the connectors carry."""
        self.rewards = reward, self.rewards[0]
        if self.memory is not None and player is not None and player.connectors.memory_size:
            player.rewarded(None, self.memory, reward)

    def get_state(self) -> dict[str, Any]:
        """Return the state of the records as plain data."""
        return {
            "seen": self.seen,
            "actions": list(self.actions),
            "rewards": list(self.rewards),
            "memory": self.memory,
            "is_over": self.is_over,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave."""
        last, before = (None if one is None else np.array(one) for one in state["actions"])
        self.actions = last, before
        self.rewards = float(state["rewards"][0]), float(state["rewards"][1])
        self.memory = None if state["memory"] is None else np.array(state["memory"])
        self.seen = None if state["seen"] is None else np.array(state["seen"])
        self.is_over = bool(state["is_over"])


class AgentRecords:
    """Methods of an episode that answer callbacks about its agents; ``agent0`` if there is one.

    An agent is asked for by its name. After `on_episode_end`, and in `on_postprocess_traj`, nobody
    plays the episode any more: `policy_for` knows the agents that it was asked for before, and what
    needs a policy's networks raises ValueError.
    """

    def __init__(self, cast: Cast | None = None) -> None:
        self._cast = cast
        self._policies: dict[str, str] = {}
        self._of: dict[str, AgentRecord] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Leave out who plays, which is in one process alone."""
        records = {
            agent: AgentRecord(one.seen, one.info, one.actions, one.rewards, one.memory)
            for agent, one in self._of.items()
        }
        return {**vars(self), "_cast": None, "_of": records}

    # ---- what callbacks ask ----------------------------------------------------------------------

    def get_agents(self) -> list[str]:
        """Return the agents that were seen in the episode so far."""
        return list(self._of)

    def policy_for(self, agent_id: str = AGENT) -> str:
        """Return the name of an agent's policy; the mapping is asked if it was not yet."""
        if agent_id not in self._policies:
            self._policies[agent_id] = self._playing(agent_id).policy_of(agent_id)
        return self._policies[agent_id]

    def last_raw_obs_for(self, agent_id: str = AGENT) -> Any:
        """Return the latest observation (*O) as the environment gave it; None before the first."""
        return self._record(agent_id).seen

    def last_observation_for(self, agent_id: str = AGENT) -> Array | None:
        """Return the latest observation as the policy sees it; None before the first.

        It is preprocessed and filtered, by what the filter has counted so far.
        """
        record = self._record(agent_id)
        if record.seen is None:
            return None
        player = self._player(agent_id)
        memory = player.initial_memory() if record.memory is None else record.memory
        seen: Array = player.prepare(np.array(record.seen)[None], memory[None])[0][0]
        return seen

    def last_info_for(self, agent_id: str = AGENT) -> Mapping[str, Any]:
        """Return the agent's latest info; empty before the first, and after a restore."""
        return self._record(agent_id).info

    def last_action_for(self, agent_id: str = AGENT) -> Any:
        """Return the last action as the policy chose it, a number or (K,); zeros before it."""
        return self._action(agent_id, 0)

    def prev_action_for(self, agent_id: str = AGENT) -> Any:
        """Return the action before the last one; zeros if there is none."""
        return self._action(agent_id, 1)

    def last_reward_for(self, agent_id: str = AGENT) -> float:
        """Return the agent's last reward, the environment's own; 0 before the first."""
        return self._record(agent_id).rewards[0]

    def prev_reward_for(self, agent_id: str = AGENT) -> float:
        """Return the reward before the last one; 0 if there is none."""
        return self._record(agent_id).rewards[1]

    def rnn_state_for(self, agent_id: str = AGENT) -> list[Array]:
        """Return the state after the last action, in the parts of `Trainer.get_initial_state`."""
        player, record = self._player(agent_id), self._record(agent_id)
        memory = player.initial_memory() if record.memory is None else record.memory
        return [np.array(part) for part in player.split_state(memory)]

    def last_pi_info_for(self, agent_id: str = AGENT) -> dict[str, float]:
        """Return how the last action was chosen, as `Trainer.compute_action` does.

        It is empty before the first action, with algorithms that say nothing of it, after the
        episode, and after a restore until the next action.
        """
        outputs = self._record(agent_id).outputs
        if outputs is None:
            return {}
        return dict(outputs() if callable(outputs) else outputs)

    # ---- what is noted ---------------------------------------------------------------------------

    def note_observation(self, agent: str, seen: Any) -> None:
        """Take note of an observation."""
        self._of.setdefault(agent, AgentRecord()).observe(seen)

    def note_info(self, agent: str, info: Mapping[str, Any]) -> None:
        """Take note of an info."""
        self._of.setdefault(agent, AgentRecord()).info = info

    def note_decision(self, agent: str, action: Array, memory: Array, outputs: Outputs) -> None:
        """Take note of what an agent does and the memory (M,) after it."""
        self._of.setdefault(agent, AgentRecord()).decide(action, memory, outputs)

    def note_reward(self, agent: str, reward: float) -> None:
        """Take note of a reward."""
        record = self._of.setdefault(agent, AgentRecord())
        plays = self._cast is not None and record.memory is not None
        record.reward(reward, self._player(agent) if plays else None)

    def note_end(self, agent: str) -> None:
        """Take note that an agent's trajectory has ended."""
        self._of.setdefault(agent, AgentRecord()).is_over = True

    def let_go(self) -> None:
        """Forget who plays: the episode is over."""
        self._cast = None
        for one in self._of.values():
            one.outputs = None

    def get_records(self) -> dict[str, Any]:
        """Agent → its `AgentRecord.get_state`; infos are not kept."""
        return {agent: one.get_state() for agent, one in self._of.items()}

    def set_records(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_records` gave."""
        self._of = {agent: AgentRecord() for agent in state}
        for agent, one in self._of.items():
            one.set_state(state[agent])

    # ---- inside ----------------------------------------------------------------------------------

    def _record(self, agent_id: str) -> AgentRecord:
        return self._of.get(agent_id) or AgentRecord()

    def _playing(self, agent_id: str) -> Cast:
        if self._cast is None:
            raise ValueError(f"who plays {agent_id!r} is known only while its episode is played")
        return self._cast

    def _player(self, agent_id: str) -> InferencePolicy:
        return self._playing(agent_id).players[self.policy_for(agent_id)]

    def _action(self, agent_id: str, which: int) -> Any:
        action = self._record(agent_id).actions[which]
        if action is None:
            layout = self._player(agent_id).spaces.layout
            return np.zeros(layout.shape, layout.dtype)[()]
        return np.array(action)[()]

"""Records of each agent of a running episode: its observations, actions, rewards and policy.

They are kept only where callbacks look at episodes. A memory (M,) holds the policy's own numbers,
then those of the connectors, as `trainables.policies.acting.inference` lays it out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables.envs.external.polled import AGENT
from trainables.policies.acting.inference import InferencePolicy

Array = NDArray[Any]
#: Policy outputs of one decision, name → number, or a function that returns them.
Outputs = Mapping[str, float] | Callable[[], Mapping[str, float]]


class EpisodePolicies:
    """The policies that play the agents of one episode.

    Args:
        inference_policies: policy → its `InferencePolicy`; the owner's own dict, to which policies
            may be added.
        policy_of: function of an agent's name that returns its policy's name, also for agents that
            have not appeared yet.
    """

    def __init__(
        self, inference_policies: Mapping[str, InferencePolicy], policy_of: Callable[[str], str]
    ) -> None:
        self.inference_policies = inference_policies
        self.policy_of = policy_of


@dataclass
class AgentRecord:
    """Latest observation, info, actions, rewards and recurrent state of one agent in an episode."""

    latest: Any = None
    """Latest observation (*O) as the environment returned it; None before the first."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """Latest info that the environment returned for this agent; empty before the first, and after a
    restore."""
    actions: tuple[Array | None, Array | None] = (None, None)
    """The last action (…) and the one before it, as the policy chose them; None where there is
    none."""
    rewards: tuple[float, float] = (0.0, 0.0)
    """The last reward and the one before it; 0 where there is none."""
    memory: Array | None = None
    """(M,) recurrent state of the policy, then of the connectors, after the last action; None
    before the first action of a trajectory."""
    outputs: Outputs | None = None
    """Policy outputs of the last action, or a function that returns them; None if there are none.
    """
    is_over: bool = False
    """True if the agent's trajectory has ended; an agent that returns begins another one."""

    def observe(self, observation: Any) -> None:
        """Store a copy of an observation (*O).

        The first one after the trajectory's end resets the recurrent state.
        """
        if self.is_over:
            self.memory, self.is_over = None, False
        self.latest = np.array(observation)

    def decide(self, action: Array, memory: Array, outputs: Outputs) -> None:
        """Store an action, the recurrent state (M,) after it, both copied, and the outputs."""
        self.actions = np.array(action), self.actions[0]
        self.memory = np.array(memory)
        self.outputs = outputs

    def reward(self, reward: float, player: InferencePolicy | None) -> None:
        """Store a reward, and update the connectors' part of the state in place if it uses rewards.

        Args:
            reward: reward as the environment returned it.
            player: policy that plays the agent; None if no state is to be updated.
        """
        self.rewards = reward, self.rewards[0]
        if self.memory is not None and player is not None and player.connectors.memory_size:
            player.add_reward(None, self.memory, reward)

    def get_state(self) -> dict[str, Any]:
        """Return the record as plain data for a checkpoint, without info and policy outputs.

        ``seen`` is the latest observation; ``actions``, ``rewards``, ``memory`` and ``is_over`` are
        the attributes of these names.
        """
        return {
            "seen": self.latest,
            "actions": list(self.actions),
            "rewards": list(self.rewards),
            "memory": self.memory,
            "is_over": self.is_over,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `get_state` returned."""
        last, before = (None if one is None else np.array(one) for one in state["actions"])
        self.actions = last, before
        self.rewards = float(state["rewards"][0]), float(state["rewards"][1])
        self.memory = None if state["memory"] is None else np.array(state["memory"])
        self.latest = None if state["seen"] is None else np.array(state["seen"])
        self.is_over = bool(state["is_over"])


class AgentRecords:
    """Base class of `Episode`: methods with which callbacks ask about the agents of an episode.

    Agents are named by the environment; the only agent of a single-agent environment is ``agent0``.
    After `on_episode_end`, and in `on_postprocess_traj`, no policy plays the episode any more:
    `policy_for` then knows only the agents that were looked up before, and methods that need a
    policy's networks raise ValueError.

    Args:
        episode_policies: policies that play the episode; None if they are not in this process.
    """

    def __init__(self, episode_policies: EpisodePolicies | None = None) -> None:
        self._episode_policies = episode_policies
        self._policies: dict[str, str] = {}
        self._records: dict[str, AgentRecord] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes for a copy or another process, without policies and outputs."""
        records = {agent: replace(one, outputs=None) for agent, one in self._records.items()}
        return {**vars(self), "_episode_policies": None, "_records": records}

    # ---- questions of callbacks ------------------------------------------------------------------

    def get_agents(self) -> list[str]:
        """Return the names of the agents that appeared in the episode so far."""
        return list(self._records)

    def policy_for(self, agent_id: str = AGENT) -> str:
        """Return the name of an agent's policy.

        The first call for an agent asks the policy mapping, and the answer is kept. Raises
        ValueError if the episode is over by then or, with several agents, none has this name.
        """
        if agent_id not in self._policies:
            self._policies[agent_id] = self._require_policies(agent_id).policy_of(agent_id)
        return self._policies[agent_id]

    def last_raw_obs_for(self, agent_id: str = AGENT) -> Any:
        """Return the environment's latest observation (*O); None before the first."""
        return self._record(agent_id).latest

    def last_observation_for(self, agent_id: str = AGENT) -> Array | None:
        """Return the latest observation (*S) as the policy sees it; None before the first.

        It is preprocessed and filtered with the filter's current statistics, without updating them.
        Raises ValueError after the episode.
        """
        record = self._record(agent_id)
        if record.latest is None:
            return None
        player = self._player(agent_id)
        memory = player.initial_memory() if record.memory is None else record.memory
        seen: Array = player.prepare(np.array(record.latest)[None], memory[None])[0][0]
        return seen

    def last_info_for(self, agent_id: str = AGENT) -> Mapping[str, Any]:
        """Return the agent's latest info; empty before the first, and after a restore."""
        return self._record(agent_id).info

    def last_action_for(self, agent_id: str = AGENT) -> Any:
        """Return the policy's last action, a number or (K,), as the policy chose it.

        It is neither scaled nor clipped to the action space's bounds; before the first action it is
        0, or zeros. Raises ValueError if there was none and the episode is over.
        """
        return self._past_action(agent_id, 0)

    def prev_action_for(self, agent_id: str = AGENT) -> Any:
        """Return the policy's action before the last one, as `last_action_for`; 0 without one."""
        return self._past_action(agent_id, 1)

    def last_reward_for(self, agent_id: str = AGENT) -> float:
        """Return the agent's last reward as the environment returned it; 0 before the first."""
        return self._record(agent_id).rewards[0]

    def prev_reward_for(self, agent_id: str = AGENT) -> float:
        """Return the reward before the last one; 0 if there is none."""
        return self._record(agent_id).rewards[1]

    def rnn_state_for(self, agent_id: str = AGENT) -> list[Array]:
        """Return the policy's recurrent state after the last action, the initial one before it.

        It is split into arrays as in `Trainer.get_initial_state`, the connectors' state, if any, as
        the last one; the list is empty if there is no state. Raises ValueError after the episode.
        """
        player, record = self._player(agent_id), self._record(agent_id)
        memory = player.initial_memory() if record.memory is None else record.memory
        return [np.array(part) for part in player.split_state(memory)]

    def last_pi_info_for(self, agent_id: str = AGENT) -> dict[str, float]:
        """Return the policy's outputs for the last action, named as by `Trainer.compute_action`.

        It is empty before the first action, for algorithms without such outputs, after the episode,
        and after a restore until the next action.
        """
        outputs = self._record(agent_id).outputs
        if outputs is None:
            return {}
        return dict(outputs() if callable(outputs) else outputs)

    # ---- recording -------------------------------------------------------------------------------

    def note_observation(self, agent: str, observation: Any) -> None:
        """Record a copy of an agent's latest observation (*O)."""
        self._records.setdefault(agent, AgentRecord()).observe(observation)

    def note_info(self, agent: str, info: Mapping[str, Any]) -> None:
        """Record an agent's latest info."""
        self._records.setdefault(agent, AgentRecord()).info = info

    def note_decision(self, agent: str, action: Array, memory: Array, outputs: Outputs) -> None:
        """Record an agent's action, the recurrent state (M,) after it and the policy's outputs."""
        self._records.setdefault(agent, AgentRecord()).decide(action, memory, outputs)

    def note_reward(self, agent: str, reward: float) -> None:
        """Record an agent's latest reward, and update its connectors' state if it has a policy."""
        record = self._records.setdefault(agent, AgentRecord())
        plays = self._episode_policies is not None and record.memory is not None
        record.reward(reward, self._player(agent) if plays else None)

    def note_end(self, agent: str) -> None:
        """Record that an agent's trajectory has ended."""
        self._records.setdefault(agent, AgentRecord()).is_over = True

    def drop_policies(self) -> None:
        """Forget the policies and the outputs of the last actions, since the episode is over."""
        self._episode_policies = None
        for one in self._records.values():
            one.outputs = None

    def get_records(self) -> dict[str, Any]:
        """Return agent → its record as plain data (`AgentRecord.get_state`), for a checkpoint."""
        return {agent: one.get_state() for agent, one in self._records.items()}

    def set_records(self, state: Mapping[str, Any]) -> None:
        """Replace the agents' records by those that `get_records` returned."""
        self._records = {agent: AgentRecord() for agent in state}
        for agent, one in self._records.items():
            one.set_state(state[agent])

    # ---- inside ----------------------------------------------------------------------------------

    def _record(self, agent_id: str) -> AgentRecord:
        """Return an agent's record; an empty one if the agent has not appeared."""
        return self._records.get(agent_id) or AgentRecord()

    def _require_policies(self, agent_id: str) -> EpisodePolicies:
        """Return the episode's policies.

        Raises ValueError, which names the agent, if the episode is over or a copy.
        """
        if self._episode_policies is None:
            raise ValueError(
                f"the policy of agent {agent_id!r} is known only while its episode is played"
            )
        return self._episode_policies

    def _player(self, agent_id: str) -> InferencePolicy:
        """Return the `InferencePolicy` that plays an agent; raises ValueError after the episode.

        The first call for an agent asks the policy mapping.
        """
        return self._require_policies(agent_id).inference_policies[self.policy_for(agent_id)]

    def _past_action(self, agent_id: str, steps_back: int) -> Any:
        """Return a copy of the action `steps_back` before the last one; zeros if there is none.

        A single number is returned as such. Raises ValueError if there is none and the episode is
        over, since the policy gives the shape.
        """
        action = self._record(agent_id).actions[steps_back]
        if action is None:
            layout = self._player(agent_id).spaces.layout
            return np.zeros(layout.shape, layout.dtype)[()]
        return np.array(action)[()]

"""The player of several policies: from observations of all agents to a dict of their actions.

For an evaluation it is one policy: an observation is a `Seen` (`trainables.envs.kinds.agents`), an
action a dict, and the memory of an episode holds each agent's policy, memory and rewards.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from trainables.core import rng
from trainables.policies.acting.inference import InferencePolicy, Note

Array = NDArray[Any]
#: Function of an agent and a random stream that returns the agent's policy.
Mapper = Callable[[str, np.random.Generator], str]


class AgentsPlayer(InferencePolicy):
    """Acts for several agents, each by one of several policies, in E episodes at once.

    `players` are by policy name; `mapping` returns the name for an agent that first appears in an
    episode.
    """

    def __init__(self, players: Mapping[str, InferencePolicy], mapping: Mapper) -> None:
        self.players = dict(players)
        self.mapping = mapping
        self.actor: Any = {pid: one.actor for pid, one in players.items()}

    def clipping(self, clip_actions: bool) -> Self:
        """Return a copy that clips actions to the action spaces' bounds if `clip_actions`."""
        clipped = {pid: one.clipping(clip_actions) for pid, one in self.players.items()}
        return type(self)(clipped, self.mapping)

    def begin(self, seed: int) -> Array:
        """Return the memory of a new episode: an array (1,) that holds a dict.

        It has ``policies``, ``memory`` and ``rewards`` of the agents that have appeared, all empty
        at first. The mapping draws policies from streams made from `seed`.
        """
        memory = np.empty(1, dtype=object)
        memory[0] = {"policies": {}, "memory": {}, "rewards": {}, "seed": seed, "asked": {}}
        return memory

    def act_each(
        self,
        observations: Array,
        memory: Array,
        streams: Sequence[np.random.Generator | None],
        note: Note | None = None,
    ) -> tuple[Array, Array]:
        """Choose the actions of E episodes; return an array (E,) of dicts, and the memories (E, 1).

        The dicts are agent → action, of the agents that are observed and do not end. Memories are
        changed in place. Each episode has an observation, and a random stream; None for the best
        action instead of a drawn one. `note`, if given, is called with the episode's index, the
        agent and its decision. Raises KeyError if the mapping returns an unknown policy.
        """
        asked: dict[str, list[tuple[int, str]]] = {pid: [] for pid in self.players}
        for i, seen in enumerate(observations):
            ended = {*seen["terminated"], *seen["truncated"]}
            for agent in (one for one in seen["observations"] if one not in ended):
                asked[self._policy(agent, memory[i])].append((i, agent))
        actions = np.empty(len(observations), dtype=object)
        actions[:] = [{} for _ in observations]
        for pid, who in asked.items():
            if who:
                given = observations, memory, streams
                self._act(self.players[pid], who, given, actions, note)
        return actions, memory

    def _act(
        self,
        player: InferencePolicy,
        actors: Sequence[tuple[int, str]],
        inputs: tuple[Array, Array, Sequence[np.random.Generator | None]],
        actions: Array,
        note: Note | None,
    ) -> None:
        """Choose the actions of the agents of one policy, in one batch, and add them to `actions`.

        `actors` are pairs of episode index and agent; `inputs` are observations, memory and streams
        of all episodes. `note`, if given, is called with each agent's decision.
        """
        observations, memory, streams = inputs
        rows = np.stack([observations[i]["observations"][agent] for i, agent in actors])
        begun = player.initial_memory()
        before = np.stack([memory[i, 0]["memory"].get(agent, begun) for i, agent in actors])

        def note_each(row: int, _: str, *decision: Any) -> None:
            """Pass on a decision with the agent that the row belongs to."""
            assert note is not None  # noqa: S101 else it is not given
            note(*actors[row], *decision)

        own = [streams[i] for i, _ in actors]
        chosen, after = player.act_each(rows, before, own, note_each if note else None)
        for (i, agent), action, one in zip(actors, chosen, after, strict=True):
            actions[i][agent] = action
            memory[i, 0]["memory"][agent] = one

    def policy_for(self, agent: str, memory: Array) -> str:
        """Return an agent's policy in the episode of this memory; also before the agent appears.

        The first time the mapping is asked, with a stream of its own; its answer is kept in
        `memory`.
        """
        asked = memory[0]["asked"]
        if agent not in asked:
            stream = rng.generator(memory[0]["seed"], "mapping", agent)
            asked[agent] = self.mapping(agent, stream)
        pid: str = asked[agent]
        return pid

    def _policy(self, agent: str, memory: Array) -> str:
        """Return an agent's policy in an episode; the first time, choose and record it."""
        known = memory[0]
        if agent not in known["policies"]:
            known["policies"][agent] = self.policy_for(agent, memory)
            known["rewards"][agent] = 0.0
        pid: str = known["policies"][agent]
        return pid

    def add_reward(
        self, observation: Any, memory: Array, reward: float, is_over: bool = False
    ) -> None:
        """Add the agents' rewards of the step that led to this observation to the episode's memory.

        As in sampling, an agent that appears with its reward is assigned a policy, unless the agent
        or the episode ends in this step (`is_over`). The policy's memory of an agent that ended is
        dropped. `reward`, the sum of all, is not used.
        """
        known = memory[0]
        ended = {*observation["terminated"], *observation["truncated"]}
        for agent, amount in observation["rewards"].items():
            if agent not in known["policies"]:
                if is_over or agent in ended:
                    continue
                self._policy(agent, memory)
            known["rewards"][agent] += amount
            if agent in known["memory"]:
                player = self.players[known["policies"][agent]]
                player.add_reward(None, known["memory"][agent], amount)
        for agent in ended:
            known["memory"].pop(agent, None)

    def agent_rewards(self, memory: Array) -> dict[str, list[Any]] | None:
        """Return agent → [its policy, the sum of its rewards so far] of an episode; never None."""
        policies = memory[0]["policies"]
        return {a: [policies[a], sum_] for a, sum_ in memory[0]["rewards"].items()}

"""The player of several policies: what is seen by all agents in, a dict of their actions out.

To an evaluation it is one policy: an observation is what was `Seen`, an action a dict, and the
memory of an episode holds the policy of each agent, its own memory and what it was rewarded with.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from trainables.core import rng
from trainables.policies.inference import InferencePolicy

Array = NDArray[Any]
#: (agent, a stream for this binding) → its policy.
Mapper = Callable[[str, np.random.Generator], str]


class AgentsPlayer(InferencePolicy):
    """Plays with the players of several policies.

    Args:
        players: by policy.
        mapping: gives an agent its policy, when it first appears in an episode.
    """

    def __init__(self, players: Mapping[str, InferencePolicy], mapping: Mapper) -> None:
        self.players = dict(players)
        self.mapping = mapping
        self.actor: Any = {pid: one.actor for pid, one in players.items()}

    def clipping(self, clip_actions: bool) -> Self:
        """A copy whose actions are clipped to the action spaces' bounds, or are not."""
        clipped = {pid: one.clipping(clip_actions) for pid, one in self.players.items()}
        return type(self)(clipped, self.mapping)

    def begin(self, seed: int) -> Array:
        """(1,) with which an episode begins: a dict; its agents' policies are drawn from `seed`."""
        memory = np.empty(1, dtype=object)
        memory[0] = {"policies": {}, "memory": {}, "rewards": {}, "seed": seed}
        return memory

    def act_each(
        self,
        observations: Array,
        memory: Array,
        streams: Sequence[np.random.Generator | None],
    ) -> tuple[Array, Array]:
        """For each episode the actions of its agents, a dict, and the next memory."""
        asked: dict[str, list[tuple[int, str]]] = {pid: [] for pid in self.players}
        for i, seen in enumerate(observations):
            known: dict[str, Any] = memory[i, 0]
            ended = {*seen["terminated"], *seen["truncated"]}
            for agent in (one for one in seen["observations"] if one not in ended):
                asked[self._policy(agent, known)].append((i, agent))
        actions = np.empty(len(observations), dtype=object)
        actions[:] = [{} for _ in observations]
        for pid, who in asked.items():
            if who:
                self._act(self.players[pid], who, (observations, memory, streams), actions)
        return actions, memory

    def _act(
        self,
        player: InferencePolicy,
        who: Sequence[tuple[int, str]],
        given: tuple[Array, Array, Sequence[np.random.Generator | None]],
        actions: Array,
    ) -> None:
        """One batched decision of a policy, for agents of all episodes."""
        observations, memory, streams = given
        rows = np.stack([observations[i]["observations"][agent] for i, agent in who])
        begun = player.initial_memory()
        before = np.stack([memory[i, 0]["memory"].get(agent, begun) for i, agent in who])
        chosen, after = player.act_each(rows, before, [streams[i] for i, _ in who])
        for (i, agent), action, one in zip(who, chosen, after, strict=True):
            actions[i][agent] = action
            memory[i, 0]["memory"][agent] = one

    def _policy(self, agent: str, known: dict[str, Any]) -> str:
        """The policy of an agent, for the episode."""
        if agent not in known["policies"]:
            stream = rng.generator(known["seed"], "mapping", agent)
            known["policies"][agent] = self.mapping(agent, stream)
            known["rewards"].setdefault(agent, 0.0)
        pid: str = known["policies"][agent]
        return pid

    def rewarded(self, observation: Any, memory: Array, reward: float) -> None:
        """Take note of what agents were rewarded with in a step that led to this observation."""
        known = memory[0]
        totals = known["rewards"]
        for agent, one in observation["rewards"].items():
            totals[agent] = totals.get(agent, 0.0) + one
            if agent in known["memory"]:
                player = self.players[known["policies"][agent]]
                player.rewarded(None, known["memory"][agent], one)
        for agent in [*observation["terminated"], *observation["truncated"]]:
            memory[0]["memory"].pop(agent, None)

    def agent_rewards(self, memory: Array) -> dict[str, list[Any]] | None:
        """Agent → its policy and the sum of its rewards."""
        policies = memory[0]["policies"]
        return {a: [policies[a], sum_] for a, sum_ in memory[0]["rewards"].items() if a in policies}

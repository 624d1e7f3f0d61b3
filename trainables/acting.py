"""A trained policy answers single observations, as whoever deploys it would ask it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables.policies.player import Player
from trainables.rollout.access import DEFAULT_POLICY_ID, require_policy


class ComputesActions:
    """What a trainer that holds a player can be asked.

    Needs ``player``, and ``streams`` with one named ``compute_action``.
    """

    player: Player
    streams: Mapping[str, np.random.Generator]

    def compute_action(
        self,
        obs: Any,
        state: Sequence[NDArray[Any]] | None = None,
        prev_action: Any = None,
        prev_reward: float | None = None,
        info: Mapping[str, Any] | None = None,
        policy_id: str = DEFAULT_POLICY_ID,
        full_fetch: bool = False,
        explore: bool = False,
    ) -> Any:
        """The action for one raw observation, both as the environment knows them.

        The observation is preprocessed and filtered (without update), the action mapped back.
        Training is not disturbed: what is drawn comes from a stream of its own.

        Args:
            obs: as the environment gives it: an array, a number, a tuple, a dict.
            state: what the last answer gave for this episode; None: as an episode begins.
            prev_action: not read by this policy.
            prev_reward: not read by this policy.
            info: not read by this policy.
            policy_id: ``default_policy``.
            full_fetch: also tell how the action was chosen.
            explore: draw it; otherwise it is the most probable one.

        Returns:
            The action; with a state or `full_fetch` (action, state, fetches), where fetches are
            ``logp`` and ``value``, and the state is for the next observation.

        Raises:
            ConfigError: no such policy.
            ValueError: a state that is not this policy's.
        """
        require_policy(policy_id)
        stream = self.streams["compute_action"] if explore else None
        given = self.get_initial_state() if state is None else state
        memory = self.player.join_state(given)
        action, following, fetches = self.player.answer(obs, memory, stream)
        if state is None and not full_fetch:
            return action
        return action, self.player.split_state(following), fetches

    def get_initial_state(self) -> list[NDArray[Any]]:
        """With which an episode begins: of an LSTM outputs and cells (U,); [] without one."""
        return self.player.split_state(self.player.initial_memory())

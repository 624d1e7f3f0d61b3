"""How exactly an environment comes back is measured with actions that it says are valid."""

from contextlib import closing
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from tests.support.masked import Board, Vault
from trainables.envs.exactness import comparison
from trainables.envs.exactness.measuring import measure
from trainables.envs.exactness.random_actions import RandomActions
from trainables.envs.kinds.agents import AgentsSpace
from trainables.envs.make import EnvironmentConfig
from trainables.envs.spaces.masks import ActionMask


@pytest.mark.parametrize(
    ("env", "mask", "env_config"),
    [
        ("tests.support.masked:Board", "observation", {}),
        (f"{__name__}:Guarded", "info", {"columns": 2}),
        (f"{__name__}:Guarded", "observation", {"source": "observation"}),
        (f"{__name__}:Nested", "info", {"columns": 2}),
    ],
)
def test_an_environment_is_measured_with_actions_that_its_mask_allows(
    env: str, mask: Any, env_config: dict[str, Any]
) -> None:
    config = EnvironmentConfig(env=env, env_config=env_config, action_mask=mask)
    assert measure(config).as_data() == {"level": "A", "reasons": [], "unsaved_attributes": []}
    assert measure(config.model_copy(update={"env_level": "B"})).level == "B"
    assert comparison.rendering_failure(config) == ""
    assert not comparison_of_episodes(config)


def comparison_of_episodes(config: EnvironmentConfig) -> str:
    with closing(comparison.Episodes(config)) as episodes:
        return episodes.chance_failure() + episodes.replay_failure() + episodes.memory_failure()


class Guarded(Vault):
    """Raises where an action is invalid."""

    def step(self, action: Any) -> Any:
        stepped = super().step(action)
        assert not self.invalid, "no such choice is valid"
        return stepped


class Nested(Guarded):
    """Takes its two choices as a tuple."""

    def __init__(self, columns: int = 2) -> None:
        super().__init__(columns=columns)
        self.action_space: Any = spaces.Tuple([spaces.Discrete(size) for size in self.sizes])

    def step(self, action: Any) -> Any:
        assert isinstance(action, tuple)
        return super().step(np.array(action))


def test_agents_are_measured_with_actions_that_their_masks_allow() -> None:
    board = Board()
    seen = board.reset()[0]
    shown = board.observation_space
    masked = ActionMask(board, "observation").observation_space
    of_agents = AgentsSpace({"one": masked, "other": masked})
    drawing = RandomActions(
        of_agents, AgentsSpace(dict.fromkeys(of_agents.of, board.action_space)), 3
    )
    assert drawing.are_masked
    assert not RandomActions(shown, board.action_space, 3).are_masked
    for left in range(8, -1, -1):
        seen["action_mask"] = np.arange(9) == left
        rows = np.concatenate([np.zeros(9), seen["action_mask"]])
        for current in (seen, rows):
            drawn = drawing.draw({"observations": {"one": current}})
            assert drawn["one"] == left
            assert drawn["other"] in range(9)
    assert drawing.draw({"observations": {"one": {"action_mask": np.zeros(9)}}})["one"] in range(9)

"""Settings of the collection of experience."""

from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from trainables.core.settings import Section


class SamplingConfig(Section):
    """Settings of the collection of experience."""

    num_envs_per_worker: int = Field(
        default=1,
        gt=0,
        description="Number of environments that a worker steps side by side. Evaluations step as "
        "many, or up to twice as many if all episodes can then begin at once.",
    )
    rollout_fragment_length: int = Field(
        default=200,
        gt=0,
        description="Steps of each environment in one fragment, the unit of sampling.",
    )
    batch_mode: Literal["truncate_episodes", "complete_episodes"] = Field(
        default="truncate_episodes",
        description="truncate_episodes: fragments have a fixed length and may cut episodes; "
        "complete_episodes: fragments consist of whole episodes and have at least that length.",
    )
    sample_async: bool = Field(
        default=False,
        description="Sample in a thread of each worker while the trainer learns; such a trial is "
        "not bit-exact.",
    )
    fake_sampler: bool = Field(
        default=False,
        description="Sample only once and learn from the same batch in every round, to measure "
        "the speed of learning alone.",
    )
    blackhole_outputs: bool = Field(
        default=False,
        description="With sample_async and fake_sampler: keep sampling after the first batch and "
        "count the episodes, but drop their rows, to see how good a policy becomes that learns "
        "only from the first batch.",
    )
    compress_observations: bool | Literal["bulk"] = Field(
        default=False,
        description="Compress the observations that child processes send (LZ4). true: each row "
        "separately; bulk: a whole fragment at once.",
    )
    explore: bool = Field(
        default=True,
        description="true: explore while sampling; false: always take the best action.",
    )
    clip_actions: bool = Field(
        default=True,
        description="Clip actions to the bounds of the action space before they are sent to the "
        "environment.",
    )
    normalize_actions: bool | Literal["auto"] = Field(
        default="auto",
        description="Scale the policy's real-valued actions from [-1, 1] to the bounds of the "
        "action space; numbers without two bounds are not changed. auto: true with a2c, bc, "
        "impala, iql and ppo if bounds differ from -1 and 1, but false with an environment that "
        "calls the trainer and with model.custom_action_dist. Actions of dqn, sac and td3 are "
        "within the bounds anyway.",
    )
    clip_rewards: bool | Annotated[float, Field(gt=0)] | None = Field(
        default=None,
        description="true: learn from the sign of rewards; a number: clip rewards to ± this "
        "number; false: no clipping; null: true for Atari games in DeepMind's wrappers, else "
        "false.",
    )

    @property
    def spreads_actions(self) -> bool:
        """True if actions from -1 to 1 are scaled to the action space's bounds.

        False while ``normalize_actions`` is still ``auto``.
        """
        return self.normalize_actions is True


def clipped(rewards: NDArray[Any], clip: bool | float | None) -> NDArray[Any]:
    """Return rewards (any shape) clipped to ±`clip`, their signs if it is True.

    They are returned unchanged, not copied, if it is None or False.
    """
    if clip is True:
        return np.asarray(np.sign(rewards))
    return np.asarray(np.clip(rewards, -clip, clip)) if clip else rewards

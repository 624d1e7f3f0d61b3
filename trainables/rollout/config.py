"""Settings of the collection of experience."""

from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from trainables.core.settings import Section


class SamplingConfig(Section):
    """Settings of the collection of experience."""

    num_envs_per_worker: int = Field(
        default=1, gt=0, description="Environments that a worker steps side by side."
    )
    rollout_fragment_length: int = Field(
        default=200, gt=0, description="Steps of each environment in one fragment."
    )
    batch_mode: Literal["truncate_episodes", "complete_episodes"] = Field(
        default="truncate_episodes",
        description="truncate_episodes: fragments have a fixed length and may cut episodes; "
        "complete_episodes: whole episodes, at least as many steps.",
    )
    sample_async: bool = Field(
        default=False,
        description="Each worker samples in a thread of its own while the trainer learns; a trial "
        "is then not bit-exact.",
    )
    fake_sampler: bool = Field(
        default=False,
        description="Sample once and give that batch for ever: to see how fast learning alone is.",
    )
    blackhole_outputs: bool = Field(
        default=False,
        description="With sample_async and fake_sampler: what is sampled after the first batch is "
        "dropped, its episodes count: how well the policy does that learns from that batch.",
    )
    compress_observations: bool | Literal["bulk"] = Field(
        default=False,
        description="Children send observations compressed (LZ4): true: each row by itself; bulk: "
        "all of a fragment at once.",
    )
    explore: bool = Field(
        default=True,
        description="Whether actions are drawn as the algorithm explores; false: the best ones "
        "while sampling, too.",
    )
    clip_actions: bool = Field(
        default=True,
        description="Clip what is sent to the environment to the action space's bounds.",
    )
    normalize_actions: bool | Literal["auto"] = Field(
        default="auto",
        description="The policy's real numbers from -1 to 1 are spread over the action space's "
        "bounds before they are sent; numbers without both bounds stay. auto: true with ppo, a2c "
        "and impala where such bounds are not -1 and 1, but false with an environment that calls "
        "the trainer and with model.custom_action_dist. Actions of dqn, iql, sac and td3 lie "
        "within the bounds already, and those of bc are as in the files that it reads.",
    )
    clip_rewards: bool | Annotated[float, Field(gt=0)] | None = Field(
        default=None,
        description="true: learn from their sign; a number: clip them to ± it; null: as they are, "
        "but as with true for Atari games in DeepMind's wrappers.",
    )

    @property
    def spreads_actions(self) -> bool:
        """True if the policy's numbers are spread over the action space's bounds."""
        return self.normalize_actions is True


def clipped(rewards: NDArray[Any], clip: bool | float | None) -> NDArray[Any]:
    """Return rewards (…) clipped as the setting `clip_rewards` says, in their own kind of type."""
    if clip is True:
        return np.asarray(np.sign(rewards))
    return np.asarray(np.clip(rewards, -clip, clip)) if clip else rewards

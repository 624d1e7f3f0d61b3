"""The settings of how experience is collected."""

from typing import Annotated, Literal

from pydantic import Field

from trainables.core.settings import Section


class SamplingConfig(Section):
    """How experience is collected."""

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
    normalize_actions: bool = Field(
        default=False,
        description="The policy's real numbers from -1 to 1 are spread over the action space's "
        "bounds before they are sent; of ppo, a2c and impala. Numbers without bounds stay.",
    )
    clip_rewards: bool | Annotated[float, Field(gt=0)] | None = Field(
        default=None,
        description="true: learn from their sign; a number: clip them to ± it; null: as they are, "
        "but as with true for Atari games in DeepMind's wrappers.",
    )

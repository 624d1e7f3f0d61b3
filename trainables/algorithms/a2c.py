"""Advantage actor-critic (Mnih et al. 2016), synchronous: A2C.

One iteration: sample short fragments → generalised advantages → one policy gradient step
(`trainer.families.policy_gradient`) on all rows.
"""

from typing import ClassVar

from trainables.rollout.config import SamplingConfig
from trainables.trainer.config import TrainerConfig
from trainables.trainer.families.policy_gradient import PolicyGradientConfig, PolicyGradientTrainer


class Config(PolicyGradientConfig):
    """Settings of A2C; the defaults suit classic control."""

    sampling: SamplingConfig = SamplingConfig(num_envs_per_worker=8, rollout_fragment_length=5)


class A2C(PolicyGradientTrainer):
    """Advantage actor-critic: one policy gradient step on each batch."""

    config_class: ClassVar[type[TrainerConfig]] = Config

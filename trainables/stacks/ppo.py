"""PPO that trains as a lane of a compiled program."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from trainables.algorithms.ppo import PPO, STATS, Config
from trainables.envs.exactness.measuring import Inspection
from trainables.envs.make import EnvSpaces
from trainables.errors import ConfigError
from trainables.learners.schedules import learning_rate
from trainables.stacks.filtering import DiscountedReturns, as_counted, as_filter_state
from trainables.stacks.lanes import Tree, as_arrays
from trainables.stacks.networks import pad, unpad
from trainables.stacks.ppo_program import Lane, Rates, Settings, Shape
from trainables.stacks.trainer import Array, LaneTrainer, in_lanes, or_infinite
from trainables.trainer.config import TrainerConfig


class LanePPO(LaneTrainer, PPO):
    """PPO whose training runs in a compiled program, together with other trials of equal shape."""

    reads = frozenset(
        {
            *("lambda_", "vf_loss_coeff", "entropy_coeff", "entropy_coeff_schedule"),
            *("normalize_advantages", "clip_param", "clip_param_schedule", "vf_clip_param"),
            *("num_sgd_iter", "sgd_minibatch_size", "target_kl", "normalize_rewards"),
        }
    )
    reads_of_model = frozenset({"hidden", "activation", "log_std_init"})

    @classmethod
    def find_misfits(cls, settings: Config) -> Iterator[ConfigError]:
        """Yield an error for minibatches that do not divide the batch."""
        rows = settings.fragment_size
        if rows % min(settings.minibatch_size, rows):
            allowed = f"a divisor of the batch's {rows} rows"
            yield in_lanes("sgd_minibatch_size", settings.minibatch_size, allowed)

    @classmethod
    def choose(cls, settings: TrainerConfig, inspection: Inspection) -> dict[str, Any]:
        """Return setting → value for settings that may be ``auto``; the learner is ``fused``.

        Raises ConfigError if a setting does not work with the environment of `inspection`.
        """
        return {**super().choose(settings, inspection), "learner": "fused"}

    @classmethod
    def _find_reason_for_torch(cls, settings: TrainerConfig, spaces: EnvSpaces) -> str:
        """Return an empty text, as the program computes gradients for all allowed settings."""
        return ""

    @classmethod
    def shape_of(cls, settings: Config) -> Shape:
        """Return what must be compiled into the program of a trainer with these settings.

        Raises ConfigError if programs do not have the environment.
        """
        return Shape(
            **cls.common_shape(settings),
            minibatch=min(settings.minibatch_size, settings.fragment_size),
            spreads_actions=settings.sampling.spreads_actions,
        )

    def more_environment_arrays(self) -> dict[str, Array]:
        """Return name → initial value, zeros, of arrays that are saved with the environments.

        They are the ``matrices`` of state-dependent noise, their ``age`` in steps, and
        ``discounted``, the discounted return of each environment's episode.
        """
        return {
            "matrices": np.zeros(self._noise_shape, np.float32),
            "age": np.zeros((), np.int32),
            "discounted": np.zeros(self.shape.num_envs, np.float32),
        }

    @property
    def _noise_shape(self) -> tuple[int, ...]:
        """Shape (N, H, A) of the matrices of state-dependent noise, without the program's padding.

        (N, 0, 0) without such noise.
        """
        if not self.settings.exploration_config.state_dependent:
            return self.settings.sampling.num_envs_per_worker, 0, 0
        return (self.shape.num_envs, *self._own_shapes["log_std"])

    def lane_settings(self) -> Settings:
        """Return the settings that the program takes as arrays, which may differ between trials."""
        settings = self.settings
        arrays: Settings = as_arrays(
            Settings(
                gamma=settings.gamma,
                lambda_=settings.lambda_,
                vf_loss_coeff=settings.vf_loss_coeff,
                vf_clip=or_infinite(settings.vf_clip_param),
                grad_clip=or_infinite(settings.grad_clip),
                target_kl=or_infinite(settings.target_kl),
                epochs=settings.num_sgd_iter,
                normalize_advantages=settings.normalize_advantages,
                filter_clip=or_infinite(settings.filters.observation_filter_clip),
                adam=self.adam(),
                is_relu=self.architecture.activation == "relu",
                is_filtered=settings.filters.observation_filter != "NoFilter",
                normalize_rewards=settings.filters.normalize_rewards,
                noise_follows_state=settings.exploration_config.state_dependent,
                noise_steps=settings.exploration_config.sample_freq,
            )
        )
        return arrays

    def rates(self) -> Rates:
        """Return the scheduled settings in each of the R rounds of the next iteration, each (R,).

        They are learning rate, clipping range and weight of the entropy bonus.
        """
        of, starts = self.settings, self.round_starts
        now = [of.with_schedules_at(one) for one in starts]
        columns = (
            [learning_rate(of.schedule, one) for one in starts],
            [one.clip_param for one in now],
            [one.entropy_coeff for one in now],
        )
        return Rates(*(np.array(column, np.float32) for column in columns))

    def as_lane_state(self) -> Lane:
        """Return the trainer's state as the program's arrays: policy, filter, episodes, noise."""
        return Lane(
            learnt=self.optimizer_state(),
            key=self.copy_environment_array("key"),
            episodes=self.running_episodes(),
            matrices=pad(self.copy_environment_array("matrices"), self.shape.noise_shape),
            age=self.copy_environment_array("age"),
            seen=self.filter_statistics(),
            discounted=DiscountedReturns(
                self.copy_environment_array("discounted"),
                as_counted(self._filters.get("reward"), ()),
            ),
        )

    def take_lane_state(self, take: Callable[[str], Tree]) -> None:
        """Copy noise, discounted returns and the reward filter from the program to the trainer.

        `take` returns a field of the trainer's state in the program by name.
        """
        discounted: DiscountedReturns = take("discounted")
        self._own.held["discounted"] = discounted.returns
        if "reward" in self._filters:
            self._filters["reward"].set_state(as_filter_state(discounted.counted))
        self._own.held["age"] = take("age")
        self._own.held["matrices"] = unpad(take("matrices"), self._noise_shape)

    def statistics(self, outcome: Any, index: int) -> dict[str, float]:
        """Return statistic → value of learning in round `index` of an iteration's `outcome`.

        They are means over the minibatches of the parts of the loss (`STATS`) and ``grad_norm``;
        ``lr``, the learning rate at the number of steps counted so far; and ``explained_variance``,
        which is left out if all returns were equal.
        """
        stats = dict(zip(STATS, outcome.stats[index].tolist(), strict=True))
        explained = float(outcome.explained[index])
        if math.isfinite(explained):
            stats["explained_variance"] = explained
        rate = float(learning_rate(self.settings.schedule, self.progress.timesteps))
        return {**stats, "lr": rate, "grad_norm": float(outcome.norms[index])}

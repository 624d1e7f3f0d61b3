"""Workers that collect from environments that call the trainer, and their specifications."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainables.envs.external.calling import ExternalEnv
from trainables.envs.external.polled import AGENT, SpacesOnlyEnv
from trainables.envs.make import (
    checked_spaces,
    make_env,
)
from trainables.envs.registry import EnvContext
from trainables.envs.spaces.connectors import row_shape
from trainables.envs.vector.base import VectorEnv, WorkerContext
from trainables.errors import ConfigError
from trainables.policies.acting.actor import Weights
from trainables.policies.filters import Filter, make_filters
from trainables.rollout.agents.episodes import CollectedByPolicy, PolicyPlan
from trainables.rollout.agents.worker import AgentsSpec, AgentsWorker
from trainables.rollout.batch import Sample
from trainables.rollout.callbacks import Calls
from trainables.rollout.episodes.episode import EpisodeTracker
from trainables.rollout.external.envs import CalledEnvs
from trainables.rollout.external.sampler import ExternalSampler
from trainables.rollout.samplers.fragments import Collected
from trainables.rollout.workers.access import DEFAULT_POLICY_ID
from trainables.rollout.workers.worker import RolloutWorker
from trainables.rollout.workers.worker_spec import WorkerSpec


class _CalledWorker(RolloutWorker):
    """Base class of workers for environments that call the trainer: what differs from others."""

    def _make_envs(self, spec: WorkerSpec, context: WorkerContext) -> VectorEnv:
        """Create the environment that calls the trainer, as a `VectorEnv` of one environment.

        Raises:
            ConfigError: an `ExternalEnv` with a horizon or with restarts.
        """
        environment = spec.environment
        env = make_env(
            environment, EnvContext(environment.env_config, spec.index, 0, False, spec.num_workers)
        )
        assert isinstance(env.unwrapped, SpacesOnlyEnv)  # noqa: S101 the trainer has checked it
        if (horizon := spec.envs.horizon) and isinstance(env.unwrapped.base, ExternalEnv):
            why = "it ends its episodes itself: end_episode(..., truncated=True) cuts one off"
            raise ConfigError.of_conflict("horizon", horizon, "an ExternalEnv", "null", why)
        restarts = "restart_failed_sub_environments"
        if getattr(spec.envs, restarts) and isinstance(env.unwrapped.base, ExternalEnv):
            why = "it plays in its own thread, which cannot be started again"
            raise ConfigError.of_conflict(restarts, True, "an ExternalEnv", "false", why)
        return CalledEnvs(env, environment, context)

    def sample(self) -> Any:
        """Collect and return a sample with at least as many steps as the spec says.

        The environment's `start` is called first, in every call: before the first there are no
        weights to answer with.
        """
        self.envs.reset(None)
        return super().sample()

    def sync(self, weights: Weights, filters: Mapping[str, Any]) -> None:
        """Load the learner's weights and filters, and increment the sampler's `version`."""
        super().sync(weights, filters)
        self._sampler.version += 1

    def _set_up_callbacks(self, calls: Calls | None) -> None:
        """Set up the tracker that calls the callbacks, if there are any.

        It follows no environment by itself: the sampler adds each episode when it begins.
        """
        if calls:
            # Each episode gets its cast when it begins.
            self._sampler.watch = EpisodeTracker(
                calls, self, self.spec.index, 0, lambda _env, _before: None
            )

    def _begin_next_episodes(self, sub_envs: Sequence[int]) -> None:
        """Ask the environment to abandon all running episodes, unless `sub_envs` is empty."""
        if sub_envs:
            self.envs.restart(0, 0)


class ExternalWorker(_CalledWorker):
    """Collects from an environment that calls the trainer, with the newest weights received."""

    def _make_sampler(self, spec: WorkerSpec) -> ExternalSampler:
        """Make actor and filters, and return the sampler that answers the environment with them.

        The worker keeps both as well, and logs the spaces.
        """
        assert isinstance(self.envs, CalledEnvs)  # noqa: S101 as made above
        spaces_ = checked_spaces(spec.environment, *self.envs.own_spaces)
        self._log("spaces", spaces_.described())
        self._actor: Any = spec.make_actor()
        self._actor.explore = spec.sampling.explore
        self._filters: dict[str, Filter] = make_filters(
            spec.filters, row_shape(spaces_.filtered), masks=spaces_.masks
        )
        plan = PolicyPlan(spec.make_actor, spaces_, spec.columns, True, spec.gamma, spec.unfiltered)
        return ExternalSampler(
            f"worker {spec.index}",
            spec.effective_sampling,
            {DEFAULT_POLICY_ID: plan},
            envs=self.envs,
            ends=spec.envs,
            actors={DEFAULT_POLICY_ID: self._actor},
            filters={DEFAULT_POLICY_ID: self._filters["observation"]},
            mapper=lambda _agent, _episode: DEFAULT_POLICY_ID,
            agents={AGENT: spaces_},
            steps=spec.steps,
            agent_steps=False,
            seed=spec.seed,
            worker=(spec.index, max(1, spec.num_workers)),
        )

    def _make_sample(self, collected: Any) -> Sample:
        """Return a sample of the only policy's part of `collected`, a `CollectedByPolicy`."""
        assert isinstance(collected, CollectedByPolicy)  # noqa: S101 as its sampler gives it
        of, none = DEFAULT_POLICY_ID, np.zeros((0, 0), dtype=np.float32)
        fragments, recent = collected.fragments.get(of, []), collected.recent.get(of, none)
        return super()._make_sample(Collected(fragments, collected.episodes, recent))


class ExternalAgentsWorker(_CalledWorker, AgentsWorker):
    """An `ExternalWorker` for the agents of several policies."""

    #: Class of the sampler.
    sampler_class = ExternalSampler


@dataclass(frozen=True)
class ExternalSpec(WorkerSpec):
    """The specification of an `ExternalWorker`; it is sent to child processes."""

    @property
    def worker_class(self) -> type[RolloutWorker]:
        """Class of the worker that is made from the specification."""
        return ExternalWorker


@dataclass(frozen=True)
class ExternalAgentsSpec(AgentsSpec):
    """The specification of an `ExternalAgentsWorker`; it is sent to child processes."""

    @property
    def worker_class(self) -> type[RolloutWorker]:
        """Class of the worker that is made from the specification."""
        return ExternalAgentsWorker

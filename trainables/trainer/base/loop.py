"""The iterations of a trainer: their results, evaluations and checkpoints."""

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables.core import devices, rng, rounding
from trainables.core.logs import system_usage
from trainables.core.resources import blas_threads, check_quota
from trainables.envs.exactness.levels import LEVELS
from trainables.errors import TrainableError, shorten
from trainables.evaluation.config import is_due
from trainables.learners.schedules import learning_rate
from trainables.offline.workers import ReadingWorkers
from trainables.policies import filters as filters_
from trainables.rollout.media import files as media
from trainables.trainable import gives_data
from trainables.trainer import agreement, classic
from trainables.trainer.base.algorithm import Algorithm
from trainables.trainer.base.collector import Collector
from trainables.trainer.config import timed


class TrainingLoop(Collector):
    """Base class of trainers: iterations, their results, evaluations and checkpoints."""

    @property
    def learning_rate(self) -> float:
        """The learning rate after the environment steps sampled so far, by the schedule."""
        return learning_rate(self.settings.schedule, self.progress.timesteps)

    def step(self) -> dict[str, Any]:
        """Make one iteration, and return its result.

        It has rounds of `training_step` until it has the steps and the time that settings require,
        and evaluations if they are due. All workers get the number of steps sampled so far. The
        result has the keys of `collect_metrics`, ``learner`` (statistics of the last round alone),
        ``timers`` (milliseconds in all rounds) and ``num_healthy_workers``; if they apply
        ``evaluation``, ``evaluation_at_start``, ``off_policy``, ``exactness`` and a few more.

        Raises:
            ConfigError: the file that ``restore`` names could not be read.
            TrainableError: this process holds more than ``memory`` bytes or needs more of the GPU's
                memory than ``num_gpus`` gives it, or a worker failed.
            NotFiniteError: a loss, gradient, observation or reward is not finite.
        """
        for member in self.members.values():
            if member._unread_source is not None:
                raise member._unread_source
        check_quota(self.settings.resources.memory)
        self.set_global_vars({"timestep": self.progress.timesteps})
        at_start = self._evaluation_at_start()
        timers: dict[str, float] = {}
        self.timers = timers
        least, began = self.settings.iteration, time.monotonic()
        self.progress.begin_iteration()
        with (
            self._limited_threads(),
            devices.matmul_precision(self.settings.devices),
            self._advice_on_memory(),
        ):
            learner = self.training_step()
            while (
                self.progress.timesteps_this_iteration < least.timesteps_per_iteration
                or time.monotonic() - began < least.min_iter_time_s
            ):
                learner = self.training_step()
        for member in self.members.values():
            member.require_finite()
        result: dict[str, Any] = {
            **self.collect_metrics(),
            **system_usage(self.settings.logs),
            "learner": learner,
            "num_healthy_workers": self.workers.healthy(),
            **({"fake_sampler": True} if self.settings.sampling.fake_sampler else {}),
            "timers": timers,
            **({"exactness": self.exactness} if self.inexact else {}),
            **({"train_batch_size": self.settings.batch_size} if self.settings.rounded else {}),
            **at_start,
        }
        if self.settings.offline.reads_experience:
            result.update(self._off_policy_results())
        if is_due(self.settings.evaluation, self.iteration + 1):
            with timed(timers, "evaluation_time_ms"):
                result.update(self._run_evaluation(self.iteration + 1))
        if self.settings.metrics.classic_results:
            result.update(classic.results(result))
        return result

    def _limited_threads(self) -> AbstractContextManager[object]:
        """Return a context in which numpy uses as many threads as torch.

        With more threads, products of matrices wait for busy cores: acting on pictures took 57 ms a
        step instead of 1 while another training ran on the two cores (measured).
        """
        return blas_threads(self.settings.resources.threads[0])

    def _complete(self, result: dict[str, Any], elapsed: float) -> dict[str, Any]:
        """Return the result with ``config`` (the given settings) and the keys of every result.

        Its media are written as files, and ``on_train_result`` is called with it. `elapsed` is the
        duration of the iteration in seconds.
        """
        completed = super()._complete({"config": self._given, **result}, elapsed)
        step = completed["training_iteration"]
        completed = media.with_files(completed, lambda: Path(self.logdir) / media.FOLDER, step)
        self.reporter.train_result(self, completed)
        return completed

    def collect_metrics(self, selected_workers: Sequence[int] | None = None) -> dict[str, Any]:
        """Return the latest result's metrics of episodes and steps: the dict of `Progress.collect`.

        Args:
            selected_workers: indices of the workers to include; None for all. Totals always include
                all.
        """
        return self.progress.collect(selected_workers)

    # ---- evaluation -----------------------------------------------------------------------------

    def evaluate(self) -> dict[str, Any]:
        """Play ``evaluation_num_episodes`` new episodes, without an effect on training.

        Exploration first follows the steps sampled so far. The seeds are those of the evaluation
        that ends the next iteration. Returns ``episode_reward_mean`` and the other keys of
        `PeriodicEvaluation.evaluate`.
        """
        self._update_exploration()
        with self._limited_threads():
            return self.evaluation.evaluate(self.iteration + 1, self.progress.timesteps)

    def _evaluate(self) -> dict[str, Any]:
        """Evaluate, and return the entries that an evaluation adds to a result.

        Algorithms may override it.
        """
        return {"evaluation": self.evaluate()}

    def _before_evaluate(self) -> None:
        """Do nothing; called before each evaluation, for algorithms to override."""

    def _run_evaluation(self, iteration: int) -> dict[str, Any]:
        """Evaluate, record videos if ``record_env`` says so, and return the entries for the result.

        Calls `_before_evaluate` and `_evaluate`, which algorithms may override. The global random
        streams are not changed, even if one of them raises.

        Args:
            iteration: iteration that this evaluation ends; 0 for the evaluation at the start.

        Raises:
            TrainableError: `_evaluate` returned no dict.
        """
        streams = rng.capture_global()
        try:
            self._before_evaluate()
            with self._limited_threads():
                evaluated: object = self._evaluate()
        finally:
            rng.restore_global(streams)
        if not isinstance(evaluated, dict):
            raise TrainableError(
                f"{type(self).__name__}._evaluate() returned {shorten(evaluated)}; "
                f"expected a dict to add to the result"
            )
        if self.settings.rendering.records_evaluation:
            self.evaluation.record(iteration, self.progress.timesteps, self.videos)
        return evaluated

    @property
    def evaluates_at_start(self) -> bool:
        """True if the next iteration begins with an evaluation.

        That is so before the first iteration, if ``evaluation_interval`` is set.
        """
        return not self.iteration and self.settings.evaluation.evaluation_interval is not None

    def _evaluation_at_start(self) -> dict[str, Any]:
        """Evaluate the untrained policy before the first iteration; return ``…_at_start`` entries.

        Returns an empty dict in later iterations, and without ``evaluation_interval``. So an
        evaluation that cannot work fails before anything is trained.
        """
        if not self.evaluates_at_start:
            return {}
        return {f"{name}_at_start": value for name, value in self._run_evaluation(0).items()}

    def _off_policy_results(self) -> dict[str, Any]:
        """Make the estimates that ``input_evaluation`` requests of a policy that learns from files.

        For ``simulation`` it evaluates the policy and takes ``episode_reward_mean``. Returns
        ``off_policy`` → (``simulation`` and the keys of `_make_estimates`), or an empty dict if
        there are none. There are no estimates if a user's reader samples, or the algorithm defines
        no `log_likelihoods`.
        """
        results: dict[str, Any] = {}
        if "simulation" in self.settings.offline.input_evaluation:
            results["simulation"] = self._run_evaluation(self.iteration + 1)["evaluation"]
            results["simulation"] = results["simulation"]["episode_reward_mean"]
        samples = isinstance(self.workers, ReadingWorkers) and self.workers.samples_for_reader
        if type(self).log_likelihoods is not Algorithm.log_likelihoods and not samples:
            results |= self._make_estimates()
        return {"off_policy": results} if results else {}

    def _make_estimates(self) -> dict[str, Any]:
        """Return off-policy estimates as `Estimates.of` does, from episodes in files.

        They are ``<estimator>``, its ``_low`` and ``_high``, and ``episodes``, the number of
        episodes; the first call reads these.
        """
        return self.estimates.of(self.likelihoods_of_unfiltered, self.iteration + 1)

    def likelihoods_of_unfiltered(
        self, observations: NDArray[Any], actions: NDArray[Any]
    ) -> NDArray[Any]:
        """Filter observations (R, *S), and return the log-probabilities (R,) of actions.

        Raises NotImplementedError if the algorithm defines no `log_likelihoods`.
        """
        return self.log_likelihoods(
            self.filter_rows({"observations": observations})["observations"], actions
        )

    # ---- checkpoints ----------------------------------------------------------------------------

    @gives_data
    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        """Return everything that affects the future, as plain data; filters are not flushed.

        - ``policy``, ``filters``, ``streams``, ``recent_observations`` and the parts by name
        - ``progress``, ``workers`` (a state for each), ``reporter``'s entries
        - ``collected``, ``settled``, ``rounding`` and ``inexact``, which a restore compares

        Nothing is written to `checkpoint_dir`.
        """
        settled = {key: self.config[key] for key in self.auto_settings}
        return {
            **self._learnt_state(checkpoint_dir),
            "progress": self.progress.get_state(),
            "workers": self.workers.get_state(),
            "collected": dict(self._collected),
            "settled": settled,
            "rounding": rounding.fingerprint(self.computes_in_torch),
            **({"inexact": self.inexact} if self.inexact else {}),
            **self.reporter.get_state(),
        }

    def load_checkpoint(self, checkpoint: Mapping[str, Any]) -> None:
        """Restore the state that `save_checkpoint` returned.

        Settings that were ``auto`` get the values that they had in it. Sets `inexact`, with a
        warning if this machine rounds differently. Workers are created anew if the checkpoint has
        none, or its trainer saved environments in another way. All workers are sent the weights.

        Raises:
            ConfigError: it was saved with other filters, or by workers of another kind or number.
        """
        self._settle(checkpoint["settled"])
        agreement.check(checkpoint, self._collected)
        self._adopt_level()
        with self._advice_on_memory():
            self._restore_learnt(checkpoint)
        self.progress.set_state(checkpoint["progress"])
        self.inexact = agreement.inexact_reasons(checkpoint, self.computes_in_torch)
        if checkpoint["workers"] is None:
            self._replace_workers()
        else:
            self.workers.set_state(checkpoint["workers"])
        self.reporter.set_state(checkpoint, self.progress.timesteps)
        if checkpoint["workers"] is None:
            self.reporter.begin_with_new_workers()
        self._synchronise([])

    def _learnt_state(self, checkpoint_dir: str) -> dict[str, Any]:
        """Return the state of policy, filters, streams and parts, without workers and counters.

        It is one part of `save_checkpoint`. Nothing is written to `checkpoint_dir`.
        """
        return {
            "policy": self.policy.get_state(),
            "filters": filters_.get_state(self.filters),
            "streams": {
                name: rng.get_generator_state(stream) for name, stream in self.streams.items()
            },
            "recent_observations": self.recent.copy(),
            **{name: part.get_state() for name, part in self.parts.items()},
        }

    def _restore_learnt(self, checkpoint: Mapping[str, Any]) -> None:
        """Restore policy, filters, streams and parts from a checkpoint, see `_learnt_state`.

        The error of a file that ``restore`` names is forgotten, since the file is not needed.
        """
        self._unread_source = None
        self.policy.set_state(checkpoint["policy"])
        filters_.set_state(self.filters, checkpoint["filters"])
        for name, stream in self.streams.items():
            rng.set_generator_state(stream, checkpoint["streams"][name])
        for name, part in self.parts.items():
            part.set_state(checkpoint[name])
        self.recent = np.array(checkpoint["recent_observations"], dtype=self.recent.dtype)

    def adapt_state(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a checkpoint's state so that it can be restored by this trainer.

        Settings that were ``auto`` get the checkpoint's values. If its workers collected in another
        way, the returned state has no workers, so that new episodes are begun; state and log then
        name the reason why the curve is no longer exact. Otherwise the state is unchanged.
        """
        given = state["trainable"].get("data")
        if not isinstance(given, Mapping):
            return state
        data = self.as_computed_here(given)
        if data.get("workers"):
            self._settle(data["settled"])
            if changes := agreement.changed_settings(data, self._collected):
                why = agreement.describe_changes(changes, int(data["progress"]["timesteps"]))
                reasons = agreement.log_inexactness(data, why, "new episodes are begun, and ")
                data = {**data, "workers": None, "inexact": reasons}
        return {**state, "trainable": {**state["trainable"], "data": data}}

    def as_computed_here(self, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a checkpoint's data as if this trainer's own code had computed it.

        A subclass with several ways to compute adds the reason why the curve is no longer exact, if
        the checkpoint was computed in another way. By default the data are unchanged.
        """
        return data

    def remembers(self) -> dict[str, Any]:
        """Return the measured exactness of the environment as plain data, empty if none was needed.

        A sweep passes it to its other trials, which then measure nothing.
        """
        return self._remembered

    @property
    def exactness(self) -> str:  # type: ignore[override]  # measured per trial, not per class
        """Measured exactness of checkpoints, such as "A exact state".

        It is level D, with the reason, if the curve is inexact or a clock influences it. It is
        level D without a reason once the episodes of a sample arrived too late.
        """
        if self.inexact:
            return f"{LEVELS['D']}: {self.inexact}"
        if self.level == "D" and self.settings.clock_settings:
            return f"{LEVELS['D']}: a clock steers ({', '.join(self.settings.clock_settings)})"
        return LEVELS["D" if self.progress.late else self.level]

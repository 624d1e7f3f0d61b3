"""The part of a trainer that collects experience: environments, workers, policy and filters.

A round samples, learns, and ends with `end_round`, which synchronises the workers with the policy
and the filters.
"""

import logging
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from trainables.core import devices, rng
from trainables.core.resources import EnvironmentVariables
from trainables.core.settings import SettingsView, flatten, override, parse
from trainables.envs.exactness.measuring import Inquiry, Inspection, remembered_measurement, resolve
from trainables.envs.spaces.actions import Spread, spread
from trainables.envs.spaces.connectors import row_shape
from trainables.envs.spaces.images import scale_warning
from trainables.envs.vector.config import check_vector_env
from trainables.errors import ConfigError
from trainables.offline.batches import WRITTEN_IN_LANES
from trainables.offline.config import IOContext
from trainables.offline.estimators import Estimates
from trainables.offline.reader import Rows
from trainables.offline.workers import ReadingWorkers, RowTreatment, SamplerInput
from trainables.offline.writer import Output
from trainables.policies import filters as filters_
from trainables.policies.acting.actor import Actor, Weights
from trainables.policies.acting.inference import InferencePolicy
from trainables.policies.filters import make_filter, make_filters
from trainables.policies.policy import Policy
from trainables.rollout.batch import Sample
from trainables.rollout.external.workers import ExternalSpec
from trainables.rollout.media.recording import FOLDER, RecordingPlan
from trainables.rollout.progress import Progress
from trainables.rollout.workers.access import DEFAULT_POLICY_ID
from trainables.rollout.workers.make import make_workers
from trainables.rollout.workers.ranks.group import RankGroup
from trainables.rollout.workers.worker import RolloutWorker
from trainables.rollout.workers.worker_set import WorkerSet
from trainables.rollout.workers.worker_spec import WorkerSpec
from trainables.trainable import Trainable
from trainables.trainer import agreement, config_checks, policy_files
from trainables.trainer.base.algorithm import Algorithm
from trainables.trainer.config import TrainerConfig, timed
from trainables.trainer.evaluation import PeriodicEvaluation
from trainables.trainer.reporting import EpisodeRecord, Reporter

if TYPE_CHECKING:
    from trainables.learners.graphs import Graphs
    from trainables.policies.acting.on_device import DeviceObservations

logger = logging.getLogger(__name__)


class Collector(Algorithm):
    """Base class of trainers: builds policy, filters and workers, and synchronises them."""

    frames: "DeviceObservations | None" = None
    """Store of observations on the GPU on which the policy acts; None if it acts on the CPU."""
    _unread_source: ConfigError | None = None
    """Error of reading the file that ``restore`` names, raised only if the trial starts from
    scratch; None if the file was read."""

    @property
    def members(self) -> Mapping[str, Self]:
        """Policy → the trainer that teaches it; here the only policy → this trainer."""
        return {DEFAULT_POLICY_ID: self}

    # ---- made -----------------------------------------------------------------------------------

    def setup(self, config: dict[str, Any]) -> None:
        """Build policy, filters and workers from the flat settings `config`.

        Sets the process's environment variables (``environs``, undone by `cleanup`), log level,
        numbers of threads and global random streams, and starts the workers' processes. Raises
        ConfigError for settings that do not work; nothing is left open then.
        """
        settings = parse(self.config_class, config)
        self._undecided = self.automatic_settings(settings)
        self.settings = self._settle_stepping(settings)
        self.validate_config(self.settings)
        self._given = self.config
        with ExitStack() as undo:
            undo.callback(EnvironmentVariables(self.settings.resources.environs).undo)
            # The environment is measured in a child process while this process builds the rest.
            with closing(self._inquiry()) as inquiry:
                self._build(self.settings, inquiry)
            undo.callback(lambda: self.workers.close())  # noqa: PLW0108 they may have been replaced
            undo.callback(self.evaluation.workers.close)
            self.reporter.begin()
            self._synchronise([])
            self._undo = undo.pop_all()

    def _inquiry(self) -> Inquiry:
        """Start to measure in a child process how exactly the environment can be saved.

        Nothing is started if that is known already. Returns the object that waits for the results.
        """
        restarts = self.settings.envs.restart_failed_sub_environments
        known, shared = self.context.remembered, self.context.shared
        return Inquiry(self.settings.stepped, restarts, known, shared)

    def _build(self, settings: TrainerConfig, inquiry: Inquiry) -> None:
        """Build reporter, progress, policy, workers and evaluation; waits for `inquiry`.

        Also sets numbers of threads and log level of the process, and seeds its global random
        streams. Raises ConfigError for settings that do not work with the environment.
        """
        config_checks.set_threads(settings.resources)
        self.seed = self.context.seed if settings.seed is None else settings.seed
        rng.seed_global(self.seed, "global")
        self.inexact = ""
        """Reasons why the curve is not that of its settings and seed; empty if it is."""
        self.timers: dict[str, float] = {}
        """Name of a part of this iteration, such as ``sample_time_ms`` → milliseconds so far."""
        self._log_batch_size(settings)
        me = weakref.proxy(self)  # a trainer without references is freed at once, with its workers
        record = EpisodeRecord(settings.recording, lambda: me.logdir, self.context.trial_name)
        whole = settings.sampling.batch_mode == "complete_episodes"
        output = Output(self._io_context(self.seed), self.context, whole)
        self.reporter = Reporter(settings.callbacks, settings.logs, record, output)
        inspection = inquiry.inspect()
        self._settle(self._checked_choice(settings, inspection))
        settings = self.settings
        check_vector_env(settings.environment, settings.envs, inspection.limit)
        self.calls_trainer = output.in_lanes = inspection.calls_trainer
        """True if the environment calls the trainer."""
        output.spread_of = lambda pid: me.spread_of(pid)  # noqa: PLW0108 a method holds it
        self.progress = Progress(settings.metrics)
        with self._advice_on_memory():
            self._build_policy(settings, inspection)
        self.environment, self.level = resolve(
            settings.stepped, bool(settings.clock_settings), lambda _: inquiry.measured()
        )
        if settings.offline.only_reads and not settings.clock_settings:
            self.level = "A"
        self._remembered, self._measured = inquiry.as_data(), settings.environment
        self.fps = config_checks.check_pictures_of(settings)
        self.workers: WorkerSet = self._make_workers(self.seed)
        if settings.evaluation.evaluation_interval is not None:
            self.reporter.log("evaluation_config", settings.evaluation.evaluation_config)
        self.evaluation = PeriodicEvaluation(
            settings, self.seed, self.inference, self.reporter.calls, lambda: me.environment
        )

    def _build_policy(self, settings: TrainerConfig, inspection: Inspection) -> None:
        """Build the learning policy, the acting policy, filters, streams and parts.

        They fit the spaces of the inspected environment. Loads the weights that ``restore`` names;
        an error of that is stored in `_unread_source`, for the first `step` to raise.
        """
        self.spaces = inspection.spaces
        is_filtered = settings.filters.observation_filter != "NoFilter"
        warning = "" if is_filtered else scale_warning(self.spaces.network_input)
        if note := self.spaces.note or warning:
            logger.warning(note)
        shape, masks = row_shape(self.spaces.filtered), self.spaces.masks
        self.architecture = self.networks(settings, self.spaces)
        if (own := self.architecture.custom_model) is not None:
            in_torch = "%s acts and learns in torch; built-in networks act in numpy, faster"
            logger.info(in_torch, own.path)
        device = config_checks.learning_device(settings.resources)
        if settings.resources.num_gpus:
            devices.limit_memory(settings.resources.num_gpus)
        self.policy = self.make_policy(device)
        if settings.resources.num_gpus:
            self.policy.in_torch().defer_checks()
            self.policy.in_torch().in_bfloat16 = settings.devices.precision == "bf16"
        self.graphs = self._make_graphs(settings)
        self.acting_graphs: Graphs | None = None
        """Captured steps of acting on the GPU; None for ordinary ones, and on the CPU."""
        self.filters = make_filters(settings.filters, shape, masks=masks)
        self.streams = {
            name: rng.generator(self.seed, name) for name in ("minibatch", "compute_action")
        }
        self.parts = self.make_parts()
        self.gives_copies = self._gives_copies()
        sampling, observed = settings.sampling, self.filters["observation"]
        connectors = self.spaces.connected(
            "compute_action",
            observed,
            sampling.clip_actions,
            sampling.spreads_actions,
            exact=filters_.is_filtering(observed),
        )
        self.recent: NDArray[Any] = np.zeros((0, *self.spaces.row_shape), connectors.row_dtype)
        self.inference = InferencePolicy(self.policy.make_actor(), self.spaces, connectors)
        self.frames = self._make_frames(settings)
        if settings.restore is not None:
            try:
                self.load_trained("restore", settings.restore, DEFAULT_POLICY_ID)
            except ConfigError as error:
                self._unread_source = error

    def _advice_on_memory(self) -> AbstractContextManager[None]:
        """Return a context that tells what to change if the GPU's memory does not suffice in it."""
        return devices.advice_on_memory(self.settings.resources.num_gpus, self.config)

    def _make_frames(self, settings: TrainerConfig) -> "DeviceObservations | None":
        """Return the store of observations on the GPU; None if the policy acts on the CPU.

        With ``act_on: auto`` it acts on the GPU if it can and its networks are large; this is
        logged.
        """
        asked = settings.devices.act_on
        if asked == "cpu" or self.why_acts_on_cpu(settings) or self.calls_trainer:
            return None
        if asked == "auto" and not config_checks.pays_to_act_on_gpu(self.architecture):
            return None
        # Imported for a GPU only: trainers otherwise may need no torch.
        from trainables.policies.acting.on_device import DeviceObservations

        logger.info("act_on: the policy acts on the GPU")
        policy = self.policy.in_torch()
        if not self._captures(settings):
            return DeviceObservations(policy.device)
        from trainables.learners.graphs import Graphs

        self.acting_graphs = Graphs(policy, "acting")
        return DeviceObservations(policy.device, self.acting_graphs.run)

    def _captures(self, settings: TrainerConfig) -> bool:
        """Return whether steps are to be captured as CUDA graphs: with ``graphs`` and a GPU."""
        if settings.devices.graphs == "off" or not settings.resources.num_gpus:
            return False
        return settings.devices.graphs == "on" or devices.accelerator() == "cuda"

    def _make_graphs(self, settings: TrainerConfig) -> "Graphs | None":
        """Return the object that runs gradient steps as CUDA graphs; None for ordinary steps.

        It is None if ``graphs`` is off, there is no GPU, or `why_no_graphs` has a reason, which is
        logged.
        """
        if not self._captures(settings):
            return None
        if why := self.why_no_graphs(settings):
            logger.info("graphs: gradient steps are launched kernel by kernel, as %s", why)
            return None
        # Imported for a GPU only: trainers otherwise may need no torch.
        from trainables.learners.graphs import Graphs

        return Graphs(self.policy.in_torch())

    @property
    def _actor_maker(self) -> Callable[[], Actor]:
        """Function that makes the workers' actors: in this process on the GPU, else on the CPU."""
        if self.frames is None:
            return self.policy.make_actor
        return partial(self.policy.in_torch().make_device_actor, self.frames)

    def _settle(self, chosen: Mapping[str, Any]) -> None:
        """Give each setting that was ``auto`` its value in `chosen`.

        Updates `settings`, `config` and `_collected`. ``normalize_actions`` stays as it is once the
        acting policy is made.
        """
        values = {key: chosen[key] for key in self._undecided}
        if hasattr(self, "inference"):  # the actor is made: a checkpoint of the other kind fails
            values.pop("normalize_actions", None)
        if isinstance(self.config, SettingsView) and values.items() <= self.config.items():
            return  # as nearly always: the checkpoint has the same choices
        if values:
            self.settings = override(self.settings, values, "config")
        self.config = SettingsView(flatten(self.settings))
        self._collected = agreement.collection_settings(self.config)

    def _gives_copies(self) -> bool:
        """Return whether all data of a checkpoint are copies that later training does not change.

        That is so if the trainer has no parts such as a replay, no callbacks and no writer, and
        neither its filter nor the `get_state` of trainer or policy is a user's own.
        """
        mine = type(self).get_state is Trainable.get_state and not self.writes_files()
        known = type(self.policy).get_state is Policy.get_state
        filters = self.settings.filters.observation_filter in filters_.KINDS
        others = self.parts or self.reporter.calls or self.settings.offline.output
        return mine and known and filters and not others

    def load_trained(self, key: str, path: str, name: str) -> None:
        """Load the weights and filter of a trained policy from a file, in this process only.

        Args:
            key: setting that names the file, for errors.
            path: a checkpoint, a safetensors file, or a folder with one of these.
            name: name of the policy in a file with several.

        Raises:
            ConfigError: there is no such policy, or it does not fit; nothing is changed.
        """
        is_scaled = spread(self.spaces.action) is not None
        spreads = self.settings.sampling.spreads_actions if is_scaled else None
        given = self.policy, self.filters["observation"], key, path, name
        policy_files.load_trained(*given, spreads)
        self.after_loading_weights()

    def load_weights_here(self, weights: Weights, policy_id: str) -> None:
        """Load the weights of this trainer's policy, in this process only.

        `policy_id` names it in errors.

        Raises:
            ConfigError: the names or shapes are not this policy's, or a number is not finite;
                nothing is changed.
        """
        self.require_weights(weights, policy_id)
        self.policy.load_weights(weights)
        self.after_loading_weights()

    def require_weights(self, weights: Weights, policy_id: str) -> None:
        """Raise ConfigError unless these could be the weights of this trainer's policy.

        Names and shapes must be the policy's, and all numbers finite. `policy_id` names the policy
        in the error.
        """
        if problem := policy_files.find_mismatch(weights, self.policy.weights()):
            problem = f"these are not the weights of this policy: {problem}"
            raise ConfigError(f"weights.{policy_id}", sorted(weights), problem=problem)

    @staticmethod
    def _log_batch_size(settings: TrainerConfig) -> None:
        """Log that the batch size was rounded up, if it was."""
        if settings.rounded:
            logger.info(
                "train_batch_size: %s is rounded up to %s: whole rounds of %s steps, a fragment of "
                "every environment",
                *(settings.train_batch_size, settings.batch_size, settings.fragment_size),
            )

    def cleanup(self) -> None:
        """End the workers, also those of evaluations, and restore the environment variables."""
        self._undo.close()

    # ---- workers --------------------------------------------------------------------------------

    @property
    def videos(self) -> str:
        """Folder of the trial's videos, which need not exist."""
        return str(Path(self.logdir) / FOLDER)

    def worker_spec(self) -> WorkerSpec:
        """Return the specification from which all workers are made, with index 0.

        Its `steps` are ``batch_size`` divided by the number of workers, rounded up.
        """
        settings = self.settings
        kind = ExternalSpec if self.calls_trainer else WorkerSpec
        return kind(
            seed=self.seed,
            index=0,
            num_workers=settings.workers.num_workers,
            environment=self.environment,
            envs=settings.envs,
            sampling=settings.sampling,
            filters=settings.filters,
            make_actor=self._actor_maker,
            gamma=settings.gamma,
            steps=-(-settings.batch_size // max(1, settings.workers.num_workers)),
            resources=settings.resources,
            perf=settings.perf,
            logs=settings.logs,
            calls=self.reporter.calls,
            columns=self._columns(),
            unfiltered=self.keeps_rows,
            recording=RecordingPlan(settings.rendering, self.videos, self.fps)
            if self.fps
            else None,
        )

    def _columns(self) -> frozenset[str]:
        """Return the names of the columns that ``output`` and callbacks request; often empty."""
        calls = self.reporter.calls
        written = WRITTEN_IN_LANES if self.calls_trainer else self.written_columns
        written = written if self.settings.offline.output else frozenset()
        return written | (calls.columns if calls else frozenset())

    def _make_workers(self, seed: int) -> WorkerSet:
        """Create the workers that sample, or read experience, or do both.

        `seed` is that of their random streams. If experience is read, it also makes `estimates`; if
        a user's reader asked for workers that sample, `level` becomes C.
        """
        settings, offline = self.settings, self.settings.offline
        spec = replace(self.worker_spec(), seed=seed)
        at_once = settings.batch_size if self.samples_on else None
        sampling = None
        if not offline.only_reads:
            sampling = make_workers(
                spec, settings.workers, settings.recovery, settings.metrics, at_once
            )
        if sampling is not None and not offline.reads_experience:
            return sampling
        groups = [sampling] if sampling else []
        asked: list[SamplerInput] = []

        may_ask, me = sampling is None, weakref.proxy(self)

        def find_sampler() -> SamplerInput | None:
            """Return the reader of new samples, made at the first call; None without one."""
            if may_ask and not asked:
                columns = WRITTEN_IN_LANES if self.calls_trainer else self.written_columns
                wider = replace(spec, columns=spec.columns | columns - {"infos"})
                groups.append(
                    make_workers(wider, settings.workers, settings.recovery, settings.metrics)
                )
                spread_of = lambda pid: me.spread_of(pid)  # noqa: E731,PLW0108 a method holds it
                asked.append(SamplerInput(groups[0], self.calls_trainer, spread_of))
            return asked[0] if asked else None

        context = replace(
            self._io_context(seed),
            find_worker=lambda: groups[0].local_worker() if groups else None,
            find_sampler=find_sampler,
        )
        index = max(1, settings.workers.num_workers) if sampling else 0
        try:
            reading = self._make_reading(context, index, sampling, spec)
        except BaseException:
            for one in groups:
                one.close()
            raise
        may_ask = False
        if asked:
            reading.take_sampler(asked[0])
            self.level = "C"
        return reading

    def _io_context(self, seed: int) -> IOContext:
        """Return the argument of user-defined readers and writers.

        `seed` is that of their random streams. It finds the worker in this process, if there is
        one, only when it is asked.
        """
        me = weakref.proxy(self)

        def find_worker() -> RolloutWorker | None:
            """Return the trainer's own worker; None before the workers exist."""
            workers: WorkerSet | None = getattr(me, "workers", None)
            return workers.local_worker() if workers else None

        return IOContext(
            config=SettingsView(flatten(self.settings)),
            offline=self.settings.offline,
            folder=lambda: me.logdir,
            seed=seed,
            find_worker=find_worker,
        )

    def _make_reading(
        self, context: IOContext, index: int, sampling: WorkerSet | None, spec: WorkerSpec
    ) -> ReadingWorkers:
        """Return workers that read experience from the setting ``input``; make `self.estimates`.

        `context` is the argument of user-defined readers, `sampling` workers that also sample,
        which the returned ones own, or None. `index` is the worker index of what is read, `spec`
        the specification of workers.
        """
        rows = self.row_form()
        self.estimates = Estimates(context, rows, self.spaces, self.settings.gamma)
        given = context, rows, self.settings.batch_size, index, sampling, RowTreatment.of(spec)
        config, shape = self.settings.filters, row_shape(self.spaces.filtered)
        return ReadingWorkers(*given, lambda _: make_filter(config, shape))

    def row_form(self, is_multi_agent: bool = False) -> Rows:
        """Return the form, such as spaces, that rows read from files must have for this policy.

        `is_multi_agent` is True with several agents.
        """
        is_filtering = filters_.is_filtering(self.filters["observation"])
        widened = self.inference.connectors.adapter.spread
        return Rows(self.spaces, is_multi_agent, is_filtering, widened)

    def _replace_workers(self) -> None:
        """Close the workers and create new ones, with new episodes and streams.

        Their seed is derived from the trial's seed and the steps so far. If each worker has filters
        of its own, all begin with the trainer's.
        """
        self.workers.close()
        self.workers = self._make_workers(
            rng.integer(self.seed, "restored", self.progress.timesteps)
        )
        if not self.settings.filters.synchronize_filters:
            known = self.filter_states()
            states = self.workers.get_state()
            self.workers.set_state([{**state, "filters": known} for state in states])

    def _adopt_level(self) -> None:
        """Create the workers anew if the checkpoint's trainer saved environments in another way.

        The exactness with which they can be saved was measured by that trainer
        (`context.remembered`), or is measured now.
        Sets `environment`, `level` and what `remembers` returns.
        """
        settings, context = self.settings, self.context
        mine = self._remembered
        is_known = bool(mine) and mine.items() <= dict(context.remembered).items()
        if settings.offline.only_reads or (is_known and settings.environment == self._measured):
            return
        self._measured = settings.environment
        restarts = settings.envs.restart_failed_sub_environments
        known = remembered_measurement(settings.environment, restarts, context.remembered)
        if known is None and settings.environment.is_native == self.environment.is_native:
            return
        inquired = Inquiry(settings.environment, restarts, context.remembered, context.shared)
        with closing(inquired) as inquiry:
            clock_settings = bool(settings.clock_settings)
            made, level = resolve(
                settings.environment, clock_settings, lambda _: inquiry.measured()
            )
            self._remembered = inquiry.as_data()
        if made == self.environment and level == self.level:
            return
        self.workers.close()
        self.environment, self.level = made, level
        self.workers = self._make_workers(self.seed)

    # ---- rounds ---------------------------------------------------------------------------------

    def set_global_vars(self, global_vars: Mapping[str, Any]) -> None:
        """Send variables, such as ``timestep``, to the policy and all workers."""
        for member in self.members.values():
            member.policy.on_global_var_update(global_vars)
        self.workers.set_global_vars(global_vars)

    def require_finite(self) -> None:
        """Raise NotFiniteError if a gradient step since the last call was not finite.

        On a GPU it waits for the device; on the CPU such steps raise the error themselves.
        """
        self.policy.require_finite()

    def _update_exploration(self) -> None:
        """Pass the number of sampled steps to the actors, whose exploration depends on it."""
        for member in self.members.values():
            member.inference.actor.on_global_var_update({"timestep": self.progress.timesteps})

    def acting_stream(self, explore: bool) -> np.random.Generator | None:
        """Return the random stream of `compute_action`; None if `explore` is False.

        Exploration is first updated to the steps sampled so far.
        """
        self._update_exploration()
        return self.streams["compute_action"] if explore else None

    def spread_of(self, policy_id: str) -> Spread | None:
        """Return how a policy's numbers from -1 to 1 are scaled to the bounds of actions.

        Returns None if they are not scaled. Raises KeyError if there is no such policy.
        """
        return self.members[policy_id].inference.connectors.adapter.spread

    def merge_filters(self, samples: Sequence[Sample]) -> list[Sample]:
        """Merge the filter statistics in these samples into the trainer's filters.

        Returns the samples without the statistics, so that `end_round` does not count them twice.
        """
        filters_.synchronise(self.filters, [one.deltas for one in samples])
        return [replace(one, deltas={}) for one in samples]

    def filter_rows(
        self, rows: Mapping[str, NDArray[Any]], weight: float = 1.0
    ) -> dict[str, NDArray[Any]]:
        """Return unfiltered rows (B, …) as the policy sees them with the current filter statistics.

        ``observations`` and ``new_obs`` are filtered, and ``rewards`` divided by the deviation of
        the return. The statistics do not change within a round.

        Args:
            rows: column → (B, …) as a replay stores them; every column is optional.
            weight: sum of the weights of the rewards that a value of ``rewards`` adds up; the
                clipping to ±10 grows with it.
        """
        filtered = dict(rows)
        if filters_.is_filtering(self.filters["observation"]):
            for name in ("observations", "new_obs"):
                if name in filtered:
                    filtered[name] = self.inference.connectors.filtered_rows(filtered[name])
        stat = self.filters.get("reward")
        if isinstance(stat, filters_.MeanStdFilter) and "rewards" in filtered:
            filtered["rewards"] = stat.scale(filtered["rewards"] / weight) * np.float32(weight)
        return filtered

    def filter_states(self) -> dict[str, Any]:
        """Return the states of filters by name: ``observation``, and ``reward`` if normalised."""
        return filters_.get_state(self.filters)

    def end_round(self, samples: Sequence[Sample]) -> None:
        """End a round: merge filters, send weights and filters to workers, count the samples.

        Counts steps, episodes, ages of the weights and late metrics in `progress`, and adds the
        time of sending to `timers`.
        """
        ages = [self.workers.version - one.version for one in samples]
        with timed(self.timers, "synch_time_ms"):
            self._synchronise(samples)
        self.progress.count_ages(ages)
        for one in samples:
            self.progress.count(one.index, one.count, one.episodes, one.perf)
            self.progress.late += one.is_late

    def broadcast(self) -> None:
        """Send the weights and the filters to all workers, and to the acting policy here."""
        self._synchronise([])

    def _synchronise(self, samples: Sequence[Sample]) -> None:
        """Merge the samples' filter statistics in worker order; send all workers filters, weights.

        The acting policy in this process gets the weights, too. Without samples, data-parallel
        workers also get the optimiser. Stores the first sample's latest observations in `recent`.
        """
        merged = filters_.synchronise(self.filters, [one.deltas for one in samples if one.deltas])
        weights = self.policy.acting_weights()
        self.inference.actor.load(weights)
        if isinstance(self.workers, RankGroup) and not samples:
            self.workers.load_policy(self.policy.get_state())
        self.workers.sync(weights, merged)
        if samples:
            self.recent = samples[0].recent

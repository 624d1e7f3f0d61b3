"""The common part of trainers that are lanes of a compiled program, for any algorithm.

Such a trainer has the same policy, filter and counters as one without ``lanes``, so it is played,
exported and saved in the same way. Only its rounds of sampling and learning and its evaluations are
computed in a place of a `Stack`, together with other trainers, with the program's own environments
and random numbers. So its learning curve differs from that of the same settings without ``lanes``,
as under another seed.
"""

import functools
import math
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from trainables.core import rng
from trainables.core.settings import flatten, parse
from trainables.envs.compiled import PREFIXES, classic
from trainables.envs.compiled.contract import Environment
from trainables.envs.compiled.registry import EnvKey, key_of, make
from trainables.envs.exactness.measuring import Inquiry, Inspection
from trainables.envs.make import EnvironmentConfig
from trainables.errors import ConfigError, ConfigErrors, NotFiniteError, in_yaml
from trainables.evaluation.config import evaluation_settings, is_due
from trainables.evaluation.play import Played
from trainables.policies.acting.inference import InferencePolicy
from trainables.policies.filters import MeanStdFilter
from trainables.rollout.episodes.metrics import RolloutMetrics
from trainables.rollout.workers.worker_set import WorkerSet
from trainables.stacks import episodes
from trainables.stacks.episodes import Episodes
from trainables.stacks.evaluation import Request
from trainables.stacks.filtering import RunningStatistics, as_counted, as_filter_state
from trainables.stacks.lanes import Shape, Tree
from trainables.stacks.networks import pad, program_width, unpad
from trainables.stacks.optimizer import Adam, OptimizerState
from trainables.stacks.stack import Stack, play_evaluations, step
from trainables.trainable import Trainable
from trainables.trainer.config import TrainerConfig
from trainables.trainer.evaluation import results_of
from trainables.trainer.trainer import Trainer

Array = NDArray[Any]
#: Keys that every lane reads, or that have no effect on a lane.
READ = frozenset(
    {
        *("env", "env_config", "horizon", "num_envs_per_worker", "rollout_fragment_length"),
        *("train_batch_size", "gamma", "lr", "lr_schedule", "schedule_timesteps", "seed"),
        *("optimizer", "grad_clip"),
        *("observation_filter", "observation_filter_clip", "exploration_config"),
        *("model", "normalize_actions", "timesteps_per_iteration", "lanes", "learner"),
        *("metrics_smoothing_episodes", "classic_results", "log_level", "log_sys_usage"),
        *("env_measure_timeout_s", "env_replay_limit", "env_level", "native_vector_env"),
        *("evaluation_interval", "evaluation_num_episodes", "evaluation_num_workers"),
        *("evaluation_timeout_s", "evaluation_config", "collect_metrics_timeout"),
        *("num_cpus_for_driver", "memory", "synchronize_filters"),
        *("tf_session_args", "local_tf_session_args", "extra_python_environs"),
    }
)
#: (shape, L) → the stacks of this process.
_stacks: dict[tuple[Shape, int], list[Stack]] = {}


class LaneWorkers(WorkerSet):
    """A worker set without workers: the environments and the random key of a compiled program.

    Args:
        held: name → array: ``envs``, the states of the environments, ``lengths`` and ``returns`` of
            the running episodes, ``key``, and those of `LaneTrainer.more_environment_arrays`.
        changed: called when policy, filters or these arrays have new values from outside.
        refresh: called before `held` is read, to update it from the program.
        restored: called when a saved state replaces these arrays, before `changed`.
    """

    def __init__(
        self,
        held: Mapping[str, Array],
        changed: Callable[[], None],
        refresh: Callable[[], None],
        restored: Callable[[], None],
    ) -> None:
        self.held = dict(held)
        self._changed, self._refresh, self._restored = changed, refresh, restored

    def get_state(self) -> list[Any]:
        """Return a list of one state: copies of the program's newest arrays by name."""
        self._refresh()
        return [{name: np.array(one) for name, one in self.held.items()}]

    def set_state(self, states: Sequence[Any]) -> None:
        """Restore a state that `get_state` returned, and call `restored` and `changed`."""
        (state,) = states
        self.held = {name: np.array(state[name]) for name in self.held}
        self._restored()
        self._changed()

    def sync(self, weights: Any, filters: Any) -> None:
        """Call `changed`, so that the trainer's policy and filters are copied into the program.

        The arguments are ignored.
        """
        self._changed()

    def set_global_vars(self, global_vars: Mapping[str, Any]) -> None:
        """Do nothing, since the trainer passes scheduled settings to the program itself."""

    def foreach_worker(self, function: Any) -> list[Any]:
        """Return an empty list, since there are no workers."""
        return []

    def _ask(self, method: str, args: Any) -> dict[int, Any]:
        """Raise ConfigError, since there are no workers."""
        problem = (
            f"trials in one compiled program (in lanes) have no workers, which {method}() needs"
        )
        raise ConfigError("lanes", "set", hint="leave lanes out", problem=problem)


class LaneTrainer(Trainer):
    """Base of trainers whose training runs in a compiled program, together with other trials.

    A subclass also derives from the trainer of its algorithm. The *lane* of a trainer is its state
    in the program: arrays in a place of a `Stack`.
    """

    reads: ClassVar[frozenset[str]]
    """Settings that the algorithm's program reads, in addition to `READ`."""
    reads_of_model: ClassVar[frozenset[str]]
    """Keys of ``model`` that the algorithm's program reads."""
    _stack: Stack
    """Stack that contains the trainer's lane; set in the trainer's first iteration."""
    _place: int | None = None
    """Index of the trainer's lane in its stack; None before the first iteration."""
    _is_ahead = False
    """True while the lane has a newer state than this object's policy, filter and workers."""
    _is_behind = True
    """True while this object's policy, filter and workers have a newer state than the lane."""

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> type[Self]:
        """Return this class, whatever the settings; other trainers choose among several."""
        return cls

    # ---- implemented by a subclass -----------------------------------------------------------

    @classmethod
    @abstractmethod
    def shape_of(cls, settings: Any) -> Shape:
        """Return what must be compiled into the program of a trainer with these settings.

        Raises ConfigError if programs do not have the environment.
        """

    @classmethod
    @abstractmethod
    def find_misfits(cls, settings: Any) -> Iterable[ConfigError]:
        """Return an error for each setting of the algorithm that its program does not support.

        Settings that no program or not this one reads are found without it.
        """

    @abstractmethod
    def lane_settings(self) -> Tree:
        """Return the settings that the program takes as arrays, which may differ between trials."""

    @abstractmethod
    def rates(self) -> Tree:
        """Return the scheduled settings in each round of the next iteration, each (R,)."""

    @abstractmethod
    def as_lane_state(self) -> Tree:
        """Return the trainer's state (policy, filter, episodes) as the program's arrays."""

    @abstractmethod
    def take_lane_state(self, take: Callable[[str], Tree]) -> None:
        """Copy the parts of the state that only the subclass has from the program to the trainer.

        Args:
            take: returns a field of the trainer's lane by name.
        """

    @abstractmethod
    def statistics(self, outcome: Any, index: int) -> dict[str, float]:
        """Return statistic → value of learning in round `index` of an iteration's `outcome`."""

    def epsilon(self, timesteps: int) -> float:
        """Return ε, the fraction of random choices, after this number of environment steps.

        It is 0 by default. Evaluations that explore use it.
        """
        return 0.0

    def more_environment_arrays(self) -> dict[str, Array]:
        """Return name → initial value of further arrays that are saved with the environments.

        There are none by default.
        """
        return {}

    # ---- settings and shape ------------------------------------------------------------------

    @classmethod
    def validate_config(cls, settings: TrainerConfig) -> None:
        """Raise ConfigError for settings that the algorithm, or its program, does not support.

        Those of the program are found all at once and raised together as ConfigErrors.
        """
        super().validate_config(settings)
        if not isinstance(settings, cls.config_class):
            return
        wrong = [
            *cls._unread(settings),
            *_without_program(settings),
            *cls.find_misfits(settings),
        ]
        if wrong:
            raise ConfigErrors(wrong)

    @classmethod
    def _unread(cls, settings: TrainerConfig) -> Iterator[ConfigError]:
        """Yield an error for each setting that the program does not read and that is no default."""
        usual = flatten(type(settings)(environment=settings.environment))
        for key, value in flatten(settings).items():
            if key not in READ and key not in cls.reads and value != usual[key]:
                yield in_lanes(key, value, in_yaml(usual[key]))
        for key, value in settings.model:
            default = getattr(usual["model"], key)
            if key not in cls.reads_of_model and value != default:
                yield in_lanes(f"model.{key}", value, in_yaml(default))

    @classmethod
    def choose(cls, settings: TrainerConfig, inspection: Inspection) -> dict[str, Any]:
        """Return setting → value for settings that may be ``auto``, as the algorithm chooses them.

        ``native_vector_env`` is False, since the program has environments of its own. Raises
        ConfigError if a setting does not work with the environment of `inspection`.
        """
        return {**super().choose(settings, inspection), "native_vector_env": False}

    @property
    def shape(self) -> Any:
        """Settings and sizes that the trainer's program is compiled for.

        Trainers with equal shapes share a program.
        """
        return self.shape_of(self.settings)

    @classmethod
    def lane_shape(cls, config: Mapping[str, Any]) -> Shape:
        """Return what must be compiled into the program for these settings.

        Trials with equal shapes can be trained together. Raises ConfigError for invalid settings,
        and for an environment that programs do not have.
        """
        return cls.shape_of(parse(cls.config_class, config))

    @classmethod
    def common_shape(cls, settings: TrainerConfig) -> dict[str, Any]:
        """Return the fields of `Shape` that all algorithms have, by name, for these settings.

        Raises ConfigError if programs do not have the environment.
        """
        hidden = settings.model.hidden
        return {
            "env": _require_named(settings.environment),
            "limit": _limit(settings),
            "num_envs": settings.sampling.num_envs_per_worker,
            "steps": settings.sampling.rollout_fragment_length,
            "rounds": _rounds(settings),
            "hidden": tuple(
                map(program_width, cls.usual_networks[0] if hidden is None else hidden)
            ),
        }

    # ---- environments and rounds -------------------------------------------------------------

    def _inquiry(self) -> Inquiry:
        """Return an `Inquiry` that measures no environment, since the program's are exact."""
        of = self.settings.environment.model_copy(update={"env_level": "A"})
        return Inquiry(of, False, self.context.remembered, self.context.shared)

    def _make_workers(self, seed: int) -> LaneWorkers:
        """Return the program's environments at the start of their first episodes, as workers.

        `seed` draws these episodes and the program's random key. Rounds and evaluations that were
        computed and not used are forgotten.
        """
        self._made: list[tuple[Any, int]] = []
        """Computed rounds that are not yet counted, as (outcome, index of the round in it)."""
        key = np.array(rng.derive(seed, "lane").generate_state(2), dtype=np.uint32)
        first = np.array(rng.derive(seed, "lane", "first").generate_state(2), dtype=np.uint32)
        count = self.settings.sampling.num_envs_per_worker
        begun = episodes.begin(self.lane_env, first, count)
        arrays = {"key": key, **_episode_arrays(begun), **self.more_environment_arrays()}

        self._evaluated: dict[int, Sequence[Played]] = {}
        """Number of environment steps → episodes of the evaluation after them, if it is computed
        before its turn."""

        def changed() -> None:
            """Note that weights or filters were changed here, not in the stack."""
            self._is_behind = True
            self._evaluated.clear()

        # Rounds that an interrupted iteration left are none of a restored trainer.
        self._own = LaneWorkers(arrays, changed, self._fetch, self._made.clear)
        return self._own

    @property
    def lane_env(self) -> Environment:
        """The environment as functions of arrays, as the program steps it."""
        return make(_require_named(self.settings.environment))

    @property
    def rounds(self) -> int:
        """Number of rounds of collecting and learning per iteration."""
        return _rounds(self.settings)

    @property
    def round_starts(self) -> list[int]:
        """Total environment steps at the start of each round of the next iteration."""
        rows = self.settings.fragment_size
        return [self.progress.timesteps + k * rows for k in range(self.rounds)]

    def adam(self) -> Adam:
        """Return the settings of Adam as the program takes them, as plain numbers."""
        of = self.settings.optimizer
        return Adam(*of.betas, of.eps, of.weight_decay)

    # ---- state shared with other trainers, fetched from the lane on access --------------------

    @property
    def policy(self) -> Any:
        """The learned policy, after its newest state was copied from the program."""
        self._fetch()
        return self._policy

    @policy.setter
    def policy(self, value: Any) -> None:
        self._policy = value

    @property
    def filters(self) -> dict[str, Any]:
        """Filters ``observation`` and, if rewards are normalised, ``reward``.

        The program's newest statistics are copied into them first.
        """
        self._fetch()
        return self._filters

    @filters.setter
    def filters(self, value: dict[str, Any]) -> None:
        self._filters = value

    @property
    def inference(self) -> InferencePolicy:
        """The acting policy, after the newest weights were copied from the program."""
        self._fetch()
        return self._inference

    @inference.setter
    def inference(self, value: InferencePolicy) -> None:
        self._inference = value

    def set_global_vars(self, global_vars: Mapping[str, Any]) -> None:
        """Set variables, such as ``timestep``, of the policy, without copying its newest state."""
        self._policy.on_global_var_update(global_vars)

    def require_finite(self) -> None:
        """Do nothing: each round was checked in the program, see `training_step`."""

    def _fetch(self) -> None:
        """Copy the lane's state to this object's policy, filter and workers if it is newer.

        The acting policy gets the weights, and `recent` the current observations. Does nothing
        before the first iteration, in which the trainer gets a lane.
        """
        if not self._is_ahead or self._place is None:
            return
        self._is_ahead = False
        self._policy.set_state(self._as_policy_state(self.take("learnt")))
        observed = self._filters["observation"]
        if isinstance(observed, MeanStdFilter):
            observed.set_state(as_filter_state(self.take("seen")))
        held = {"key": self.take("key"), **_episode_arrays(self.take("episodes"))}
        self._own.held.update(held)
        seen = episodes.observe_now(self.lane_env, self._own.held["envs"])
        self.recent = np.asarray(seen, dtype=self.recent.dtype)
        self.take_lane_state(self.take)
        self._inference.actor.load(self._policy.acting_weights())

    def take(self, field: str) -> Tree:
        """Return a copy of a field, by name, of the trainer's lane in its stack.

        Raises RuntimeError before the first iteration, in which the trainer gets a lane.
        """
        if self._place is None:
            raise RuntimeError(
                "the trainer has no lane in a stack yet; it gets one in its first iteration"
            )
        return self._stack.take(self._place, field)

    def _hand_over(self) -> tuple[Stack, int]:
        """Copy the state of policy, filter and workers into the program if it is newer than there.

        Occupies a place first if the trainer has none, in a new stack if all are full. Returns
        (stack, place).
        """
        if self._place is not None and not self._is_behind:
            return self._stack, self._place
        self._is_behind = self._is_ahead = False
        lane = self.as_lane_state()
        if self._place is None:
            lanes: Any = flatten(self.settings)["lanes"]
            self._stack, self._place = _reserve(self.shape, lanes or 1)
        self._stack.put(self._place, self.lane_settings(), lane)
        return self._stack, self._place

    def optimizer_state(self) -> OptimizerState:
        """Return weights and moments of this object's policy as the program's arrays.

        Moments are zeros for parameters that were never updated.
        """
        weights = self.as_program(self._policy.weights())
        first = {name: np.zeros_like(one) for name, one in weights.items()}
        second = {name: np.zeros_like(one) for name, one in weights.items()}
        updates = 0.0
        if moments := {name: one for name, one in self._policy.kept_moments().items() if one}:
            updates = float(next(iter(moments.values()))["step"])
            first |= self.as_program({name: one["exp_avg"] for name, one in moments.items()})
            second |= self.as_program({name: one["exp_avg_sq"] for name, one in moments.items()})
        return OptimizerState(weights, first, second, np.float32(updates))

    def as_program(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Return arrays of the policy (name → array) in the program's layout and padded shape.

        Weights become (inputs, outputs); entries that only the program has are 0.
        """
        shapes = self.shape.weights()
        return {
            name: np.ascontiguousarray(pad(_transposed(name, one), shapes[name]))
            for name, one in arrays.items()
        }

    def as_policy(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Return arrays of the program (name → array) in the policy's layout and shape.

        Weights become (outputs, inputs).
        """
        found = {}
        for name, one in arrays.items():
            own = self._own_shapes[name]
            shape = own[::-1] if _is_transposed(name) else own
            found[name] = np.ascontiguousarray(_transposed(name, unpad(one, shape)))
        return found

    @functools.cached_property
    def _own_shapes(self) -> dict[str, tuple[int, ...]]:
        """Name → shape of each array of the policy."""
        return {name: one.shape for name, one in self._policy.weights().items()}

    def _as_policy_state(self, learnt: OptimizerState) -> dict[str, Any]:
        """Return the program's weights and moments as a state for `Policy.set_state`.

        Moments are empty before the first update.
        """
        weights = self.as_policy(learnt.weights)
        first, second = self.as_policy(learnt.first), self.as_policy(learnt.second)
        updates = np.float32(learnt.updates)
        moments = {
            name: {"step": updates, "exp_avg": first[name], "exp_avg_sq": second[name]}
            for name in weights
        }
        kept = moments if learnt.updates else {name: {} for name in weights}
        return {"weights": weights, "optimizer": kept}

    def copy_environment_array(self, name: str) -> Array:
        """Return a copy of one of the environments' arrays, by its name in `LaneWorkers.held`.

        It is not updated from the program before.
        """
        return np.array(self._own.held[name])

    def running_episodes(self) -> Episodes:
        """Return copies of the environments' states, and of the episodes' lengths and returns.

        They are not updated from the program before.
        """
        return Episodes(
            self.copy_environment_array("envs"),
            self.copy_environment_array("lengths"),
            self.copy_environment_array("returns"),
        )

    def filter_statistics(self) -> RunningStatistics:
        """Return the statistics of the observation filter as the program's arrays.

        They are those of no rows if observations are not filtered.
        """
        return as_counted(self._filters["observation"], (self.lane_env.features,))

    # ---- rounds ------------------------------------------------------------------------------

    def training_step(self) -> dict[str, float]:
        """Count one round of sampling and learning, and return its statistics.

        The first call of an iteration computes all of its rounds in the program, unless
        `train_together` has. Steps and episodes of the round are added to `progress`. Raises
        NotFiniteError if a loss or gradient of the iteration was not finite.
        """
        if not self._made:
            advance([self])
        outcome, index = self._made.pop(0)
        if not outcome.is_finite:
            raise NotFiniteError.of_learning("the loss or its gradient is not finite")
        finished = outcome.finished
        ended = np.nonzero(finished.ended[index])
        totals, lengths = finished.returns[index][ended], finished.lengths[index][ended]
        done = [
            RolloutMetrics(total, length)
            for total, length in zip(totals.tolist(), lengths.tolist(), strict=True)
        ]
        found = self.statistics(outcome, index)
        self.progress.count(0, self.settings.fragment_size, done, {})
        return found

    @classmethod
    def train_together(cls, several: Sequence[Trainable]) -> None:
        """Compute the next iteration of several trainers at once, and the evaluations that are due.

        The next `train` of each then returns its result without further computation. Evaluations
        outside of programs are left to `train`, and trainables other than lanes are ignored.
        """
        trainers = [one for one in several if isinstance(one, LaneTrainer)]
        evaluate({one: 0 for one in trainers if one.evaluates_at_start})
        advance(trainers)
        evaluate(
            {
                one: one.rounds * one.settings.fragment_size
                for one in trainers
                if is_due(one.settings.evaluation, one.iteration + 1)
            }
        )

    # ---- evaluation --------------------------------------------------------------------------

    def evaluate(self) -> dict[str, Any]:
        """Play `evaluation_num_episodes` new episodes, and return their statistics.

        They are played in the program if `evaluation_shape` is not None, else as by `Trainer`.
        Episodes that were played ahead, by `train_together`, are used once and dropped.
        """
        if self.evaluation_shape is None:
            return super().evaluate()
        now = self.progress.timesteps
        if now not in self._evaluated:
            evaluate({self: 0})
        return results_of(self._evaluated.pop(now))

    @functools.cached_property
    def evaluation_shape(self) -> Shape | None:
        """Shape of the program that evaluates; None if the episodes are played outside of programs.

        That is so with callbacks, with ``remote_worker_envs``, and if ``evaluation_config`` changes
        more about the environment than ``env`` and ``env_config``, or names one that is not in
        `trainables.envs.compiled`.
        """
        changed, own = self._evaluating[0], self.settings.environment
        of = changed.environment
        differing = {"env": of.env, "env_config": of.env_config}
        if of != own.model_copy(update=differing) or changed.callbacks.callbacks is not None:
            return None
        try:
            env = key_of(of.env, of.env_config)
        except ConfigError:
            return None
        if env is None or changed.envs.remote_worker_envs:
            return None
        shape: Shape = self.shape
        return shape.evaluating(env, self.settings.evaluation.evaluation_num_episodes)

    @functools.cached_property
    def _evaluating(self) -> tuple[TrainerConfig, bool]:
        """(Settings during evaluation, True if actions are drawn and not the best ones)."""
        return evaluation_settings(self.settings, self.settings.evaluation)

    def evaluation_request(self, ahead: int) -> Request:
        """Return the arguments of the evaluation that ends the next iteration, or of that at start.

        `ahead` is the number of environment steps that were computed and are not counted yet; ε is
        that after them.
        """
        changed, explores = self._evaluating
        seed = self.evaluation.seed(self.iteration + 1)
        return Request(
            key=np.array(rng.derive(seed, "lane").generate_state(2), dtype=np.uint32),
            limit=np.int32(_limit(changed)),
            explores=np.bool_(explores),
            epsilon=np.float32(self.epsilon(self.progress.timesteps + ahead)),
        )

    def get_state(self) -> dict[str, Any]:
        """Return the trainer's state, after copying the newest one from the program.

        Reseeds the global random streams, since a program never draws from them.
        """
        rng.seed_global(self.seed, "global")
        self._fetch()
        return super().get_state()

    def cleanup(self) -> None:
        """Free the trainer's place in the stack, if it has one; then do as `Collector.cleanup`.

        State that was not copied from the program is lost.
        """
        if self._place is not None:
            _release(self._stack, self._place)
            self._place = None
            del self._stack
        super().cleanup()


def in_lanes(place: str, value: object, allowed: str) -> ConfigError:
    """Return the error that the program does not support the `value` of a setting.

    `allowed` are the values that it supports, as in YAML.
    """
    other, undo = "trials in one compiled program (in lanes)", "use a pool other than stack"
    return ConfigError.of_conflict(place, value, other, allowed, undo=undo)


def _without_program(settings: Any) -> Iterator[ConfigError]:
    """Yield an error for each setting whose value programs do not support.

    Checked are environment, optimiser, observation filter, ``learner``, and ``train_batch_size``,
    which must be one fragment of every environment.
    """
    try:
        make(_require_named(settings.environment))
    except ConfigError as error:
        yield error
    filtering = settings.filters.observation_filter
    known: dict[str, tuple[Any, Collection[str]]] = {
        "optimizer.name": (settings.optimizer.name, ("adam",)),
        "observation_filter": (filtering, ("NoFilter", "MeanStdFilter")),
        "learner": (settings.learner, ("auto", "fused")),
    }
    for key, (value, allowed) in known.items():
        if value not in allowed:
            yield in_lanes(key, value, " or ".join(allowed))
    rows = settings.fragment_size
    if settings.batch_size != rows:
        yield in_lanes("train_batch_size", settings.batch_size, f"null or {rows}")


def advance(trainers: Sequence[LaneTrainer]) -> None:
    """Compute the next iteration of many trainers at once, and store its rounds in each trainer.

    Each trainer occupies a place in a stack if it has none. The next `train` of each then returns
    its result without further computation.
    """
    by_stack: dict[Stack, dict[int, LaneTrainer]] = {}
    for trainer in trainers:
        stack, place = trainer._hand_over()
        by_stack.setdefault(stack, {})[place] = trainer
    rates = {stack: {at: one.rates() for at, one in own.items()} for stack, own in by_stack.items()}
    for stack, outcomes in step(rates).items():
        for place, outcome in outcomes.items():
            one = by_stack[stack][place]
            one._made.extend((outcome, index) for index in range(stack.shape.rounds))
            one._is_ahead = True


def evaluate(trainers: Mapping[LaneTrainer, int]) -> None:
    """Play the episodes of many trainers' next evaluations at once; store them in each trainer.

    The next `evaluate` of each then returns its result without further computation. Each trainer
    occupies a place in a stack if it has none. Trainers whose evaluation is not played in a program
    are left out. `trainers` are trainer → environment steps that it has computed and not yet
    counted.
    """
    by_program: dict[tuple[Stack, Shape], dict[int, LaneTrainer]] = {}
    for trainer in trainers:
        if (shape := trainer.evaluation_shape) is not None:
            stack, place = trainer._hand_over()
            by_program.setdefault((stack, shape), {})[place] = trainer
    requests = {
        key: {place: one.evaluation_request(trainers[one]) for place, one in own.items()}
        for key, own in by_program.items()
    }
    for key, results in play_evaluations(requests).items():
        for place, played in results.items():
            one = by_program[key][place]
            pairs = zip(played.returns.tolist(), played.lengths.tolist(), strict=True)
            whole = [Played(RolloutMetrics(total, length)) for total, length in pairs]
            one._evaluated[one.progress.timesteps + trainers[one]] = whole


def _require_named(environment: EnvironmentConfig) -> EnvKey:
    """Return the compiled environment that the settings name.

    Raises ConfigError if programs have no such environment, or none with its ``env_config``.
    """
    found = key_of(environment.env, environment.env_config)
    if found is None:
        ways = " or ".join([*classic.KNOWN, *(f"{start}…" for start in PREFIXES)])
        raise in_lanes("env", environment.env, ways)
    return found


def _limit(settings: TrainerConfig) -> int:
    """Return the number of steps after which an episode is truncated.

    It is the environment's limit, or ``horizon`` if that is less.
    """
    limit = make(_require_named(settings.environment)).limit
    return min(limit, settings.envs.horizon or limit)


def _rounds(settings: TrainerConfig) -> int:
    """Return the number of rounds per iteration, at least 1.

    They have at least ``timesteps_per_iteration`` environment steps together.
    """
    return max(1, -(-settings.iteration.timesteps_per_iteration // settings.fragment_size))


def _reserve(shape: Shape, width: int) -> tuple[Stack, int]:
    """Occupy a place of the oldest stack with a free one, else of a new stack of `width` places.

    Returns (stack, place). So trials that begin or continue gather in few stacks, and the others
    become empty.
    """
    stacks = _stacks.setdefault((shape, width), [])
    for stack in stacks:
        if (place := stack.reserve()) is not None:
            return stack, place
    stacks.append(Stack(shape, width))
    return _reserve(shape, width)


def _release(stack: Stack, place: int) -> None:
    """Free a place, and drop a stack of which all places are free."""
    stack.release(place)
    if stack.is_empty:
        _stacks[stack.shape, stack.width].remove(stack)


def _transposed(name: str, array: Any) -> Array:
    """Return a weight transposed, from (outputs, inputs) to (inputs, outputs) or back; else as is.

    `name` is the array's name.
    """
    return np.asarray(array).T if _is_transposed(name) else np.asarray(array)


def _is_transposed(name: str) -> bool:
    """Return True if the array of this name is transposed in the program: ``<layer>.weight``."""
    return name.endswith(".weight")


def or_infinite(bound: float | None) -> float:
    """Return the bound, or infinity for None."""
    return math.inf if bound is None else float(bound)


def _episode_arrays(running: Episodes) -> dict[str, Array]:
    """Return the program's running episodes as numpy arrays ``envs``, ``lengths``, ``returns``."""
    return {
        "envs": np.asarray(running.states),
        "lengths": np.asarray(running.lengths),
        "returns": np.asarray(running.returns),
    }

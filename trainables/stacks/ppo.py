"""PPO that trains as a lane of a compiled program.

It is a `PPO` in all that can be asked of it: what it has learnt lies in the same policy, filter and
counters, so that it is evaluated, played, exported and saved in the same way. Only its rounds of
sampling and learning are made elsewhere: in a place of a `Stack`, beside other trainers, with
environments and random numbers of the program's own. So its curve is another one than that of the
same settings without ``lanes``, as if the seed were another one.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trainables.algorithms.ppo import PPO, STATS, Config
from trainables.core import rng
from trainables.core.settings import flatten
from trainables.envs.exactness.measuring import Inquiry, Look
from trainables.envs.make import EnvSpaces
from trainables.errors import ConfigError, NotFiniteError
from trainables.learners.fused.policy import FlatPolicy
from trainables.learners.schedules import learning_rate
from trainables.policies.filters import MeanStdFilter
from trainables.policies.inference import InferencePolicy
from trainables.rollout.metrics import RolloutMetrics
from trainables.rollout.workers.worker_set import WorkerSet
from trainables.stacks import environments, program
from trainables.stacks.program import Counted, Lane, Outcome, Rates, Settings, Shape
from trainables.stacks.stack import Stack
from trainables.trainable import Trainable
from trainables.trainer.config import TrainerConfig

Array = NDArray[Any]
#: Entries of a checkpoint's worker that are the lane's own.
_OWN = ("key", "envs", "lengths", "returns", "matrices", "age")
#: Keys that a lane reads, or that mean nothing to it; all others must have their default.
_READ = frozenset(
    {
        *("env", "horizon", "num_envs_per_worker", "rollout_fragment_length", "train_batch_size"),
        *("gamma", "lambda_", "lr", "lr_schedule", "schedule_timesteps", "seed", "optimizer"),
        *("vf_loss_coeff", "entropy_coeff", "entropy_coeff_schedule", "normalize_advantages"),
        *("grad_clip", "clip_param", "clip_param_schedule", "vf_clip_param", "num_sgd_iter"),
        *("sgd_minibatch_size", "target_kl", "observation_filter", "observation_filter_clip"),
        *("model", "normalize_actions", "timesteps_per_iteration", "lanes", "learner"),
        *("exploration_config",),
        *("metrics_smoothing_episodes", "classic_results", "log_level", "log_sys_usage"),
        *("env_measure_timeout_s", "env_replay_limit", "env_level", "native_vector_env"),
        *("evaluation_interval", "evaluation_num_episodes", "evaluation_num_workers"),
        *("evaluation_timeout_s", "evaluation_config", "collect_metrics_timeout"),
        *("num_cpus_for_driver", "memory", "synchronize_filters"),
        *("tf_session_args", "local_tf_session_args", "extra_python_environs"),
    }
)
_READ_OF_MODEL = frozenset({"hidden", "activation", "log_std_init"})
#: (shape, L) → the stacks of this process.
_stacks: dict[tuple[Shape, int], list[Stack]] = {}


class LaneWorkers(WorkerSet):
    """Workers in name: a lane's own environments and random numbers, held as arrays.

    Args:
        held: the entries `_OWN`.
        changed: called when the policy or filters were given new values.
        refresh: brings `held` up to date.
    """

    def __init__(
        self, held: Mapping[str, Array], changed: Callable[[], None], refresh: Callable[[], None]
    ) -> None:
        self.held = dict(held)
        self._changed, self._refresh = changed, refresh

    def get_state(self) -> list[Any]:
        """Return the entries `_OWN`."""
        self._refresh()
        return [{name: np.array(self.held[name]) for name in _OWN}]

    def set_state(self, states: Sequence[Any]) -> None:
        """Take back what `get_state` gave."""
        (state,) = states
        self.held = {name: np.array(state[name]) for name in _OWN}
        self._changed()

    def sync(self, weights: Any, filters: Any) -> None:
        """Note that the lane has to be given what the trainer holds."""
        self._changed()

    def set_global_vars(self, global_vars: Mapping[str, Any]) -> None:
        """Do nothing: a lane's schedules are the trainer's."""

    def foreach_worker(self, function: Any) -> list[Any]:
        """Return nothing: there is no worker to call it with."""
        return []

    def _ask(self, method: str, args: Any) -> dict[int, Any]:
        raise ConfigError("lanes", "set", f"null for {method}(), which needs workers")


class LanePPO(PPO):
    """PPO as one of ``lanes`` lanes of a compiled program."""

    before_auto: ClassVar[Mapping[str, Any]] = PPO.before_auto
    _place: int | None = None
    _is_ahead = False
    """True while the lane has learnt what policy, filter and workers do not hold yet."""
    _is_behind = True
    """True while policy, filter and workers hold what the lane does not."""

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> type["LanePPO"]:
        """Return this class."""
        return cls

    @classmethod
    def validate_config(cls, settings: TrainerConfig) -> None:
        """Raise ConfigError also for what no lane can do."""
        super().validate_config(settings)
        if isinstance(settings, Config):
            _check_read(settings)
            _check_parts(settings)

    @classmethod
    def choose(cls, settings: TrainerConfig, seen: Look) -> dict[str, Any]:
        """As PPO; what is not learnt in lanes is computed in numpy."""
        chosen = super().choose(settings, seen)
        return {**chosen, "learner": "fused", "native_vector_env": False}

    @classmethod
    def _not_fused(cls, settings: TrainerConfig, spaces: EnvSpaces) -> str:
        """Return nothing: the program makes the gradients, of all that `validate_config` allows."""
        return ""

    # ---- where it stands ---------------------------------------------------------------------

    def _inquiry(self) -> Inquiry:
        """Ask nothing that has to be tried: the program's own environments are exact."""
        of = self.settings.environment.model_copy(update={"env_level": "A"})
        return Inquiry(of, False, self.context.remembered, self.context.shared)

    def _make_workers(self, seed: int) -> LaneWorkers:
        self._made: list[tuple[Outcome, int]] = []
        """Rounds that the stack has made and nobody has counted: the outcome, and which of it."""
        shape = self.shape
        key = np.array(rng.derive(seed, "lane").generate_state(2), dtype=np.uint32)
        first = np.array(rng.derive(seed, "lane", "first").generate_state(2), dtype=np.uint32)
        count = shape.num_envs
        own = {
            "key": key,
            "envs": np.asarray(program.begin_episodes(shape, first)),
            "lengths": np.zeros(count, np.int32),
            "returns": np.zeros(count, np.float32),
            "matrices": np.zeros(shape.noise_shape, np.float32),
            "age": np.zeros((), np.int32),
        }

        def changed() -> None:
            self._is_behind = True

        self._own = LaneWorkers(own, changed, self._fetch)
        return self._own

    @property
    def shape(self) -> Shape:
        """The part that is common to all lanes of its stack."""
        of = self.settings
        env = of.environment
        _, limit = environments.KNOWN[str(env.env)]
        rows = of.fragment_size
        return Shape(
            env=str(env.env),
            limit=min(limit, of.envs.horizon or limit),
            num_envs=of.sampling.num_envs_per_worker,
            steps=of.sampling.rollout_fragment_length,
            rounds=max(1, -(-of.iteration.timesteps_per_iteration // rows)),
            hidden=tuple(self.architecture.hidden),
            activation=self.architecture.activation,
            minibatch=min(of.minibatch_size, rows),
            is_filtered=of.filters.observation_filter != "NoFilter",
            spreads_actions=of.sampling.spreads_actions,
            noise_follows_state=of.exploration_config.state_dependent,
        )

    # ---- what it shares with other trainers: fetched when somebody asks -----------------------

    @property
    def policy(self) -> Any:
        """The learnt policy, a `FlatPolicy`."""
        self._fetch()
        return self._policy

    @policy.setter
    def policy(self, made: Any) -> None:
        self._policy: FlatPolicy = made

    @property
    def filters(self) -> dict[str, Any]:
        """The filters' states."""
        self._fetch()
        return self._filters

    @filters.setter
    def filters(self, made: dict[str, Any]) -> None:
        self._filters = made

    @property
    def inference(self) -> InferencePolicy:
        """The acting policy, with the weights learnt so far."""
        self._fetch()
        return self._inference

    @inference.setter
    def inference(self, made: InferencePolicy) -> None:
        self._inference = made

    def _fetch(self) -> None:
        """Let policy, filter and workers hold what the lane has learnt."""
        if not self._is_ahead or self._place is None:
            return
        self._is_ahead = False
        lane = self._stack.take(self._place)
        policy, moments = self._policy, {}
        weights = {name: _turned(name, one) for name, one in lane.weights.items()}
        for name in weights:
            moments[name] = {
                "step": np.float32(lane.updates),
                "exp_avg": _turned(name, lane.first[name]),
                "exp_avg_sq": _turned(name, lane.second[name]),
            }
        kept = moments if lane.updates else {name: {} for name in weights}
        policy.set_state({"weights": weights, "optimizer": kept})
        observed = self._filters["observation"]
        if isinstance(observed, MeanStdFilter):
            observed.set_state(_as_filter_state(lane.seen))
        self._own.held = {name: np.array(getattr(lane, name)) for name in _OWN}
        seen = program.observe(self.shape, self._own.held["envs"])
        self.recent = np.asarray(seen, dtype=self.recent.dtype)
        self._inference.actor.load(policy.acting_weights())

    def _hand_over(self) -> None:
        """Let the lane hold what policy, filter and workers do."""
        if not self._is_behind:
            return
        self._is_behind = self._is_ahead = False
        if self._place is None:
            self._stack, self._place = _reserve(self.shape, self.settings.lanes or 1)
        weights = {name: _turned(name, one) for name, one in self._policy.weights().items()}
        first = {name: np.zeros_like(one) for name, one in weights.items()}
        second = {name: np.zeros_like(one) for name, one in weights.items()}
        updates = 0.0
        for name, kept in self._policy.kept_moments().items():
            if kept:
                updates = float(kept["step"])
                first[name] = _turned(name, kept["exp_avg"])
                second[name] = _turned(name, kept["exp_avg_sq"])
        own = {name: np.array(self._own.held[name]) for name in _OWN}
        seen = _as_counted(self._filters["observation"], self.shape)
        lane = Lane(weights, first, second, np.float32(updates), seen=seen, **own)
        self._stack.put(self._place, self._lane_settings(), lane)

    def _lane_settings(self) -> Settings:
        of = self.settings
        beta1, beta2 = of.optimizer.betas
        values = {
            "gamma": of.gamma,
            "lambda_": of.lambda_,
            "vf_loss_coeff": of.vf_loss_coeff,
            "vf_clip": _or_infinite(of.vf_clip_param),
            "grad_clip": _or_infinite(of.grad_clip),
            "target_kl": _or_infinite(of.target_kl),
            "epochs": of.num_sgd_iter,
            "normalizes": of.normalize_advantages,
            "filter_clip": _or_infinite(of.filters.observation_filter_clip),
            "beta1": beta1,
            "beta2": beta2,
            "eps": of.optimizer.eps,
            "weight_decay": of.optimizer.weight_decay,
            "noise_steps": of.exploration_config.sample_freq,
        }
        return program.settings_of(values)

    # ---- rounds ------------------------------------------------------------------------------

    @property
    def _rates(self) -> Rates:
        """The values of the schedules in each round of the coming iteration."""
        of, shape = self.settings, self.shape
        steps = [self.progress.timesteps + k * shape.rows for k in range(shape.rounds)]
        now = [of.at(one) for one in steps]
        columns = (
            [learning_rate(of.schedule, one) for one in steps],
            [one.clip_param for one in now],
            [one.entropy_coeff for one in now],
        )
        return Rates(*(np.array(column, np.float32) for column in columns))

    def training_step(self) -> dict[str, float]:
        """Count a round that the stack has made; it makes those of an iteration at once."""
        if not self._made:
            advance([self])
        outcome, index = self._made.pop(0)
        if not outcome.is_finite:
            raise NotFiniteError("the loss or its gradient is not finite")
        ended = np.nonzero(outcome.ended[index])
        totals, lengths = outcome.returns[index][ended], outcome.lengths[index][ended]
        episodes = [
            RolloutMetrics(total, length)
            for total, length in zip(totals.tolist(), lengths.tolist(), strict=True)
        ]
        rate = float(learning_rate(self.settings.schedule, self.progress.timesteps))
        self.progress.count(0, self.shape.rows, episodes, {})
        stats = dict(zip(STATS, outcome.stats[index].tolist(), strict=True))
        explained = float(outcome.explained[index])
        if math.isfinite(explained):
            stats["explained_variance"] = explained
        return {**stats, "lr": rate, "grad_norm": float(outcome.norms[index])}

    @classmethod
    def train_together(cls, several: Sequence[Trainable]) -> None:
        """As of every trainable; each then holds the rounds of its next iteration."""
        advance([one for one in several if isinstance(one, LanePPO)])

    def get_state(self) -> dict[str, Any]:
        """As of every trainable; the global streams, from which no lane draws, are as at first."""
        rng.seed_global(self.seed, "global")
        return super().get_state()

    def cleanup(self) -> None:
        """Leave the place to others."""
        if self._place is not None:
            self._stack.release(self._place)
            self._place = None
        super().cleanup()


def _check_read(settings: Config) -> None:
    """Raise ConfigError for a key that no lane reads, unless it has its default."""
    usual = flatten(Config(environment=settings.environment))
    for key, value in flatten(settings).items():
        if key not in _READ and value != usual[key]:
            raise ConfigError(key, value, f"{usual[key]} with lanes")
    for key, value in settings.model:
        default = getattr(usual["model"], key)
        if key not in _READ_OF_MODEL and value != default:
            raise ConfigError(f"model.{key}", value, f"{default} with lanes")


def _check_parts(settings: Config) -> None:
    """Raise ConfigError for an environment, filter or optimiser that is not in the program."""
    known: dict[str, tuple[Any, Collection[str]]] = {
        "env": (settings.environment.env, environments.KNOWN),
        "optimizer.name": (settings.optimizer.name, ("adam",)),
        "observation_filter": (
            settings.filters.observation_filter,
            ("NoFilter", "MeanStdFilter"),
        ),
        "learner": (settings.learner, ("auto", "fused")),
    }
    for key, (value, allowed) in known.items():
        if value not in allowed:
            raise ConfigError(key, value, f"{' or '.join(allowed)} with lanes")
    rows = settings.fragment_size
    if settings.batch_size != rows:
        raise ConfigError("train_batch_size", settings.batch_size, f"null or {rows} with lanes")
    if rows % min(settings.minibatch_size, rows):
        allowed_ = f"a divisor of the batch's {rows} rows with lanes"
        raise ConfigError("sgd_minibatch_size", settings.minibatch_size, allowed_)


def advance(trainers: Sequence[LanePPO]) -> None:
    """Let the lanes of many trainers make their next iteration at once.

    The next `train` of each then returns its result without computing anything.
    """
    by_stack: dict[Stack, list[LanePPO]] = {}
    for trainer in trainers:
        trainer._hand_over()
        by_stack.setdefault(trainer._stack, []).append(trainer)
    for stack, own in by_stack.items():
        rates = {one._place: one._rates for one in own if one._place is not None}
        outcomes = stack.step(rates)
        for one in own:
            if one._place is not None:
                outcome = outcomes[one._place]
                one._made.extend((outcome, index) for index in range(stack.shape.rounds))
                one._is_ahead = True


def _reserve(shape: Shape, width: int) -> tuple[Stack, int]:
    """Return a free place, in a stack that is there or a new one."""
    stacks = _stacks.setdefault((shape, width), [])
    for stack in stacks:
        if (place := stack.reserve()) is not None:
            return stack, place
    stacks.append(Stack(shape, width))
    return _reserve(shape, width)


def _turned(name: str, array: Any) -> Array:
    """Return weights between torch's layout, (outputs, inputs), and the program's."""
    return np.ascontiguousarray(np.asarray(array).T if name.endswith(".weight") else array)


def _or_infinite(bound: float | None) -> float:
    return math.inf if bound is None else bound


def _as_counted(observed: Any, shape: Shape) -> Counted:
    """Return what a filter has counted, as the program counts."""
    features = shape.make_env().features
    if not isinstance(observed, MeanStdFilter) or not observed.counted:
        return Counted(np.float32(0), np.zeros(features, np.float32), np.ones(features, np.float32))
    variance = np.square(observed.std) if observed.counted > 1 else np.zeros(features)
    return Counted(
        np.float32(observed.counted), observed.mean.astype(np.float32), variance.astype(np.float32)
    )


def _as_filter_state(seen: Counted) -> dict[str, Any]:
    """Return what the program has counted, as the state of a `MeanStdFilter`."""
    count, mean = int(seen.count), np.asarray(seen.mean, np.float64)
    m2 = np.asarray(seen.variance, np.float64) * count
    nothing = {"count": 0, "mean": np.zeros_like(mean), "m2": np.zeros_like(mean)}
    return {"base": {"count": count, "mean": mean, "m2": m2}, "delta": nothing}

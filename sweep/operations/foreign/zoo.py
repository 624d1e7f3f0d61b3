"""Convert hyperparameters of rl-baselines3-zoo to settings of our trainers.

Missing hyperparameters get the defaults of Stable-Baselines3.
"""

import ast
import contextlib
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sweep.core import plugins
from sweep.core.errors import BadConfig, UnknownName, UsageError
from sweep.spec import foreign
from trainables.core import legacy_names
from trainables.core.legacy_names import Renamed
from trainables.core.settings import known_keys
from trainables.errors import shorten

#: Defaults of Stable-Baselines3 that its off-policy algorithms for continuous actions share.
_CONTINUOUS: Mapping[str, Any] = {
    "buffer_size": 1_000_000,
    "learning_starts": 100,
    "n_envs": 1,
    "batch_size": 256,
    "tau": 0.005,
    "train_freq": 1,
    "gradient_steps": 1,
    "gamma": 0.99,
}
#: Algorithm → its defaults in Stable-Baselines3.
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "ppo": {
        "learning_rate": 3e-4,
        "n_steps": 2048,
        "batch_size": 64,
        "n_epochs": 10,
        "n_envs": 1,
        "gae_lambda": 0.95,
        "clip_range": 0.2,
        "ent_coef": 0.0,
        "max_grad_norm": 0.5,
        "vf_coef": 0.5,
        "gamma": 0.99,
    },
    "a2c": {
        "learning_rate": 7e-4,
        "n_steps": 5,
        "gae_lambda": 1.0,
        "ent_coef": 0.0,
        "n_envs": 1,
        "vf_coef": 0.5,
        "max_grad_norm": 0.5,
        "gamma": 0.99,
    },
    "dqn": {
        "learning_rate": 1e-4,
        "buffer_size": 1_000_000,
        "learning_starts": 100,
        "n_envs": 1,
        "batch_size": 32,
        "train_freq": 4,
        "gradient_steps": 1,
        "gamma": 0.99,
        "target_update_interval": 10_000,
        "exploration_fraction": 0.1,
        "max_grad_norm": 10.0,
        "exploration_final_eps": 0.05,
    },
    "sac": {"learning_rate": 3e-4, **_CONTINUOUS},
    "td3": {"learning_rate": 1e-3, **_CONTINUOUS},
}
#: Settings with which our DQN equals the one of Stable-Baselines3.
_PLAIN_DQN = {"n_step": 1, "double_q": False, "dueling": False}
#: Keys that are converted elsewhere, follow from the environment or need no setting.
_IGNORED_KEYS = frozenset({"n_timesteps", "policy", "use_rms_prop"})
#: Noise in the file → `type` of ``exploration_config``.
_NOISE = {"normal": "GaussianNoise", "ornstein-uhlenbeck": "OrnsteinUhlenbeckNoise"}
#: Approximate number of results of a trial with short rounds; setting for the steps of one result.
_RESULTS, _STEPS_PER_RESULT = 100, "timesteps_per_iteration"
#: The search range is the learning rate divided and multiplied by this factor; number of trials.
_LR_FACTOR, _TRIALS = 5.0, 16


def convert(
    raw: Mapping[str, Any], file: str, env: str | None, algorithm: str | None
) -> tuple[dict[str, Any], list[str]]:
    """Convert the content of an rl-baselines3-zoo file, for `conversion.convert`.

    `raw` maps environments to hyperparameters, or algorithms to such mappings; `env` and
    `algorithm` choose of them, None if there is only one or the name of the `file` says it. Returns
    the keys of a spec except its name, and notes for the user. The spec searches the learning rate
    alone, from a fifth to five times the given one, which is tried first; the default replaces one
    that cannot be read.

    Raises UsageError if the algorithm is not supported, no environment of the file is chosen, or
    its ``n_timesteps`` is no number of steps.
    """
    kind, raw = _choose_algorithm(raw, file, algorithm)
    if kind not in _DEFAULTS:
        known = ", ".join(_DEFAULTS)
        raise UsageError(f"--algorithm: {kind} is not supported; choose one of {known}")
    raw = {str(name): given for name, given in raw.items()}
    chosen = _choose_environment(raw, env)
    settings = _Settings(kind, {**_DEFAULTS[kind], **raw[chosen]})
    environment, note = _newest_version(env if env not in (None, chosen) else chosen)
    settings.notes += note
    lr = float(settings.config.pop("lr", _DEFAULTS[kind]["learning_rate"]))
    steps = settings.steps
    keys = {
        "trials": _TRIALS,
        "trainable": kind,
        "metric": "episode_reward_mean",
        "mode": "max",
        "config": {"env": environment, **settings.config},
        "space": {
            "lr": {
                "loguniform": [
                    _round_to_2_digits(lr / _LR_FACTOR),
                    _round_to_2_digits(lr * _LR_FACTOR),
                ]
            }
        },
        "initial": [{"lr": lr}],
        "stop": {"timesteps_total": steps},
        "scheduler": {
            "name": "asha",
            "time_attr": "timesteps_total",
            "grace_period": max(1, steps // 9),
            "reduction_factor": 3,
        },
    }
    return keys, settings.notes


def _choose_algorithm(
    raw: Mapping[str, Any], file: str, algorithm: str | None
) -> tuple[str, Mapping[str, Any]]:
    """Return the chosen algorithm's name and its hyperparameters by environment.

    Without `algorithm`, it is the file's name without suffix in lower case, or the only entry.
    Raises UsageError if the file is divided by algorithms, and has none of this name; otherwise the
    name is not checked.
    """
    stem = Path(file).stem.lower()
    if foreign.is_zoo(raw):
        return algorithm or stem, raw
    kind = algorithm or (stem if stem in raw or len(raw) > 1 else str(next(iter(raw))))
    if kind not in raw:
        known = ", ".join(map(str, raw))
        raise UsageError(f"--algorithm: the file has several algorithms; choose one of {known}")
    return kind, raw[kind]


def _choose_environment(raw: Mapping[str, Any], env: str | None) -> str:
    """Return the key of the file for the environment `env`, by default the only one.

    For an Atari game, this may be ``atari``. Raises UsageError if `env` is None and the file has
    several, UnknownName if it has no such environment.
    """
    names = [name for name in raw if "n_timesteps" in raw[name]]
    if env is None and len(names) == 1:
        return names[0]
    if env in names:
        return str(env)
    if env is not None and "NoFrameskip" in env and "atari" in names:
        return "atari"
    if env is None:
        raise UsageError(
            f"--env: the file has several environments; choose one of {', '.join(names)}"
        )
    raise UnknownName("environment in the file", env, names)


def _newest_version(env: str) -> tuple[str, list[str]]:
    """Return the id of an environment, or of its newest version if gymnasium no longer has it.

    If gymnasium knows no version, the id is returned unchanged. The list has a sentence for the
    user about the replacement, or is empty.
    """
    import gymnasium
    from gymnasium.envs import registration

    with contextlib.suppress(gymnasium.error.Error, ValueError):
        gymnasium.spec(env)
        return env, []
    with contextlib.suppress(gymnasium.error.Error, ValueError, AttributeError):
        namespace, name, _ = registration.parse_env_id(env)
        newest = registration.find_highest_version(namespace, name)
        if newest is not None:
            made = f"{env.rpartition('-v')[0]}-v{newest}"
            return made, [f"gymnasium no longer has {env}; {made} is its newest version."]
    return env, []


def _round_to_2_digits(number: float) -> float:
    """Return a number rounded to two significant digits."""
    return float(f"{number:.2g}")


class _Settings:
    """The settings of our trainer for one environment's hyperparameters in the zoo.

    A method ``_take_KEY`` converts the key ``KEY``; any other with a number or boolean is copied
    under our name for it. `notes` name those that were not converted. Raises BadConfig if
    ``n_timesteps`` is no number of steps.
    """

    def __init__(self, kind: str, raw: Mapping[str, Any]) -> None:
        cls: Any = plugins.trainables().find(kind)
        self.known = known_keys(cls.config_class)
        self.given = dict(raw)
        self.steps = _steps(raw["n_timesteps"])
        self.config: dict[str, Any] = dict(_PLAIN_DQN) if kind == "dqn" else {}
        self.notes: list[str] = []
        self._off_policy = "replay_batch_size" in self.known
        left = [
            f"{key}: {shorten(value)}"
            for key, value in self.given.items()
            if key not in _IGNORED_KEYS and not self._take(key, value)
        ]
        if left:
            self.notes.append(f"Not converted: {'; '.join(left)}.")
        self._group_rounds()

    def _group_rounds(self) -> None:
        """Set `timesteps_per_iteration` so that a trial reports about `_RESULTS` results.

        Nothing is set if a round of sampling and learning is long enough to be reported by itself,
        or the algorithm has no such setting.
        """
        fragment = int(self.config.get("rollout_fragment_length", self.steps))
        # A file may say 0, which the check of the new spec reports.
        of_a_round = max(1, fragment * int(self.config.get("num_envs_per_worker", 1)))
        rounds = -(-self.steps // (_RESULTS * of_a_round))
        if rounds > 1 and _STEPS_PER_RESULT in self.known:
            self.config[_STEPS_PER_RESULT] = rounds * of_a_round

    def _take(self, key: str, value: Any) -> bool:
        """Convert one hyperparameter into `config`.

        Returns false if our trainer has no equivalent, or the value is neither number nor boolean
        where no ``_take_KEY`` reads it. A value of None without an equivalent is ignored: true.
        """
        own: Callable[[Any], bool] | None = getattr(self, f"_take_{key}", None)
        if own is not None:
            return own(value)
        found = legacy_names.find_entry(key, self.known)
        today = found.new_name if isinstance(found, Renamed) else key
        number = _number(value)
        if today not in self.known or (number is None and not isinstance(value, bool)):
            return value is None
        self.config[today] = value if isinstance(value, bool) else number
        return True

    def _set_exploration(self, **settings: Any) -> bool:
        """Add `settings` to `exploration_config`; return false if the algorithm has no such key."""
        if "exploration_config" not in self.known:
            return False
        self.config.setdefault("exploration_config", {}).update(settings)
        return True

    def _take_learning_rate(self, value: Any) -> bool:
        """Set `lr` and its schedule.

        Returns false if the value is no number and no linear schedule.
        """
        return self._set_with_schedule(value, "lr", "lr_schedule")

    def _take_clip_range(self, value: Any) -> bool:
        """Set `clip_param`, PPO's clip range, and its schedule.

        Returns false if the value is no number and no linear schedule, or without `clip_param`.
        """
        return self._set_with_schedule(value, "clip_param", "clip_param_schedule")

    def _set_with_schedule(self, value: Any, key: str, schedule: str) -> bool:
        """Set `key` to a number, and `schedule` to ``linear`` for a value such as ``lin_0.0003``.

        Returns false if the value is neither, or our trainer does not have `key`.
        """
        number = _number(str(value).removeprefix("lin_"))
        if number is None or key not in self.known:
            return False
        self.config[key] = number
        if str(value).startswith("lin_"):
            self.config[schedule] = "linear"
        return True

    def _take_ent_coef(self, value: Any) -> bool:
        """Set `entropy_coeff` and its schedule, or off-policy `initial_alpha` and `learn_alpha`.

        With ``auto_0.1`` alpha starts at 0.1 and is learned, with ``0.1`` it is fixed; ``auto``
        sets nothing. Returns false if the trainer lacks the key, or the value cannot be read.
        """
        if not self._off_policy:
            return self._set_with_schedule(value, "entropy_coeff", "entropy_coeff_schedule")
        if value == "auto":
            return True
        number = _number(str(value).removeprefix("auto_"))
        if number is None or "initial_alpha" not in self.known:
            return False
        self.config["initial_alpha"] = number
        if not str(value).startswith("auto"):
            self.config["learn_alpha"] = False
        return True

    def _take_normalize(self, value: Any) -> bool:
        """Set `observation_filter` and `normalize_rewards` as in ``VecNormalize``.

        The value is a boolean, or the keywords of ``VecNormalize`` as a mapping or Python code.
        Nothing is set if it is false or None. Returns false if it cannot be read.
        """
        said = _literal(value) if isinstance(value, str) else value
        if said is False or value is None:
            return True
        chosen = {} if said is True else said
        if not isinstance(chosen, Mapping):
            return False
        if chosen.get("norm_obs", True):
            self.config["observation_filter"] = "MeanStdFilter"
        if chosen.get("norm_reward", True):
            self.config["normalize_rewards"] = True
        return True

    def _take_policy_kwargs(self, value: Any) -> bool:
        """Set `hidden` and `activation` in `model`; the file's value may be Python code.

        The sizes are those of the policy if the value network has others. Returns false if the
        value cannot be read. A note names its other keys.
        """
        kwargs = _literal(value) if isinstance(value, str) else value
        if not isinstance(kwargs, Mapping):
            return False
        model: dict[str, Any] = {}
        net = kwargs.get("net_arch")
        net = net[0] if isinstance(net, list) and net and isinstance(net[0], Mapping) else net
        sizes = net.get("pi") if isinstance(net, Mapping) else net
        if isinstance(sizes, list) and sizes:
            model["hidden"] = sizes
        activation = str(kwargs.get("activation_fn", "")).rpartition(".")[2].lower()
        if activation:
            model["activation"] = activation
        if model:
            self.config["model"] = model
        left = [key for key in kwargs if key not in ("net_arch", "activation_fn", "ortho_init")]
        if left:
            self.notes.append(f"Not converted from policy_kwargs: {', '.join(map(str, left))}.")
        return True

    def _take_train_freq(self, value: Any) -> bool:
        """Set `rollout_fragment_length`, the environment steps between two updates.

        Returns false if the value is no number.
        """
        number = _number(value)
        if number is None:
            return False
        self.config["rollout_fragment_length"] = int(number)
        return True

    def _take_gradient_steps(self, value: Any) -> bool:
        """Set `updates_per_step`, the gradient steps per update.

        A negative value means one for each environment step of the round: train_freq * n_envs.
        Returns false if the value is no number.
        """
        number = _number(value)
        if number is not None and number < 0:
            steps, envs = map(_number, (self.given.get("train_freq"), self.given.get("n_envs")))
            number = (steps or 1) * (envs or 1)
        if number is None:
            return False
        self.config["updates_per_step"] = int(number)
        return True

    def _take_target_update_interval(self, value: Any) -> bool:
        """Set `target_network_update_freq`, the steps between two updates.

        Without ``tau`` in the file and the defaults, `tau` becomes None: the network is copied as a
        whole. Returns false if the value is no number.
        """
        number = _number(value)
        if number is None:
            return False
        self.config["target_network_update_freq"] = int(number)
        if "tau" not in self.given:
            self.config["tau"] = None
        return True

    def _take_exploration_fraction(self, value: Any) -> bool:
        """Set `epsilon_timesteps`, the steps over which epsilon falls: `value` of all steps.

        Returns false if the value is no number, or the algorithm has no exploration options.
        """
        share = _number(value)
        if share is None:
            return False
        return self._set_exploration(epsilon_timesteps=max(1, round(share * self.steps)))

    def _take_exploration_initial_eps(self, value: Any) -> bool:
        """Set epsilon at the start.

        Returns false if the value is no number, or the algorithm has no exploration options.
        """
        return self._set_epsilon("initial_epsilon", value)

    def _take_exploration_final_eps(self, value: Any) -> bool:
        """Set epsilon at the end.

        Returns false if the value is no number, or the algorithm has no exploration options.
        """
        return self._set_epsilon("final_epsilon", value)

    def _set_epsilon(self, key: str, value: Any) -> bool:
        """Set a key of `exploration_config` to a number.

        Returns false if the value is no number, or the algorithm has no exploration options.
        """
        number = _number(value)
        return number is not None and self._set_exploration(**{key: float(number)})

    def _take_noise_type(self, value: Any) -> bool:
        """Set `type` and `stddev` of `exploration_config`, 0.1 if the file has no deviation.

        Returns false if the noise is neither normal nor Ornstein-Uhlenbeck, or for other trainers
        than TD3.
        """
        kind = _NOISE.get(str(value))
        if kind is None or "target_noise" not in self.known:
            return False
        return self._set_exploration(type=kind, stddev=_number(self.given.get("noise_std")) or 0.1)

    def _take_noise_std(self, _value: Any) -> bool:
        """Return true if `_take_noise_type` converts the noise, which includes its deviation."""
        return self.given.get("noise_type") in _NOISE and "target_noise" in self.known

    def _take_use_sde(self, value: Any) -> bool:
        """Set state-dependent exploration if requested. Returns false if the trainer lacks it."""
        return not value or ("target_noise" not in self.known and self._set_state_dependent_noise())

    def _set_state_dependent_noise(self) -> bool:
        """Set state-dependent exploration noise, and after how many steps it is drawn again.

        Returns false for DQN and algorithms without exploration options.
        """
        more = _number(self.given.get("sde_sample_freq"))
        freq = {"sample_freq": int(more)} if more and more > 0 else {}
        if "double_q" in self.known:  # DQN
            return False
        return self._set_exploration(type="StateDependentNoise", **freq)

    def _take_sde_sample_freq(self, _value: Any) -> bool:
        """Return true, since `_take_use_sde` converts it."""
        return True

    def _take_frame_stack(self, _value: Any) -> bool:
        """Return true if the file sets AtariWrapper, with which our trainers stack frames, too."""
        return "AtariWrapper" in str(self.given.get("env_wrapper"))

    def _take_env_wrapper(self, value: Any) -> bool:
        """Return true if all wrappers are AtariWrapper, which our trainers include."""
        wrappers = value if isinstance(value, list) else [value]
        return all(str(one).endswith("AtariWrapper") for one in wrappers)


def _steps(value: Any) -> int:
    """Return the number of environment steps of ``n_timesteps``.

    Raises BadConfig if the value is no number, or below 1.
    """
    number = _number(value)
    if number is None or number < 1:
        raise BadConfig("n_timesteps", value, "a number of environment steps, at least 1")
    return int(number)


def _number(value: Any) -> int | float | None:
    """Return a number, also one written as text; None if the value is no finite number.

    A boolean is no number. A whole number becomes an int, except that a float between -1000 and
    1000 stays a float.
    """
    if isinstance(value, bool) or value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    if not math.isfinite(number):
        return None
    whole = not isinstance(value, float) or abs(number) >= 1000
    return int(number) if whole and number == int(number) else number


def _literal(text: str) -> Any:
    """Return the value of Python code like ``dict(net_arch=[64], activation_fn=nn.ReLU)``.

    Nothing is executed; a name such as ``nn.ReLU`` becomes a text, a tuple a list. Returns None if
    the code is more than literals, dicts and names, or nests too deep.
    """
    try:
        return _evaluate(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None


def _evaluate(node: ast.expr) -> Any:
    """Return the value of parsed Python code; a name such as ``nn.ReLU`` becomes a text.

    Raises ValueError if the code is neither a literal, a dict nor a name, and TypeError if a key of
    a dict is a list or dict.
    """
    match node:
        case ast.Call(func=ast.Name("dict"), args=[]):
            return {one.arg: _evaluate(one.value) for one in node.keywords}
        case ast.Dict():
            keys = [_evaluate(key) for key in node.keys if key is not None]
            return dict(zip(keys, map(_evaluate, node.values), strict=True))
        case ast.List() | ast.Tuple():
            return [_evaluate(one) for one in node.elts]
        case ast.Attribute() | ast.Name():
            return ast.unparse(node)
    return ast.literal_eval(node)

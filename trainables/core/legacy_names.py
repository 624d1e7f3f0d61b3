"""Keys of other trainers or older versions, and the key or advice that replaces them today.

There is one table per origin. Only the message for an unknown key reads them: the old names are no
aliases. An entry is either a `Renamed` key, which exists today, or a sentence of advice.
"""

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from trainables.errors import nearest


@dataclass(frozen=True)
class Renamed:
    """A setting of other trainers or older versions that exists here under another name."""

    new_name: str
    """Name of the setting here, dotted if it is nested."""
    note: str = ""
    """Difference in meaning or values; empty if only the name differs."""

    def __str__(self) -> str:
        text = f"use {self.new_name} instead"
        return f"{text}; {self.note}" if self.note else text


#: Renamed key, or the reason for which a key does not exist here.
Entry = Renamed | str

#: Reason for keys of TensorFlow.
_TENSORFLOW = "it is for TensorFlow, but this trainer uses torch; remove the key"
#: Reason for keys of stopping criteria.
_STOP = (
    "this is not a setting of the trainer; call train() that many times, or write stop: in "
    "the spec of a sweep"
)
#: Reason for keys of folders.
_CONTEXT = (
    "this is not a setting, because results and checkpoints are stored in the trial's folder; "
    "remove the key"
)

#: Keys of older versions of this trainer.
OLDER: Mapping[str, Entry] = {
    "sample_batch_size": Renamed("rollout_fragment_length"),
    "batch_steps": Renamed("rollout_fragment_length"),
    "adam_epsilon": Renamed("optimizer.eps"),
    "pack_episodes": Renamed("batch_mode"),
    "num_envs": Renamed("num_envs_per_worker"),
    "lambda": Renamed("lambda_", "lambda is a reserved word of Python"),
    "use_gae": "advantages are always estimated with GAE; for plain returns, set lambda_: 1.0",
    "env_name": Renamed("env"),
    "policy_graphs": Renamed("multiagent", "list the policies in multiagent.policies"),
    "gpu": Renamed("num_gpus", "write num_gpus: 0 or num_gpus: 1"),
    "gpu_fraction": Renamed("num_gpus", "write the fraction there, such as num_gpus: 0.5"),
    "use_gpu_for_workers": Renamed("num_gpus_per_worker", "write num_gpus_per_worker: 1"),
    "num_cpus": Renamed("num_cpus_for_driver"),
    "resources": Renamed(
        "num_cpus_for_driver", "write one key for each resource, such as num_cpus_per_worker"
    ),
    "compute_apply": "this is not a setting; call the method learn_on_batch",
    "import_policy_model_from_h5": (
        "this is not a setting; to read weights from a safetensors file, call "
        "import_policy_weights(path)"
    ),
    "as_remote": Renamed("num_workers", "the trainer itself starts that many child processes"),
    "eager": _TENSORFLOW,
    "eager_tracing": _TENSORFLOW,
    "no_eager_on_workers": _TENSORFLOW,
    "framework": "this trainer always uses torch; remove the key",
    "use_pytorch": "this trainer always uses torch; remove the key",
}

#: Keys of RLlib's newer API.
RLLIB: Mapping[str, Entry] = {
    "num_env_runners": Renamed("num_workers"),
    "num_rollout_workers": Renamed("num_workers"),
    "num_envs_per_env_runner": Renamed("num_envs_per_worker"),
    "num_cpus_per_env_runner": Renamed("num_cpus_per_worker"),
    "num_gpus_per_env_runner": Renamed("num_gpus_per_worker"),
    "custom_resources_per_env_runner": Renamed("custom_resources_per_worker"),
    "num_cpus_for_main_process": Renamed("num_cpus_for_driver"),
    "num_cpus_for_local_worker": Renamed("num_cpus_for_driver"),
    "num_gpus_per_learner": Renamed("num_gpus"),
    "train_batch_size_per_learner": Renamed("train_batch_size"),
    "minibatch_size": Renamed("sgd_minibatch_size"),
    "num_epochs": Renamed("num_sgd_iter"),
    "lr_schedule_timesteps": Renamed("schedule_timesteps"),
    "kl_target": Renamed("target_kl", "no further epoch begins once it is exceeded"),
    "evaluation_duration": Renamed("evaluation_num_episodes"),
    "evaluation_num_env_runners": Renamed("evaluation_num_workers"),
    "recreate_failed_env_runners": Renamed("recreate_failed_workers"),
    "restart_failed_env_runners": Renamed("recreate_failed_workers"),
    "ignore_env_runner_failures": Renamed("ignore_worker_failures"),
    "max_num_env_runner_restarts": Renamed("max_worker_restarts"),
    "max_num_worker_restarts": Renamed("max_worker_restarts"),
    "sample_timeout": Renamed("sample_timeout_s"),
    "metrics_num_episodes_for_smoothing": Renamed("metrics_smoothing_episodes"),
    "use_critic": "the critic is part of the algorithm; remove the key",
}

#: Keys that all algorithms of Stable-Baselines3 share.
STABLE_BASELINES_COMMON: Mapping[str, Entry] = {
    "use_sde": Renamed("exploration_config", "set exploration_config.type to StateDependentNoise"),
    "sde_sample_freq": Renamed("exploration_config", "set exploration_config.sample_freq"),
    "log_std_init": Renamed("exploration_config", "set exploration_config.log_std_init"),
    "normalize": Renamed(
        "observation_filter", "set it to MeanStdFilter, and normalize_rewards for rewards"
    ),
    "use_rms_prop": Renamed("optimizer", "set optimizer.name to rmsprop"),
    "rms_prop_eps": Renamed("optimizer", "set optimizer.eps"),
    "env_wrapper": Renamed(
        "env", "name a function that returns the wrapped environment, as package.module:function"
    ),
    "frame_stack": Renamed("model.framestack"),
}

#: Keys of Stable-Baselines3.
STABLE_BASELINES: Mapping[str, Entry] = {
    "n_steps": Renamed("rollout_fragment_length"),
    "batch_size": Renamed("sgd_minibatch_size", "it is the number of rows of a minibatch"),
    "n_epochs": Renamed("num_sgd_iter"),
    "clip_range": Renamed("clip_param"),
    "clip_range_vf": Renamed("vf_clip_param"),
    "ent_coef": Renamed("entropy_coeff"),
    "vf_coef": Renamed("vf_loss_coeff"),
    "gae_lambda": Renamed("lambda_"),
    "learning_rate": Renamed("lr"),
    "max_grad_norm": Renamed("grad_clip"),
    "n_envs": Renamed("num_envs_per_worker"),
    **STABLE_BASELINES_COMMON,
    "normalize_advantage": Renamed("normalize_advantages"),
    "policy_kwargs": Renamed("model", "set model.hidden and model.activation"),
    "net_arch": Renamed("model.hidden"),
    "activation_fn": Renamed("model.activation"),
    "use_lstm": Renamed("model.use_lstm"),
    "lstm_cell_size": Renamed("model.lstm_cell_size"),
    "lstm_hidden_size": Renamed("model.lstm_cell_size"),
    "max_seq_len": Renamed("model.max_seq_len"),
    "optimizer_kwargs": Renamed("optimizer"),
    "env_kwargs": Renamed("env_config"),
    "stats_window_size": Renamed("metrics_smoothing_episodes"),
    "eval_freq": Renamed("evaluation_interval", "it counts iterations"),
    "n_eval_episodes": Renamed("evaluation_num_episodes"),
    "norm_obs": Renamed("observation_filter", "MeanStdFilter"),
    "norm_reward": Renamed("normalize_rewards"),
    "n_timesteps": _STOP,
    "total_timesteps": _STOP,
    "tensorboard_log": _CONTEXT,
    "device": Renamed("num_gpus", "0 is the CPU, 1 a GPU"),
    "policy": Renamed("model", "the policy follows from the environment's spaces"),
    "verbose": "train() returns the results and sweep run shows them; remove the key",
}

#: Keys of Stable-Baselines3's DQN, SAC and TD3 that mean something else in its PPO and A2C.
OFF_POLICY: Mapping[str, Entry] = {
    "batch_size": Renamed(
        "replay_batch_size", "it is the number of transitions that one update learns from"
    ),
    "gradient_steps": Renamed("updates_per_step"),
    "train_freq": Renamed(
        "rollout_fragment_length", "it is the number of steps between two rounds of updates"
    ),
    "target_update_interval": Renamed(
        "target_network_update_freq",
        "it counts environment steps; to copy the networks, set tau to null",
    ),
    "ent_coef": Renamed(
        "initial_alpha",
        "it is the initial temperature; to keep it constant, set learn_alpha to false",
    ),
    "action_noise": Renamed(
        "exploration_config",
        "set exploration_config.type to GaussianNoise or OrnsteinUhlenbeckNoise, and its stddev",
    ),
    "noise_type": Renamed(
        "exploration_config",
        "set exploration_config.type to GaussianNoise or OrnsteinUhlenbeckNoise",
    ),
    "noise_std": Renamed("exploration_config", "set exploration_config.stddev"),
    "exploration_fraction": Renamed(
        "exploration_config",
        "set exploration_config.epsilon_timesteps, which counts environment steps",
    ),
    "exploration_initial_eps": Renamed(
        "exploration_config", "set exploration_config.initial_epsilon"
    ),
    "exploration_final_eps": Renamed("exploration_config", "set exploration_config.final_epsilon"),
    "target_policy_noise": Renamed("target_noise"),
    "n_steps": Renamed("n_step"),
    "replay_buffer_class": Renamed("prioritized_replay", "set it to true or false"),
    "replay_buffer_kwargs": Renamed(
        "prioritized_replay", "write one key for each argument, such as prioritized_replay_alpha"
    ),
    "optimize_memory_usage": "no observation is stored twice; remove the key",
}

#: Keys of CleanRL.
CLEANRL: Mapping[str, Entry] = {
    "env_id": Renamed("env"),
    "num_steps": Renamed("rollout_fragment_length"),
    "num_minibatches": Renamed(
        "sgd_minibatch_size",
        "it is the number of rows of one minibatch, which is the batch size divided by "
        "num_minibatches",
    ),
    "update_epochs": Renamed("num_sgd_iter"),
    "clip_coef": Renamed("clip_param"),
    "clip_vloss": Renamed("vf_clip_param", "it is a bound, not a switch"),
    "anneal_lr": Renamed("lr_schedule", "linear"),
    "norm_adv": Renamed("normalize_advantages"),
    "torch_deterministic": "training is always exact on the CPU; remove the key",
    "cuda": Renamed("num_gpus", "0 is the CPU, 1 a GPU"),
    "track": (
        "this is not a setting of the trainer; write trackers: [mlflow] in the spec of a sweep"
    ),
    "capture_video": Renamed("record_env"),
    "save_model": "this is not a setting; call the method save() or export_model()",
    "exp_name": _CONTEXT,
}

#: Dotted keys of nested sections.
NESTED: Mapping[str, Entry] = {
    "model.fcnet_hiddens": Renamed("model.hidden"),
    "model.fcnet_activation": Renamed("model.activation"),
    "model.net_arch": Renamed("model.hidden"),
    "model.activation_fn": Renamed("model.activation"),
    "model.lstm_hidden_size": Renamed("model.lstm_cell_size"),
    "optimizer.epsilon": Renamed("optimizer.eps"),
    "optimizer.adam_epsilon": Renamed("optimizer.eps"),
    "optimizer.lr": Renamed(
        "lr", "the learning rate is not part of optimizer, because schedules change it"
    ),
    "optimizer.type": Renamed("optimizer.name"),
    "multiagent.policy_graphs": "use multiagent.policies instead",
}

#: All tables. If several know a name, the first one wins whose key the trainer has today.
TABLES = (NESTED, OLDER, RLLIB, OFF_POLICY, STABLE_BASELINES, CLEANRL)


RESULTS: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *("episode_return_mean", "env_runners/episode_return_mean", "episode_return"),
            *("env_runners/episode_reward_mean", "rollout/ep_rew_mean", "ep_rew_mean"),
            *("charts/episodic_return", "episodic_return", "mean_reward", "reward", "return"),
            *("episode_reward", "reward_mean", "score"),
        ),
        "episode_reward_mean",
    ),
    **dict.fromkeys(
        ("eval/mean_reward", "eval/mean_ep_reward", "evaluation/env_runners/episode_return_mean"),
        "evaluation/episode_reward_mean",
    ),
    **dict.fromkeys(
        ("rollout/ep_len_mean", "ep_len_mean", "charts/episodic_length", "episode_len"),
        "episode_len_mean",
    ),
    **dict.fromkeys(
        (
            *("timesteps", "total_timesteps", "time/total_timesteps", "n_timesteps", "steps"),
            *("num_env_steps_sampled_lifetime", "num_env_steps_sampled", "global_step"),
            *("timestep_total", "env_steps"),
        ),
        "timesteps_total",
    ),
    **dict.fromkeys(
        ("training_iterations", "iterations", "iteration", "time/iterations", "epoch", "epochs"),
        "training_iteration",
    ),
    **dict.fromkeys(("episodes", "num_episodes_lifetime"), "episodes_total"),
    **dict.fromkeys(("time", "time_s", "time_elapsed", "time/time_elapsed"), "time_total_s"),
}
"""Name of a result in other trainers → name of the same result here."""


def nearest_results(name: str, results: Collection[str]) -> list[str]:
    """Return up to three of `results` that a user may have meant by the unknown result `name`.

    First comes the result that other trainers call `name`, then those with the same part after the
    last ``/``, then those with similar names.
    """
    same = [RESULTS[name]] if RESULTS.get(name) in results else []
    close = difflib.get_close_matches(name, sorted(results), n=3, cutoff=0.6)
    last = [one for one in sorted(results) if one.rpartition("/")[2] == name.rpartition("/")[2]]
    return list(dict.fromkeys([*same, *last, *close]))[:3]


VALUES: Mapping[tuple[str, str], str] = {
    ("batch_mode", "pack_episodes"): "use truncate_episodes instead",
}
"""(dotted setting, value of other trainers or older versions) → advice for the error message."""


def refused_value_advice(place: str, value: object) -> str:
    """Return advice for the error about a setting whose value was refused; empty if there is none.

    `place` is the dotted name of the setting, `value` what the user wrote.
    """
    return VALUES.get((place, value), "") if isinstance(value, str) else ""


def find_entry(place: str, keys: Collection[str]) -> Entry | None:
    """Return what the tables of old names say about an unknown setting, or None if they do not.

    That is a `Renamed`, or advice as text. For a `place` without a dot, a `Renamed` whose new name
    is not among the trainer's `keys` is skipped. `place` is the dotted name that the user wrote.
    """
    found = (table[place] for table in TABLES if place in table)
    return next((one for one in found if isinstance(one, str) or _fits(one, place, keys)), None)


def _fits(entry: Renamed, place: str, keys: Collection[str]) -> bool:
    """Return whether `keys` has the new name's first part; always true if `place` is dotted."""
    return "." in place or entry.new_name.partition(".")[0] in keys


def unknown_key_advice(place: str, keys: list[str]) -> str:
    """Return advice for the error about an unknown setting, whose dotted name is `place`.

    It says the setting's new name if a table has one; else that this algorithm lacks a setting
    which other trainers have; else the most similar of `keys`; else all `keys`.
    """
    if found := find_entry(place, keys):
        return str(found)
    if any(place in table for table in TABLES):
        return "this algorithm has no such setting; remove the key"
    near = nearest(place.rpartition(".")[2], keys).removeprefix("; ")
    return near or (f"expected one of {', '.join(keys)}" if keys else "")

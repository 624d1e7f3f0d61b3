"""Settings in which a checkpoint and its trainer must agree, and the handling of differences.

A rollout worker can continue only in a trainer that collects as the saved one did. If, for example,
the number of workers differs, `Trainer.restore` begins new episodes, and later checkpoints say that
the curve is inexact. Filters belong to the policy, so another filter is refused. On a processor
that rounds differently the trial continues, and its checkpoints and results say so.
"""

import copy
import logging
from collections.abc import Mapping
from typing import Any

from trainables.core import rounding
from trainables.errors import ConfigError
from trainables.offline.config import source_name

logger = logging.getLogger(__name__)

#: Keys about the collection of experience; with other values workers cannot restore their state.
COLLECTING = (
    "num_workers",
    "num_envs_per_worker",
    "batch_mode",
    "data_parallel",
    "input",
    "native_vector_env",
    "env_engine",
    "remote_worker_envs",
    "synchronize_filters",
    "lanes",
)
#: Keys about what the policy sees and learns from.
FILTERING = (
    *("observation_filter", "normalize_rewards", "action_mask"),
    *("connectors", "normalize_actions"),
)
#: Keys that determine the weights of a policy, and the state of its exploration and optimiser.
SHAPING = ("model", "exploration_config.type", "optimizer.name")
#: Keys in which trials agree when one starts from the other's checkpoint.
FIXED = frozenset(
    (
        *(*COLLECTING, "restore", *FILTERING, *SHAPING),
        *(f"multiagent.policies.*.{key}" for key in FILTERING + SHAPING),
    )
)

#: Reason for a trial that continues where the last bits of sums may differ.
ROUNDS_OTHERWISE = "where a processor, or libraries, round otherwise"
#: Filters with equal states.
_ALIKE = {"ConcurrentMeanStdFilter": "MeanStdFilter"}


def collection_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a checkpoint's entry ``collected``: the settings of `COLLECTING` and `FILTERING`.

    They are key → value, copied; None for a key that `config`, a trainer's flat settings, lacks,
    but ``connectors`` and ``observation_filter`` must be there. Functions become their names, so
    all is plain data.
    """
    kept = {key: copy.deepcopy(config.get(key)) for key in COLLECTING + FILTERING}
    kept["connectors"] = list(config["connectors"])
    if callable(kept["input"]):
        kept["input"] = source_name(kept["input"])
    return {**kept, "observation_filter": _filter_name(config["observation_filter"])}


def changed_settings(
    checkpoint: Mapping[str, Any], present: Mapping[str, Any]
) -> dict[str, tuple[Any, Any]]:
    """Return key of `COLLECTING` → (value in the checkpoint, value now), where they differ.

    `present` is this trainer's `collection_settings`. Keys that the checkpoint lacks, and ``lanes``
    of two different numbers, do not count.
    """
    was = checkpoint["collected"]
    return {
        key: (was[key], present[key])
        for key in COLLECTING
        if key in was and was[key] != present[key] and not _are_lanes(key, was[key], present[key])
    }


def check(checkpoint: Mapping[str, Any], present: Mapping[str, Any]) -> None:
    """Raise ConfigError if a trainer cannot continue with a checkpoint's workers or filters.

    The error names the first setting that differs; `present` is this trainer's
    `collection_settings`. A checkpoint without workers may have been collected in another way, and
    settings that the checkpoint lacks are not compared.
    """
    was = checkpoint["collected"]
    for key in FILTERING:
        if key in was and _filter_family(was[key]) != _filter_family(present[key]):
            why = (
                "the policy was trained with that filter and would choose other actions with "
                "another"
            )
            raise ConfigError.of_checkpoint(key, present[key], was[key], why)
    if checkpoint["workers"]:  # the trainer of one of several policies has no workers
        why = "each worker continues its own episodes"
        undo = "call Trainer.restore(path), which begins new episodes instead"
        for key, (before, value) in changed_settings(checkpoint, present).items():
            raise ConfigError.of_checkpoint(key, value, before, why, undo)


def inexact_reasons(checkpoint: Mapping[str, Any], in_torch: bool) -> str:
    """Return why the curve of a trainer that continues from this checkpoint is not exact.

    The text has the checkpoint's own reasons, and a new one, which is logged, if this machine
    rounds differently; it is empty if the curve is exact. `in_torch` is True if torch computes a
    part of it.
    """
    before = str(checkpoint.get("inexact", ""))
    here = rounding.fingerprint(in_torch)
    rounds_equally = rounding.is_compatible(checkpoint.get("rounding", here), here)
    if rounds_equally or ROUNDS_OTHERWISE in before:
        return before
    steps = int(checkpoint["progress"]["timesteps"])
    return log_inexactness(checkpoint, f"restored after {steps} steps {ROUNDS_OTHERWISE}")


def log_inexactness(checkpoint: Mapping[str, Any], reason: str, remark: str = "") -> str:
    """Log a warning that the curve is no longer exact for this reason.

    `remark` is put into the warning. Returns the reasons in the checkpoint's entry ``inexact``, if
    it has one, and this one, joined by "; ".
    """
    logger.warning("%s; %sthe curve is no longer exact", reason, remark)
    before = checkpoint.get("inexact")
    return f"{before}; {reason}" if before else reason


def describe_changes(changes: Mapping[str, tuple[Any, Any]], timesteps: int) -> str:
    """Return a text about settings that changed after `timesteps` environment steps.

    `changes` are those of `changed_settings`; the text is the reason for an inexact curve.
    """
    listed = ", ".join(f"{key}: {now} (saved with {was})" for key, (was, now) in changes.items())
    return f"restored after {timesteps} steps with {listed}"


def _are_lanes(key: str, *values: Any) -> bool:
    """Return whether `key` is ``lanes`` and no value is None; such values may differ.

    A trial can continue in a compiled program with more or fewer others.
    """
    return key == "lanes" and None not in values


def _filter_name(kind: Any) -> str:
    """Return a filter's name as it is, or ``module:name`` of a class or function that makes it."""
    if isinstance(kind, str):
        return kind
    return f"{getattr(kind, '__module__', '')}:{getattr(kind, '__qualname__', type(kind).__name__)}"


def _filter_family(kind: Any) -> Any:
    """Return one name for kinds of filters that can load each other's states.

    Anything else, such as another setting's value, is returned unchanged.
    """
    return _ALIKE.get(kind, kind) if isinstance(kind, str) else kind

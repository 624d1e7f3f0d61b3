"""Which settings a checkpoint and its trainer must agree in, and what becomes of one that does not.

A rollout worker goes on where it was only in a trainer that collects as the saved one did. With
another number of workers, for example, there is nobody to go on: `Trainer.restore` then begins new
episodes, and the checkpoint says from there on that the curve is inexact. Filters belong to the
policy, so another one is refused. Where another processor rounds otherwise, the trial goes on, and
its checkpoints and results say so.
"""

import copy
import logging
from collections.abc import Mapping
from typing import Any

from trainables.core import rounding
from trainables.errors import ConfigError
from trainables.offline.config import name_of
from trainables.policies.filters import KINDS

logger = logging.getLogger(__name__)

#: Keys that say how experience is collected: worker states of other values fit no worker.
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
#: Keys that say what the policy sees and learns from.
FILTERING = (
    *("observation_filter", "normalize_rewards", "action_mask"),
    *("connectors", "normalize_actions"),
)

#: Said of a trial that goes on where its sums may come out otherwise in their last bits.
ROUNDS_OTHERWISE = "where a processor, or libraries, round otherwise"
#: Filters with equal states.
_ALIKE = {"ConcurrentMeanStdFilter": "MeanStdFilter"}


def described(config: Mapping[str, Any]) -> dict[str, Any]:
    """The entry of a checkpoint that says how a trainer with these settings collected."""
    kept = {key: copy.deepcopy(config.get(key)) for key in COLLECTING + FILTERING}
    kept["connectors"] = list(config["connectors"])
    if callable(kept["input"]):
        kept["input"] = name_of(kept["input"])
    return {**kept, "observation_filter": _filter_name(config["observation_filter"])}


def changed(checkpoint: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Key of `COLLECTING` → what it was and what it is, where these differ.

    `now` is what this trainer writes (`described`).
    """
    was = _saved(checkpoint, now)
    return {key: (was[key], now[key]) for key in COLLECTING if key in was and was[key] != now[key]}


def check(checkpoint: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse a checkpoint whose workers or filters a trainer that writes `now` cannot go on with.

    Raises:
        ConfigError: names the first setting that is not as in the checkpoint.
    """
    was = _saved(checkpoint, now)
    for key in FILTERING:
        if key in was and _alike(was[key]) != _alike(now[key]):
            why = "the policy has learnt with that one, and would choose other actions"
            raise ConfigError(key, now[key], f"{was[key]}, as in the checkpoint", why)
    if checkpoint["workers"]:  # one of several policies has none of its own
        why = "each worker goes on where it was; Trainer.restore(path) begins new episodes instead"
        for key, (before, value) in changed(checkpoint, now).items():
            raise ConfigError(key, value, f"{before}, as in the checkpoint", why)


def why_inexact(checkpoint: Mapping[str, Any], in_torch: bool) -> str:
    """Why a trainer that goes on from this checkpoint has no exact curve; empty: it has one.

    `in_torch` says whether torch computes a part of it.
    """
    before = str(checkpoint.get("inexact", ""))
    here = rounding.fingerprint(in_torch)
    alike = rounding.is_compatible(checkpoint.get("rounding", here), here)
    if alike or ROUNDS_OTHERWISE in before:
        return before
    steps = int(checkpoint["progress"]["timesteps"])
    return no_longer_exact(checkpoint, f"restored after {steps} steps {ROUNDS_OTHERWISE}")


def no_longer_exact(checkpoint: Mapping[str, Any], why: str, besides: str = "") -> str:
    """The reasons of the checkpoint why its curve is not exact, and this one, which is logged.

    `besides` is what else the log is to say.
    """
    logger.warning("%s; %sthe curve is no longer exact", why, besides)
    before = checkpoint.get("inexact")
    return f"{before}; {why}" if before else why


def in_words(changes: Mapping[str, tuple[Any, Any]], timesteps: int) -> str:
    """Why a curve is no longer exact, for the log, the checkpoints and the results."""
    listed = ", ".join(f"{key}: {now} (saved with {was})" for key, (was, now) in changes.items())
    return f"restored after {timesteps} steps with {listed}"


def _saved(checkpoint: Mapping[str, Any], now: Mapping[str, Any]) -> Mapping[str, Any]:
    """The entry `described`; of a checkpoint without one, what its workers and filters show."""
    if "collected" in checkpoint:
        collected: Mapping[str, Any] = checkpoint["collected"]
        return collected
    found: dict[str, Any] = {"normalize_rewards": "reward" in checkpoint["filters"]}
    kinds: dict[tuple[str, ...], str] = {(): "NoFilter", ("base", "delta"): "MeanStdFilter"}
    kind = kinds.get(tuple(sorted(checkpoint["filters"]["observation"])))
    if kind and now["observation_filter"] in KINDS:  # one's own may have any state
        found["observation_filter"] = kind
    states = checkpoint["workers"]
    alive = [state for state in states if state is not None]
    in_children = len(states) > 1 or any("untold" in one or "minibatch" in one for one in alive)
    found["num_workers"] = len(states) if in_children else 0
    if alive:
        sampler = alive[0]["sampler"]
        found["num_envs_per_worker"] = len(sampler["episodes"]["counts"])
        whole = "in_flight" in sampler
        found["batch_mode"] = "complete_episodes" if whole else "truncate_episodes"
        found["data_parallel"] = "minibatch" in alive[0]
        found["synchronize_filters"] = "filters" not in alive[0]
    return found


def _filter_name(kind: Any) -> str:
    """A filter's name, or the path of what makes it."""
    if isinstance(kind, str):
        return kind
    return f"{getattr(kind, '__module__', '')}:{getattr(kind, '__qualname__', type(kind).__name__)}"


def _alike(kind: Any) -> Any:
    return _ALIKE.get(kind, kind) if isinstance(kind, str) else kind

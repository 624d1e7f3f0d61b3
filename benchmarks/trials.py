"""Single trials on this machine's GPU, beside the same without what is special there, and peers.

Rates are environment steps per second of wall time, updates included, after a warm-up in which
libraries choose their algorithms and steps are captured. Each side learns with the same networks,
batches and numbers of updates. Stable-Baselines3 is measured where it is installed.
`benchmarks.gpu` calls this module.
"""

import importlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from benchmarks.speed.measures.networks import Pictures
from trainables.algorithms.dqn import DQN
from trainables.algorithms.ppo import PPO
from trainables.algorithms.sac import SAC
from trainables.algorithms.td3 import TD3
from trainables.core import devices
from trainables.trainable import TrialContext
from trainables.trainer.trainer import Trainer

PICTURES = f"{Pictures.__module__}:{Pictures.__name__}"
#: Environment steps before the first update of off-policy algorithms.
LEARNING_STARTS = 64
#: Iterations of ours, and updates of both, before a measurement.
WARM_UP = 8
PEER = "stable_baselines3"
#: Name of a variant → its settings of ours, in the order in which all cases are measured.
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "ours": {"num_gpus": 1},
    PEER: {},
    "ours as before": {"num_gpus": 1, "graphs": "off", "act_on": "cpu"},
    "ours without graphs": {"num_gpus": 1, "graphs": "off"},
    "ours acting on the cpu": {"num_gpus": 1, "act_on": "cpu"},
    "ours on the cpu": {"num_gpus": 0},
}


@dataclass(frozen=True)
class Case:
    """One kind of trial."""

    trainer: type[Trainer]
    """Our algorithm; the peer's has the same name."""
    config: Mapping[str, Any]
    """Our settings."""
    peer: Mapping[str, Any]
    """The peer's arguments."""
    warm_up: int
    """Environment steps of the peer before a measurement."""


def cases(tiny: bool = False) -> dict[str, Case]:
    """Return the trials by name; `tiny` ones have small networks and batches, for tests."""
    wide, usual = ([16, 16], [16]) if tiny else ([1024, 1024, 512], [256, 256])
    filters = [[4, 8, 8]] if tiny else None
    pictures: dict[str, Any] = {"hidden": [16] if tiny else [512], "conv_filters": filters}
    steps, rows = (4, 16) if tiny else (64, 256)
    learning = {"learning_starts": LEARNING_STARTS, "buffer_size": 10_000}
    found = {
        "ppo, Nature network on pictures": _ppo(PICTURES, pictures, steps, 4, rows),
        "ppo, 1024-1024-512": _ppo("CartPole-v1", {"hidden": wide}, 2 * steps, 10, rows),
        "dqn, Nature network on pictures": Case(
            DQN,
            {
                **learning,
                "env": PICTURES,
                "model": pictures,
                "num_envs_per_worker": 1,
                "rollout_fragment_length": 4,
                "updates_per_step": 1,
                "replay_batch_size": 32,
                "n_step": 1,
                "double_q": False,
                "tau": None,
                "lr": 1e-4,
                "target_network_update_freq": 1000,
            },
            {"buffer_size": 10_000, "train_freq": 4, "batch_size": 32},
            LEARNING_STARTS + 4 * WARM_UP,
        ),
    }
    for name, of in (("sac", SAC), ("td3", TD3)):
        config = {"env": "Pendulum-v1", "model": {"hidden": usual}, "replay_batch_size": rows}
        found[f"{name}, 256-256"] = Case(
            of,
            {**learning, **config},
            {"batch_size": rows, "policy_kwargs": {"net_arch": usual}},
            LEARNING_STARTS + WARM_UP,
        )
    return found


def _ppo(env: str, model: Mapping[str, Any], steps: int, epochs: int, rows: int) -> Case:
    """Return PPO with 8 environments, and so many steps of each, epochs and rows of minibatches."""
    config = {
        "env": env,
        "model": dict(model),
        "num_envs_per_worker": 8,
        "lr": 2.5e-4,
        "rollout_fragment_length": steps,
        "num_sgd_iter": epochs,
        "sgd_minibatch_size": rows,
    }
    peer: dict[str, Any] = {"n_steps": steps, "n_epochs": epochs, "batch_size": rows}
    if env != PICTURES:
        peer["policy_kwargs"] = {"net_arch": list(model["hidden"])}
    return Case(PPO, config, peer, 2 * 8 * steps)


def our_speed(
    case: Case,
    settings: Mapping[str, Any],
    seconds: float,
    warmed_up: Callable[[], object] = lambda: None,
) -> float:
    """Return our steps per second.

    Args:
        seconds: wall time of the measurement, at least one iteration.
        warmed_up: called before the measurement.
    """
    trainer = case.trainer({**case.config, **settings}, TrialContext(seed=0))
    off_policy = case.trainer is not PPO
    for _ in range(WARM_UP + LEARNING_STARTS if off_policy else 2):
        trainer.train()

    warmed_up()

    def iterate() -> int:
        before = trainer.progress.timesteps
        trainer.train()
        return trainer.progress.timesteps - before

    found = _per_second(iterate, seconds)
    trainer.stop()
    return found


def peer_speed(case: Case, device: str, seconds: float) -> float:
    """Return the steps per second of Stable-Baselines3's algorithm of the same name.

    Args:
        device: torch's name of the device.
        seconds: wall time of the measurement, at least one call of ``learn``.
    """
    peers = importlib.import_module(PEER)
    util = importlib.import_module(f"{PEER}.common.env_util")
    env, more = case.config["env"], dict(case.peer)
    made: Callable[..., Any] | str = Pictures if env == PICTURES else env
    environments = util.make_vec_env(made, n_envs=case.config.get("num_envs_per_worker", 1))
    if case.trainer is not PPO:
        more["learning_starts"] = LEARNING_STARTS
    policy = "CnnPolicy" if env == PICTURES else "MlpPolicy"
    kind = getattr(peers, case.trainer.__name__)
    model = kind(policy, environments, device=device, seed=0, **more)
    model.learn(case.warm_up)
    whole = 8 * case.peer["n_steps"] if case.trainer is PPO else 100

    def iterate() -> int:
        before = model.num_timesteps
        model.learn(whole, reset_num_timesteps=False)
        return int(model.num_timesteps - before)

    return _per_second(iterate, seconds)


def _per_second(iterate: Callable[[], int], seconds: float) -> float:
    """Return the steps per second of `iterate`, which returns its steps, in one call or more."""
    began = time.perf_counter()
    steps = iterate()
    while (took := time.perf_counter() - began) < seconds:
        steps += iterate()
    return steps / took


def measured(seconds: float, tiny: bool = False) -> Iterator[tuple[str, str, Any]]:
    """Measure all trials; yield name, variant, and steps per second or why there are none.

    Variants follow one another in the order of `VARIANTS`; without a GPU there is one of ours.

    Args:
        seconds: wall time of each measurement, without warm-up.
        tiny: True for small networks and batches.
    """
    accelerator = devices.accelerator()
    for variant, settings in VARIANTS.items():
        if settings.get("num_gpus") and not accelerator:
            continue
        for name, case in cases(tiny).items():
            if variant != PEER:
                yield name, variant, _tried(our_speed, case, settings, seconds)
            elif find_spec(PEER) is None:
                yield name, PEER, "not installed"
            else:
                yield name, PEER, _tried(peer_speed, case, accelerator or "cpu", seconds)


def _tried(measure: Callable[..., float], *given: Any) -> Any:
    """Return a speed, rounded, and the seconds it took; or the error, so that others follow."""
    began = time.perf_counter()
    try:
        speed = measure(*given)
    except Exception as error:  # noqa: BLE001 a figure that fails must not cost the others
        return f"{type(error).__name__}: {error}"
    took = time.perf_counter() - began
    sys.stderr.write(f"{speed:,.0f} steps per second, measured in {took:.1f} s\n")
    return {"steps_per_s": round(speed, 1), "took_s": round(took, 1)}

"""Random specs, failures and requests: all schedulers, most searchers, small numbers."""

import errno
from typing import Any

from hypothesis import strategies as st

from benchmarks.chaos.scheduling_way import Failure
from sweep.ledger.requests import Verb

Spec = dict[str, Any]
Request = tuple[Verb, dict[str, Any]]

_TRAINABLES = "benchmarks.chaos.scheduling_walk"
#: An infinite space, and one with six points.
_WIDE = {"x": {"uniform": [0.1, 1.0]}, "y": {"uniform": [0.1, 1.0]}}
_SMALL = {"x": {"choice": [0.2, 0.5, 0.8]}, "y": {"choice": [1.0, 2.0]}}
#: A space for which the prior has games.
_KNOWN = {**_WIDE, "lr": {"loguniform": [1e-5, 1e-2]}}
#: Schedulers that pause trials.
_PAUSING = ("asha", "hyperband", "bohb", "pbt", "pb2")
#: Schedulers whose trials may get further seeds on the rungs.
_CLIMBING = ("asha", "hyperband", "bohb")

_RUNGS = st.fixed_dictionaries({"grace_period": st.just(1), "reduction_factor": st.integers(2, 3)})
_OPTIONS: dict[str, st.SearchStrategy[Spec]] = {
    "fifo": st.just({}),
    "asha": st.builds(
        lambda rungs, kind, best: {**rungs, "type": kind, "finish_best": best},
        _RUNGS,
        st.sampled_from(["promotion"]),
        st.integers(0, 2),
    ),
    "asha stopping": _RUNGS.map(lambda rungs: {**rungs, "type": "stopping"}),
    "hyperband": st.fixed_dictionaries({"reduction_factor": st.integers(2, 3)}),
    "bohb": st.fixed_dictionaries({"reduction_factor": st.integers(2, 3)}),
    "median": st.just({"n_startup_trials": 1}),
    "percentile": st.just({"n_startup_trials": 1, "percentile": 50.0}),
    "patient": st.just({"patience": 1}),
    "threshold": st.just({"lower": 0.5, "n_warmup_steps": 2}),
    "optuna": st.just({"pruner": "MedianPruner", "n_startup_trials": 1}),
    "pbt": st.fixed_dictionaries(
        {"perturbation_interval": st.integers(1, 2), "synch": st.booleans()}
    ).map(lambda options: {**options, "quantile_fraction": 0.5}),
    "pb2": st.fixed_dictionaries({"perturbation_interval": st.integers(1, 2)}).map(
        lambda options: {**options, "quantile_fraction": 0.5}
    ),
}
#: Name → options of the searcher, and space.
_SEARCHERS: dict[str, tuple[Spec, Spec]] = {
    "random": ({}, _WIDE),
    "tpe": ({"n_startup_trials": 2}, _WIDE),
    "tpe of other games": ({"n_startup_trials": 2, "prior": ["ppo/Pendulum-v1"]}, _KNOWN),
    "random of other games": ({"prior": ["ppo/CartPole-v1", "ppo/Pendulum-v1"]}, _KNOWN),
    "cmaes": ({"population_size": 4}, _WIDE),
    "nsga2": ({"population_size": 3}, _WIDE),
    "qmc": ({}, _WIDE),
    "grid": ({}, _SMALL),
    "brute_force": ({}, _SMALL),
    "random of few": ({}, _SMALL),
}


def _mostly(usual: Any, *others: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from([usual, usual, usual, *others])


#: Number of environment steps that replaces an iteration, and options that count iterations.
_STEPS = 12
_COUNTED = ("grace_period", "interval", "n_warmup_steps", "perturbation_interval")
_FIRST = {"asha": "grace_period", "hyperband": "grace_period", "bohb": "grace_period"}


def _in_steps(spec: Spec) -> Spec:
    """Return a spec that counts environment steps, of which trials report unequal numbers."""
    scheduler = {"interval": 1, **spec["scheduler"], "time_attr": "timesteps_total"}
    if (name := scheduler["name"]) in _PAUSING:
        del scheduler["interval"]
    scheduler |= {_FIRST[name]: 1} if name in _FIRST else {}
    counted = {key: _STEPS * scheduler[key] for key in _COUNTED if key in scheduler}
    stop = {**spec["stop"], "timesteps_total": _STEPS * spec["stop"]["training_iteration"]}
    changed = {"scheduler": {**scheduler, **counted}, "stop": stop}
    config = spec[
        "config"
    ]  # an iteration has 33 steps at most, so that the metric is reported before the end
    every = min(config["evaluate_every"], max(1, stop["timesteps_total"] // 33))
    changed["config"] = {**config, "even": False, "evaluate_every": every}
    if isinstance(plan := spec["seeds"], dict):
        changed["seeds"] = {_STEPS * level: seeds for level, seeds in plan.items()}
    if "timesteps" in spec["budget"]:
        changed["budget"] = {"timesteps": 2.0 * stop["timesteps_total"]}
    return {**spec, **changed}


@st.composite
def specs(draw: st.DrawFn) -> Spec:
    """Draw the keys of a valid spec."""
    kind = draw(st.sampled_from(sorted(_OPTIONS)))
    name = kind.split()[0]
    saves = name in _PAUSING or draw(_mostly(True, False))
    searcher = "bohb" if name == "bohb" else draw(st.sampled_from(sorted(_SEARCHERS)))
    options, space = _SEARCHERS.get(searcher, ({}, _WIDE))
    most = draw(st.integers(3, 6))
    spec: Spec = {
        "name": "drawn",
        "trainable": f"{_TRAINABLES}:{'Walk' if saves else 'WalkWithoutSaving'}",
        "trials": draw(st.integers(2, 6)),
        "metric": "score",
        "mode": draw(st.sampled_from(["max", "min"])),
        "seed": draw(st.integers(0, 3)),
        "config": {
            "nan_every": draw(_mostly(0, 0, 7)),
            "raise_every": draw(_mostly(0, 0, 0, 23)),
            "evaluate_every": draw(_mostly(1, 2, 3)),
            "between": draw(st.sampled_from(["none", "nan", "absent"])),
            "even": True,
        },
        "space": space,
        "stop": {"training_iteration": most},
        "searcher": {"name": searcher.split()[0], **options},
        "scheduler": {"name": name, **draw(_OPTIONS[kind])},
        "checkpoint": {
            "every": draw(_mostly(1, 2, 9)),
            "keep_last": draw(st.integers(1, 3)),
            "keep_best": draw(st.integers(0, 1)),
            "max_disk": draw(_mostly(None, 15_000)),
        },
        "limits": {
            "slice_s": draw(_mostly(30.0, 0.4, 2.0)),
            "max_failures": draw(st.integers(0, 3)),
            "fail_fast": None,  # a resumed sweep would continue
            "not_finite": draw(_mostly("continue", "prune", "fail")),
        },
        "budget": draw(_mostly({}, {"timesteps": 10.0 * most}, {"time_s": 3.0}, {"target": 0.9})),
        "deterministic": draw(st.sampled_from([None, {"batch": 1}, {"batch": 3}])),
        "trackers": [],
        "seeds": 1,
    }
    if kind in _CLIMBING and draw(st.booleans()):
        plans: list[Any] = ["auto", {most: 2}, {most: 3}]
        plans += [{1: 2}, {1: 2, most: 3}] if name == "asha" else []
        spec["seeds"] = draw(st.sampled_from(plans))
    elif name not in ("pbt", "pb2") or draw(st.booleans()):
        spec["seeds"] = draw(_mostly(1, 2, 3))
    return _in_steps(spec) if name != "fifo" and draw(st.booleans()) else spec


def failures() -> st.SearchStrategy[Failure]:
    """Return a strategy of failures of a slice."""
    soon = st.integers(1, 4)
    places = st.sampled_from(["stepping", "checkpoint half written", "checkpoint whole"])
    return st.one_of(
        st.builds(Failure, dies=soon),
        st.builds(Failure, dies=soon, dies_at=places),
        st.builds(Failure, raises=soon),
        st.builds(
            Failure,
            refused=st.integers(1, 4),
            errno=st.sampled_from([errno.ENOSPC, errno.EIO, errno.EDQUOT]),
        ),
        st.builds(Failure, deaf=soon),
        st.just(Failure(cold=True)),
    )


def requests() -> st.SearchStrategy[Request]:
    """Return a strategy of requests to a running sweep."""
    trials = st.lists(st.integers(0, 6), max_size=2)
    x = st.sampled_from([0.2, 0.5, 0.8])
    sets: list[Spec] = [{"trials": 3}, {"trials": 7}, {"jobs": 1}, {"jobs": 4}]
    sets += [{"budget": {"timesteps": 90.0}}, {"budget": {"timesteps": None}}]
    return st.one_of(
        st.tuples(
            st.sampled_from([Verb.STOP, Verb.PAUSE, Verb.UNPAUSE]),
            trials.map(lambda numbers: {"trials_named": numbers}),
        ),
        st.builds(
            lambda trial, x, begins: (
                Verb.CLONE,
                {"trials_named": [trial], "settings": {"x": x}, "from_checkpoint": begins},
            ),
            st.integers(0, 6),
            x,
            st.booleans(),
        ),
        st.sampled_from(sets).map(lambda body: (Verb.SET, body)),
    )

"""Cases of the comparison, and the ratios that are to be reached."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Side:
    """One program that measures: ours, a peer's, or a limit written by hand."""

    name: str
    module: str
    """Of `benchmarks.speed.measures`."""
    arguments: tuple[str, ...] = ()
    group: str | None = None
    """Of `peers.PINS`; None: our own environment."""
    root: str | None = None
    """Checkout whose packages are measured; None: this one."""


@dataclass(frozen=True)
class Case:
    """Ours against one other."""

    name: str
    title: str
    unit: str
    ours: Side
    other: Side
    at_least: float
    """The ratio to reach: of a rate ours divided by the other, of a time as `more_is_better`."""
    more_is_better: bool = True
    """True if the figures are rates; of times the ratio says how often the other's ours takes, or,
    against a peer, how often ours the peer's takes (`against_peer`)."""
    against_peer: bool = True
    only_drawn: bool = False
    """True if it is a point of a picture and no row: a third of the pairs is enough."""
    why: str = ""
    """Why it is not reached, where it is not."""

    def ratio(self, ours: float, other: float) -> float:
        """Return the speed-up over a peer; of a limit, the share (rates) or multiple (times)."""
        if self.more_is_better:
            return ours / other
        return other / ours if self.against_peer else ours / other

    def reached(self, ratio: float) -> bool:
        """Return whether the ratio is at least, or of a time against a limit at most, the goal."""
        limit = not self.more_is_better and not self.against_peer
        return ratio <= self.at_least if limit else ratio >= self.at_least


@dataclass(frozen=True)
class Curve:
    """Cost against size: a panel of the picture."""

    title: str
    size: str
    """The unit of the sizes."""
    unit: str
    points: tuple[tuple[int, Case], ...]
    """(size, case)."""
    other: str = ""
    """The other side of all points; empty if it has no curve of its own."""


def _checkpoint(what: str, parameters: int, goal: float = 0.0, why: str = "") -> Case:
    sizes = {1_000: "1k parameters", 9_155: "64x64", 100_000: "100k parameters"}
    size = sizes.get(parameters, f"{parameters // 10**6}M parameters")
    numbers = (what, str(parameters))
    return Case(
        f"checkpoint-{what}-{parameters}",
        f"checkpoint, {size}: {what}, against raw bytes",
        "ms",
        Side("sweep", "checkpoint_ours", numbers),
        Side("raw bytes", "raw_bytes", numbers),
        goal,
        more_is_better=False,
        against_peer=False,
        only_drawn=not goal,
        why=why,
    )


def _start(name: str, title: str, goal: float, why: str = "") -> Case:
    return Case(
        f"start-{name}",
        title,
        "s",
        Side("sweep", "command", (name,)),
        Side("import torch", "command", ("import-torch",)),
        goal,
        more_is_better=False,
        against_peer=False,
        why=why,
    )


#: Why sampling is slower than environments alone.
ACTS = "the policy acts, and every step is checked"


def _sampling(
    envs: int, kind: str, goal: float = 0.0, env: str = "CartPole-v1", why: str = ""
) -> Case:
    limit = "the shortest loop by hand" if env == "CartPole-v1" else "the environments alone"
    of = (env, str(envs), kind)
    return Case(
        f"sampling-{env}-{envs}-{kind}",
        f"sampling {env} x {envs}, {kind}, against {limit}",
        RATE,
        Side("sweep", "sampling", ("ours", *of)),
        Side(limit, "sampling", ("limit", *of)),
        goal,
        against_peer=False,
        only_drawn=not goal,
        why=why,
    )


def _networks(kind: str, what: str, goal: float) -> Case:
    contrib = kind == "lstm"
    return Case(
        f"networks-{kind}",
        f"PPO with {what}, update included",
        "steps per CPU second",
        Side("sweep", "networks_ours", (kind,)),
        Side("sb3-contrib" if contrib else "Stable-Baselines3", "networks_sb3", (kind,), "sb3"),
        goal,
    )


def _off_policy(kind: str, what: str, peer: str, goal: float, why: str = "") -> Case:
    library = "sbx" if peer == "SBX" else "stable_baselines3"
    group = "sbx" if peer == "SBX" else "sb3"
    return Case(
        f"{kind}-{group}",
        f"{what}, updates included",
        "steps per CPU second",
        Side("sweep", "off_policy_ours", (kind,)),
        Side(peer, "off_policy_peer", (library, kind), group),
        goal,
        why=why,
    )


def _trial(number: int, goal: float = 0.0) -> Case:
    return Case(
        f"trial-{number}",
        f"our own cost of trial number {number:,}, against that of number 100",
        "ms of CPU",
        Side("sweep", "engine_cost", ("trial", str(number))),
        Side("at number 100", "engine_cost", ("trial", "100")),
        goal,
        more_is_better=False,
        against_peer=False,
        only_drawn=not goal,
    )


def _event(sweep: str, many: int, title: str) -> Case:
    """Return the case of an event's cost after many trials, against few with the same events."""
    return Case(
        f"event-{sweep}-{many}",
        f"our own cost of an event after {many:,} trials, {title}, against that after 1,000",
        "ms of CPU",
        Side("sweep", "engine_cost", (sweep, str(many))),
        Side("after 1,000", "engine_cost", (sweep, "1000")),
        1.3,
        more_is_better=False,
        against_peer=False,
    )


def _look(what: str, command: str, title: str, goal: float) -> Case:
    return Case(
        f"look-{what}-{command}",
        f"{title}, from the shell, against import torch",
        "s",
        Side("sweep", "looking", (what, command)),
        Side("import torch", "command", ("import-torch",)),
        goal,
        more_is_better=False,
        against_peer=False,
    )


def _slots(slots: int) -> Case:
    return Case(
        f"slots-{slots}",
        f"16 settings x 25,600 steps in {slots} slots, from the shell, beside one slot",
        "s",
        Side("sweep", "sweep_ours", ("25600", str(slots))),
        Side("one slot", "sweep_ours", ("25600", "1")),
        0.0,
        more_is_better=False,
        only_drawn=True,
    )


def _memory(of: str) -> Case:
    return Case(
        f"memory-{of}",
        f"memory of the {of} of a sweep of PPO, at most, against import torch",
        "MB",
        Side("sweep", "memory", (of,)),
        Side("import torch", "memory", ("import-torch",)),
        1.3,
        more_is_better=False,
        against_peer=False,
    )


RATE = "steps per CPU second"
OURS = Side("sweep", "ppo_ours")
#: The rows of the table.
CASES = (
    Case(
        "ppo-sb3",
        "PPO on CartPole, tuned, update included",
        RATE,
        OURS,
        Side("Stable-Baselines3", "ppo_sb3", ("stable_baselines3",), group="sb3"),
        4.5,
    ),
    Case(
        "ppo-sbx",
        "the same, beside the peer's like on JAX, compiled before the clock starts",
        RATE,
        OURS,
        Side("SBX", "ppo_sb3", ("sbx",), group="sbx"),
        3.5,
    ),
    Case(
        "ppo-rllib",
        "the same, beside RLlib",
        RATE,
        OURS,
        Side("RLlib", "ppo_rllib", group="ray"),
        10.0,
        why="torch's products, with which RLlib learns, are faster on an Intel Xeon",
    ),
    Case(
        "ppo-rejax",
        "the same, beside training and environments compiled as one program, compiling left out",
        RATE,
        OURS,
        Side("rejax", "ppo_rejax", group="rejax"),
        1.0,
        why="each of its steps, of the environment too, is compiled code; ours are calls of numpy",
    ),
    Case(
        "ppo-rejax-compiled",
        "the same with our steps compiled (make kernels)",
        RATE,
        Side("sweep, learner: compiled", "ppo_ours", ('{"learner": "compiled"}',)),
        Side("rejax", "ppo_rejax", group="rejax"),
        1.0,
        why="environments and acting are still calls of numpy",
    ),
    Case(
        "ppo-torch",
        "the same, the learner that is chosen beside the one in torch",
        RATE,
        OURS,
        Side("sweep, learner: torch", "ppo_ours", ('{"learner": "torch"}',)),
        2.8,
        why="torch's products are faster on an Intel Xeon",
    ),
    _networks("perceptron", "two perceptrons of 256-256 on CartPole", 1.5),
    _networks("lstm", "an LSTM of 64 units on CartPole", 2.0),
    _networks("cnn", "the Nature network on pictures (84, 84, 4)", 1.3),
    _off_policy(
        "dqn",
        "DQN on CartPole, 256-256",
        "Stable-Baselines3",
        3.0,
        why="half of an update are four products of matrices, no faster in numpy than in torch; on "
        "an Intel Xeon it was 3.48",
    ),
    _off_policy("dqn", "the same, beside the peer's like on JAX", "SBX", 1.4),
    _off_policy("sac", "SAC on Pendulum, 256-256", "Stable-Baselines3", 1.2),
    _off_policy("sac", "the same, beside the peer's like on JAX", "SBX", 1.0),
    Case(
        "ppo-475-sb3",
        "training to a greedy return of 475, mean of 20 seeds",
        "s",
        Side("sweep", "learnt_ours"),
        Side("Stable-Baselines3", "learnt_sb3", group="sb3"),
        4.0,
        more_is_better=False,
    ),
    Case(
        "sweep16-sb3",
        "16 settings x 51,200 steps, 2 slots, from the shell",
        "s",
        Side("sweep", "sweep_ours"),
        Side("Optuna + Stable-Baselines3", "sweep_optuna_sb3", group="sb3"),
        3.5,
        more_is_better=False,
        why="half of a slice is not learning, most of it sampling (see the table below)",
    ),
    Case(
        "sweep16-ray",
        "the same",
        "s",
        Side("sweep", "sweep_ours"),
        Side("Ray Tune + RLlib", "sweep_tune_rllib", group="ray"),
        9.0,
        more_is_better=False,
    ),
    Case(
        "two-slots",
        "16 settings x 51,200 steps in two slots on two cores, from the shell, beside one on one",
        "s",
        Side("sweep", "sweep_ours", ("51200", "2")),
        Side("one slot on one core", "sweep_ours", ("51200", "1", "1")),
        1.9,
        more_is_better=False,
        why="a process is started for each slot, and one slot is idle at the end",
    ),
    Case(
        "slots-busy",
        "16 settings x 51,200 steps: share of two slots' time in which a slice runs, from the "
        "first slice to the last",
        "of 1",
        Side("sweep", "sweep_slots", ("busy",)),
        Side("all of it", "fixed", ("1",)),
        0.97,
        against_peer=False,
        why="one slot is idle while the other trains the last setting",
    ),
    Case(
        "slots-outside",
        "the same: time of a slice that is not spent in iterations, median, against 60 ms",
        "ms",
        Side("sweep", "sweep_slots", ("outside",)),
        Side("to reach", "fixed", ("60",)),
        1.0,
        more_is_better=False,
        against_peer=False,
        why="half of the 200 iterations are a new best, which is copied; each is a result",
    ),
    Case(
        "cartpole64",
        "sweep run cartpole_ppo --trials 64 --jobs 2, against itself with a learner in torch",
        "s",
        Side("sweep", "cartpole64"),
        Side("before", "fixed", ("61.5",)),
        2.5,
        more_is_better=False,
        why="the 61.5 s are of a machine on which it takes 19.9 s",
    ),
    _memory("driver"),
    _memory("worker"),
    _trial(5_000, 1.3),
    _trial(50_000, 1.3),
    *(
        _event(sweep, many, title)
        for sweep, title in (
            ("asha", "promotions of asha"),
            ("seeds", "asha with seeds: auto"),
        )
        for many in (5_000, 50_000)
    ),
    Case(
        "proposal-tpe-50000",
        "a proposal of tpe with a window of 500 after 50,000 trials",
        "ms of CPU",
        Side("sweep", "proposal", ("50000", "500")),
        Side("tpe without a window after 5,000", "proposal", ("5000", "null")),
        3.0,
        more_is_better=False,
    ),
    *(
        _look("long", command, f"`sweep {command}` of 5,000 trials with 500,000 results", 1.0)
        for command in ("status", "results", "best")
    ),
    *(
        _look("ten", command, f"`sweep {command}` beside ten sweeps", 0.35)
        for command in ("ls", "status")
    ),
    Case(
        "trivial-ray",
        "300 trivial trials, everything recorded, whole command, 2 slots",
        "trials per second",
        Side("sweep", "trivial_ours"),
        Side("Ray Tune, reused actors, no tracker", "trivial_ray", group="ray"),
        4.0,
        why="a command with one such trial takes 1.2 of the 3.9 s; a trial costs the driver 6 ms "
        "of CPU, for the ledger and the tables of MLflow and Optuna; on an Intel Xeon it was 4.35",
    ),
    _start(
        "first-iteration",
        "shell to the first iteration of PPO, against import torch",
        1.4,
        why="gymnasium, joblib and the models of the settings take half a second beside torch",
    ),
    _start("trivial-run", "sweep run of one trivial trial, against import torch", 1.6),
    _checkpoint(
        "save", 9_155, 2.5, why="collecting the state and two digests of each byte outweigh 0.1 MB"
    ),
    _checkpoint("save", 10_000_000, 1.15),
    Case(
        "checkpoint-restore-small",
        "checkpoint, 64x64: restore, against 1.5 ms",
        "ms",
        Side("sweep", "checkpoint_ours", ("restore", "9155")),
        Side("to reach", "fixed", ("1.5",)),
        1.0,
        more_is_better=False,
        against_peer=False,
        why="a time, which differs between machines; on an Intel Xeon it was 1.44 ms",
    ),
    _checkpoint("restore", 10_000_000, 1.2),
    *(
        _sampling(
            envs,
            kind,
            goal,
            why="a call of the policy checks and counts what the loop does not",
        )
        for kind, goals in (
            ("NoFilter", (0.5, 0.8, 0.8, 0.8)),
            ("MeanStdFilter", (0.4, 0.65, 0.7, 0.7)),
        )
        for envs, goal in zip((1, 8, 64, 256), goals, strict=True)
    ),
    *(
        _sampling(8, "NoFilter", 0.7, env, why=why)
        for env, why in {
            "LunarLander-v3": "one action makes steps cheaper than several, by up to a quarter",
            "Acrobot-v1": ACTS,
            "Pendulum-v1": ACTS,
            "HalfCheetah-v5": ACTS,
        }.items()
    ),
    Case(
        "sampling-LunarLander-v3-8-drawn",
        "sampling LunarLander-v3 x 8, NoFilter, against the environments alone, with actions that "
        "were drawn before",
        RATE,
        Side("sweep", "sampling", ("ours", "LunarLander-v3", "8", "NoFilter")),
        Side("the environments alone", "sampling", ("drawn", "LunarLander-v3", "8", "NoFilter")),
        0.7,
        against_peer=False,
        why=ACTS,
    ),
)
_NAMED = {one.name: one for one in CASES}


def _point(case: Case) -> Case:
    """The row of the table that measures the same, if there is one."""
    return _NAMED.get(case.name, case)


#: The panels of the picture.
CURVES = (
    Curve(
        "Sampling CartPole",
        "environments",
        RATE,
        tuple((n, _point(_sampling(n, "NoFilter"))) for n in (1, 4, 8, 16, 64, 256, 1_024)),
        other="loop by hand",
    ),
    Curve(
        "Our own cost of a trial",
        "trials before it",
        "CPU ms",
        tuple((n, _point(_trial(n))) for n in (10, 100, 1_000, 5_000, 50_000)),
    ),
    *(
        Curve(
            f"Checkpoint: {what}",
            "parameters",
            "ms",
            tuple(
                (n, _point(_checkpoint(what, n)))
                for n in (1_000, 9_155, 100_000, 1_000_000, 10_000_000)
            ),
            other="raw bytes",
        )
        for what in ("save", "restore")
    ),
    Curve(
        "16 settings x 25,600 steps",
        "slots",
        "s, from the shell",
        tuple((n, _point(_slots(n))) for n in (1, 2, 3, 4)),
    ),
)
#: All that is measured: the rows, then the points that are no rows.
ALL = (
    *CASES,
    *{
        case.name: case for curve in CURVES for _, case in curve.points if case not in CASES
    }.values(),
)

"""Cases of the comparison, and the ratios that they should reach."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Side:
    """One program that is measured: ours, that of a peer, or a lower bound written by hand."""

    name: str
    module: str
    """Module of `benchmarks.speed.measures`."""
    arguments: tuple[str, ...] = ()
    group: str | None = None
    """Key of `peers.PINS`; None for our own environment."""
    root: str | None = None
    """Checkout whose packages are measured; None for this one."""


@dataclass(frozen=True)
class Case:
    """Comparison of our program with one other program."""

    name: str
    title: str
    unit: str
    ours: Side
    other: Side
    goal: float
    """Ratio that should be reached (see `ratio` and `is_reached`); 0 if there is no goal."""
    more_is_better: bool = True
    """True if the figures are rates; False if they are times or bytes."""
    is_against_peer: bool = True
    """True if the other side is a peer; False if it is a limit, such as a lower bound."""
    is_only_drawn: bool = False
    """True if the case is a point of a picture and no row; a third of the pairs is enough."""
    reason: str = ""
    """Reason why the goal may not be reached, for the table."""

    def ratio(self, ours: float, other: float) -> float:
        """Return the speed-up over a peer; of a limit, the share (rates) or multiple (times)."""
        if self.more_is_better:
            return ours / other
        return other / ours if self.is_against_peer else ours / other

    def is_reached(self, ratio: float) -> bool:
        """Return whether the ratio reaches the goal.

        For times against a limit the goal is the largest ratio; otherwise it is the smallest one.
        """
        limit = not self.more_is_better and not self.is_against_peer
        return ratio <= self.goal if limit else ratio >= self.goal


@dataclass(frozen=True)
class Curve:
    """Costs by size: one panel of the picture."""

    title: str
    size: str
    """Unit of the sizes."""
    unit: str
    """Unit of the costs."""
    points: tuple[tuple[int, Case], ...]
    """(size, case) of each point."""
    other: str = ""
    """Label of the other sides' line; empty if it is not drawn."""


def _checkpoint(action: str, parameters: int, goal: float = 0.0, reason: str = "") -> Case:
    sizes = {1_000: "1k parameters", 9_155: "9,155 parameters", 100_000: "100k parameters"}
    size = sizes.get(parameters, f"{parameters // 10**6}M parameters")
    arguments = (action, str(parameters))
    return Case(
        f"checkpoint-{action}-{parameters}",
        f"checkpoint of {size}: {action}, against raw bytes",
        "ms",
        Side("sweep", "checkpoint_ours", arguments),
        Side("raw bytes", "raw_bytes", arguments),
        goal,
        more_is_better=False,
        is_against_peer=False,
        is_only_drawn=not goal,
        reason=reason,
    )


def _start(name: str, title: str, goal: float, reason: str = "") -> Case:
    return Case(
        f"start-{name}",
        title,
        "s",
        Side("sweep", "command", (name,)),
        Side("import torch", "command", ("import-torch",)),
        goal,
        more_is_better=False,
        is_against_peer=False,
        reason=reason,
    )


#: Reason why sampling is slower than environments alone.
ACTS = "sweep's policy also acts, and every step is checked"


def _sampling(
    envs: int, kind: str, goal: float = 0.0, env: str = "CartPole-v1", reason: str = ""
) -> Case:
    limit = "a minimal handwritten loop" if env == "CartPole-v1" else "the environments alone"
    arguments = (env, str(envs), kind)
    return Case(
        f"sampling-{env}-{envs}-{kind}",
        f"sampling {env} x {envs}, {kind}, against {limit}",
        RATE,
        Side("sweep", "sampling", ("ours", *arguments)),
        Side(limit, "sampling", ("limit", *arguments)),
        goal,
        is_against_peer=False,
        is_only_drawn=not goal,
        reason=reason,
    )


def _networks(kind: str, networks: str, goal: float) -> Case:
    contrib = kind == "lstm"
    return Case(
        f"networks-{kind}",
        f"PPO with {networks}, update included",
        "steps per CPU second",
        Side("sweep", "networks_ours", (kind,)),
        Side("sb3-contrib" if contrib else "Stable-Baselines3", "networks_sb3", (kind,), "sb3"),
        goal,
    )


def _off_policy(kind: str, title: str, peer: str, goal: float, reason: str = "") -> Case:
    library = "sbx" if peer == "SBX" else "stable_baselines3"
    group = "sbx" if peer == "SBX" else "sb3"
    return Case(
        f"{kind}-{group}",
        f"{title}, updates included",
        "steps per CPU second",
        Side("sweep", "off_policy_ours", (kind,)),
        Side(peer, "off_policy_peer", (library, kind), group),
        goal,
        reason=reason,
    )


def _trial(number: int, goal: float = 0.0) -> Case:
    return Case(
        f"trial-{number}",
        f"overhead of trial number {number:,} (driver and ledger), against that of number 100",
        "ms of CPU",
        Side("sweep", "engine_cost", ("trial", str(number))),
        Side("at number 100", "engine_cost", ("trial", "100")),
        goal,
        more_is_better=False,
        is_against_peer=False,
        is_only_drawn=not goal,
    )


def _event(sweep: str, many: int, title: str) -> Case:
    """Return the comparison of an event's cost after `many` trials with that after 1,000."""
    return Case(
        f"event-{sweep}-{many}",
        f"overhead of an event after {many:,} trials ({title}), against after 1,000",
        "ms of CPU",
        Side("sweep", "engine_cost", (sweep, str(many))),
        Side("after 1,000", "engine_cost", (sweep, "1000")),
        1.3,
        more_is_better=False,
        is_against_peer=False,
    )


def _reading(sweeps: str, command: str, title: str, goal: float) -> Case:
    return Case(
        f"look-{sweeps}-{command}",
        f"{title}, from the shell, against import torch",
        "s",
        Side("sweep", "reading_commands", (sweeps, command)),
        Side("import torch", "command", ("import-torch",)),
        goal,
        more_is_better=False,
        is_against_peer=False,
    )


def _slots(slots: int) -> Case:
    return Case(
        f"slots-{slots}",
        f"16 settings x 25,600 steps, from the shell, {slots} slots against one",
        "s",
        Side("sweep", "sweep_ours", ("25600", str(slots))),
        Side("one slot", "sweep_ours", ("25600", "1")),
        0.0,
        more_is_better=False,
        is_only_drawn=True,
    )


def _memory(process: str) -> Case:
    return Case(
        f"memory-{process}",
        f"peak memory of a {process} in a PPO sweep, against import torch",
        "MB",
        Side("sweep", "memory", (process,)),
        Side("import torch", "memory", ("import-torch",)),
        1.3,
        more_is_better=False,
        is_against_peer=False,
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
        "PPO on CartPole, tuned, against SBX on JAX, compilation not counted",
        RATE,
        OURS,
        Side("SBX", "ppo_sb3", ("sbx",), group="sbx"),
        3.5,
    ),
    Case(
        "ppo-rllib",
        "PPO on CartPole, tuned, against RLlib",
        RATE,
        OURS,
        Side("RLlib", "ppo_rllib", group="ray"),
        10.0,
        reason="torch's matrix products, which RLlib uses, are faster on an Intel Xeon",
    ),
    Case(
        "ppo-rejax",
        "PPO on CartPole, tuned, against rejax, which compiles training and environments into one "
        "program, compilation not counted",
        RATE,
        OURS,
        Side("rejax", "ppo_rejax", group="rejax"),
        1.0,
        reason="rejax compiles all steps, also those of environments; sweep calls numpy",
    ),
    Case(
        "ppo-rejax-compiled",
        "the same with sweep's gradient steps compiled (`make kernels`)",
        RATE,
        Side("sweep, learner: compiled", "ppo_ours", ('{"learner": "compiled"}',)),
        Side("rejax", "ppo_rejax", group="rejax"),
        1.0,
        reason="environments and acting still call numpy",
    ),
    Case(
        "ppo-torch",
        "PPO on CartPole, tuned, sweep's default learner against its learner in torch",
        RATE,
        OURS,
        Side("sweep, learner: torch", "ppo_ours", ('{"learner": "torch"}',)),
        2.8,
        reason="torch's matrix products are faster on an Intel Xeon",
    ),
    _networks("perceptron", "two MLPs of 256-256 units on CartPole", 1.5),
    _networks("lstm", "an LSTM of 64 units on CartPole", 2.0),
    _networks("cnn", "the Nature CNN on images (84, 84, 4)", 1.3),
    _off_policy(
        "dqn",
        "DQN on CartPole, MLP of 256-256 units",
        "Stable-Baselines3",
        3.0,
        reason="half of an update's time is spent in four matrix products, which are no "
        "faster in numpy than in torch; on an Intel Xeon the ratio was 3.48",
    ),
    _off_policy("dqn", "DQN on CartPole, MLP of 256-256 units, against SBX on JAX", "SBX", 1.4),
    _off_policy("sac", "SAC on Pendulum, MLPs of 256-256 units", "Stable-Baselines3", 1.2),
    _off_policy("sac", "SAC on Pendulum, MLPs of 256-256 units, against SBX on JAX", "SBX", 1.0),
    Case(
        "ppo-475-sb3",
        "training PPO on CartPole to a greedy return of 475, mean of 20 seeds",
        "s",
        Side("sweep", "learning_time_ours"),
        Side("Stable-Baselines3", "learning_time_sb3", group="sb3"),
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
        reason="half of a slice's time is not learning, but mostly sampling (see below)",
    ),
    Case(
        "sweep16-ray",
        "16 settings x 51,200 steps, 2 slots, from the shell",
        "s",
        Side("sweep", "sweep_ours"),
        Side("Ray Tune + RLlib", "sweep_tune_rllib", group="ray"),
        9.0,
        more_is_better=False,
    ),
    Case(
        "two-slots",
        "16 settings x 51,200 steps, two slots on two cores against one slot on one core",
        "s",
        Side("sweep", "sweep_ours", ("51200", "2")),
        Side("one slot on one core", "sweep_ours", ("51200", "1", "1")),
        1.9,
        more_is_better=False,
        reason="a process is started for each slot, and one slot is idle at the end",
    ),
    Case(
        "slots-busy",
        "16 settings x 51,200 steps: share of the two slots' time in which a slice runs, from "
        "the first slice to the last",
        "of 1",
        Side("sweep", "sweep_slots", ("busy",)),
        Side("the whole time", "fixed", ("1",)),
        0.97,
        is_against_peer=False,
        reason="one slot is idle while the other trains the last setting",
    ),
    Case(
        "slots-outside",
        "the same sweep: median time that a slice spends outside its iterations, against 60 ms",
        "ms",
        Side("sweep", "sweep_slots", ("outside",)),
        Side("goal", "fixed", ("60",)),
        1.0,
        more_is_better=False,
        is_against_peer=False,
        reason="half of the 200 iterations reach a new best score, so their checkpoints are copied",
    ),
    Case(
        "cartpole64",
        "sweep run cartpole_ppo --trials 64 --jobs 2, against the same command with the learner in "
        "torch",
        "s",
        Side("sweep", "cartpole64"),
        Side("in torch", "cartpole64", ("--set", "config.learner=torch")),
        2.5,
        more_is_better=False,
        reason="about 40 % of sweep's time goes into evaluations, which are the same on both sides",
    ),
    _memory("driver"),
    _memory("worker"),
    _trial(5_000, 1.3),
    _trial(50_000, 1.3),
    *(
        _event(sweep, many, title)
        for sweep, title in (
            ("asha", "promotions by asha"),
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
        _reading("long", command, f"`sweep {command}` of 5,000 trials with 500,000 results", 1.0)
        for command in ("status", "results", "best")
    ),
    *(
        _reading("ten", command, f"`sweep {command}` in a folder of ten sweeps", 0.35)
        for command in ("ls", "status")
    ),
    Case(
        "trivial-ray",
        "300 trivial trials, all results recorded, whole command, 2 slots",
        "trials per second",
        Side("sweep", "trivial_ours"),
        Side("Ray Tune, reused actors, no tracker", "trivial_ray", group="ray"),
        4.0,
        reason="the command takes 3.9 s, and one with a single trial takes 1.2 s; the driver "
        "needs 6 ms of CPU per trial for the ledger, MLflow and Optuna; on an Intel Xeon the ratio "
        "was 4.35",
    ),
    _start(
        "first-iteration",
        "from the shell to the first iteration of PPO, against import torch",
        1.4,
        reason="importing gymnasium, joblib and the settings takes half a second besides torch",
    ),
    _start("trivial-run", "sweep run of one trivial trial, against import torch", 1.6),
    _checkpoint(
        "save",
        9_155,
        2.5,
        reason="collecting the state and computing two digests takes longer than writing 0.1 MB",
    ),
    _checkpoint("save", 10_000_000, 1.15),
    Case(
        "checkpoint-restore-small",
        "checkpoint of 9,155 parameters: restore, against 1.5 ms",
        "ms",
        Side("sweep", "checkpoint_ours", ("restore", "9155")),
        Side("goal", "fixed", ("1.5",)),
        1.0,
        more_is_better=False,
        is_against_peer=False,
        reason="the time differs between machines; on an Intel Xeon it was 1.44 ms",
    ),
    _checkpoint("restore", 10_000_000, 1.2),
    *(
        _sampling(
            envs,
            kind,
            goal,
            reason="sweep checks and counts more than the handwritten loop",
        )
        for kind, goals in (
            ("NoFilter", (0.5, 0.8, 0.8, 0.8)),
            ("MeanStdFilter", (0.4, 0.65, 0.7, 0.7)),
        )
        for envs, goal in zip((1, 8, 64, 256), goals, strict=True)
    ),
    *(
        _sampling(8, "NoFilter", 0.7, env, reason=reason)
        for env, reason in {
            "LunarLander-v3": (
                "the environments alone repeat one action, which makes their steps up to a "
                "quarter cheaper"
            ),
            "Acrobot-v1": ACTS,
            "Pendulum-v1": ACTS,
            "HalfCheetah-v5": ACTS,
        }.items()
    ),
    Case(
        "sampling-LunarLander-v3-8-drawn",
        "sampling LunarLander-v3 x 8, NoFilter, against the environments alone with random actions",
        RATE,
        Side("sweep", "sampling", ("ours", "LunarLander-v3", "8", "NoFilter")),
        Side("the environments alone", "sampling", ("drawn", "LunarLander-v3", "8", "NoFilter")),
        0.7,
        is_against_peer=False,
        reason=ACTS,
    ),
)
_NAMED = {one.name: one for one in CASES}


def _point(case: Case) -> Case:
    """Return the row of the table with the same name if there is one, or else the case itself."""
    return _NAMED.get(case.name, case)


#: The panels of the picture.
CURVES = (
    Curve(
        "Sampling CartPole",
        "environments",
        RATE,
        tuple((n, _point(_sampling(n, "NoFilter"))) for n in (1, 4, 8, 16, 64, 256, 1_024)),
        other="handwritten loop",
    ),
    Curve(
        "Our own cost of a trial",
        "trials before it",
        "CPU ms",
        tuple((n, _point(_trial(n))) for n in (10, 100, 1_000, 5_000, 50_000)),
    ),
    *(
        Curve(
            f"Checkpoint: {action}",
            "parameters",
            "ms",
            tuple(
                (n, _point(_checkpoint(action, n)))
                for n in (1_000, 9_155, 100_000, 1_000_000, 10_000_000)
            ),
            other="raw bytes",
        )
        for action in ("save", "restore")
    ),
    Curve(
        "16 settings x 25,600 steps",
        "slots",
        "s, from the shell",
        tuple((n, _point(_slots(n))) for n in (1, 2, 3, 4)),
    ),
)
#: All cases: the rows, then the points of curves that are not rows.
ALL = (
    *CASES,
    *{
        case.name: case for curve in CURVES for _, case in curve.points if case not in CASES
    }.values(),
)

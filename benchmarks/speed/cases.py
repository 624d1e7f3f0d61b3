"""What is compared with what, and which ratio is to be reached."""

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


@dataclass(frozen=True)
class Case:
    """Ours against one other."""

    name: str
    title: str
    unit: str
    ours: Side
    other: Side
    at_least: float
    """What is to be reached: of a rate ours divided by the other, of a time as `more_is_better`."""
    more_is_better: bool = True
    """Whether the figures are rates; of times the ratio says how often the other's ours takes, or,
    against a peer, how often ours the peer's takes (`against_peer`)."""
    against_peer: bool = True
    long: bool = False
    """Whether a run takes minutes, so that only a few are made."""

    def ratio(self, ours: float, other: float) -> float:
        """How much faster than a peer; against a limit, the share (rates) or multiple (times)."""
        if self.more_is_better:
            return ours / other
        return other / ours if self.against_peer else ours / other

    def reached(self, ratio: float) -> bool:
        """Whether the ratio is at least, or of a time against a limit at most, what it is to be."""
        limit = not self.more_is_better and not self.against_peer
        return ratio <= self.at_least if limit else ratio >= self.at_least


def _checkpoint(what: str, parameters: int, goal: float) -> Case:
    size = "10M parameters" if parameters > 100_000 else "64x64"
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
    )


def _start(name: str, title: str, goal: float) -> Case:
    return Case(
        f"start-{name}",
        title,
        "s",
        Side("sweep", "command", (name,)),
        Side("import torch", "command", ("import-torch",)),
        goal,
        more_is_better=False,
        against_peer=False,
    )


def _sampling(envs: int, kind: str, goal: float, env: str = "CartPole-v1") -> Case:
    limit = "the shortest loop by hand" if env == "CartPole-v1" else "the environments alone"
    of = (env, str(envs), kind)
    return Case(
        f"sampling-{env}-{envs}-{kind}",
        f"sampling {env} x {envs}, {kind}, against {limit}",
        "steps per CPU second",
        Side("sweep", "sampling", ("ours", *of)),
        Side(limit, "sampling", ("limit", *of)),
        goal,
        against_peer=False,
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


CASES = (
    Case(
        "ppo-sb3",
        "PPO on CartPole, tuned, update included",
        "steps per CPU second",
        Side("sweep", "ppo_ours"),
        Side("Stable-Baselines3", "ppo_sb3", group="sb3"),
        4.5,
    ),
    Case(
        "ppo-torch",
        "the same, the learner that is chosen beside the one in torch",
        "steps per CPU second",
        Side("sweep", "ppo_ours"),
        Side("sweep, learner: torch", "ppo_ours", ('{"learner": "torch"}',)),
        2.8,
    ),
    _networks("perceptron", "two perceptrons of 256-256 on CartPole", 1.5),
    _networks("lstm", "an LSTM of 64 units on CartPole", 2.0),
    _networks("cnn", "the Nature network on pictures (84, 84, 4)", 1.3),
    Case(
        "sweep16-sb3",
        "16 settings x 51,200 steps, 2 slots, from the shell",
        "s",
        Side("sweep", "sweep_ours"),
        Side("Optuna + Stable-Baselines3", "sweep_optuna_sb3", group="sb3"),
        3.5,
        more_is_better=False,
        long=True,
    ),
    _start("first-iteration", "shell to the first iteration of PPO, against import torch", 1.4),
    _start("trivial-run", "sweep run of one trivial trial, against import torch", 1.6),
    _checkpoint("save", 9_155, 2.5),
    _checkpoint("save", 10_000_000, 1.15),
    _checkpoint("restore", 9_155, 5.0),
    _checkpoint("restore", 10_000_000, 1.2),
    *(
        _sampling(envs, kind, goal)
        for kind, goals in (
            ("NoFilter", (0.5, 0.8, 0.8, 0.8)),
            ("MeanStdFilter", (0.4, 0.65, 0.7, 0.7)),
        )
        for envs, goal in zip((1, 8, 64, 256), goals, strict=True)
    ),
    *(
        _sampling(8, "NoFilter", 0.7, env)
        for env in ("LunarLander-v3", "Acrobot-v1", "Pendulum-v1", "HalfCheetah-v5")
    ),
)

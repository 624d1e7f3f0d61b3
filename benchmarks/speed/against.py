"""Comparison with another checkout of this repository: our own costs, in CPU time.

    git worktree add --detach ../before COMMIT
    python -m benchmarks.speed --against ../before [--only result …] [--runs 5]

The measures of this checkout run alternately with the packages of either checkout.
"""

from pathlib import Path

from benchmarks.speed.cases import Case, Side

#: Largest acceptable ratio of a cost to that of the other checkout.
AT_MOST = 1.1
#: Name of a cost → title, unit, module of the measure and its arguments.
COSTS = {
    "result": ("a result of a function that only reports", "us of CPU", "result_cost", "result"),
    "saved": ("the same with a checkpoint in each report", "us of CPU", "result_cost", "saved"),
    "ppo": (
        "an iteration of PPO with a checkpoint, without its training",
        "us of CPU",
        "result_cost",
        "ppo",
    ),
    "checkpoint": ("a checkpoint of PPO, 64x64", "ms", "checkpoint_ours", "save", "9155"),
    "trials": ("64 short trials of PPO, all processes", "s of CPU", "tree_cost"),
}


def cases(folder: Path, version: str) -> dict[str, Case]:
    """Return the comparison of each cost with that of another checkout, by name of the cost.

    Args:
        folder: of the other checkout.
        version: its commit.
    """
    found = {}
    for name, (title, unit, *measure) in COSTS.items():
        module, *arguments = measure
        ours = Side("sweep", module, tuple(arguments))
        other = Side(version, module, tuple(arguments), root=str(folder.resolve()))
        found[name] = Case(
            f"{name}-against-{version}",
            title,
            unit,
            ours,
            other,
            AT_MOST,
            more_is_better=False,
            is_against_peer=False,
        )
    return found

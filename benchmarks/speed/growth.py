"""Rows about sweeps of many trials: what the next one costs, and what it costs to look at them."""

from benchmarks.speed.cases import Case, Side


def _event(sweep: str, many: int, few: int, title: str) -> Case:
    """What an event costs after many trials against few."""
    return Case(
        f"event-{sweep}-{many}",
        f"driver and ledger, an event after {many:,} trials, {title}",
        "ms of CPU",
        Side("sweep", "event_cost", (sweep, str(many))),
        Side(f"after {few:,}", "event_cost", (sweep, str(few))),
        1.3,
        more_is_better=False,
        against_peer=False,
    )


def _look(what: str, command: str, title: str, goal: float) -> Case:
    return Case(
        f"look-{what}-{command}",
        title,
        "s",
        Side("sweep", "looking", (what, command)),
        Side("import torch", "command", ("import-torch",)),
        goal,
        more_is_better=False,
        against_peer=False,
    )


CASES = (
    *(
        _event(sweep, many, few, title)
        for sweep, few, title in (
            ("fifo", 100, "fifo and random"),
            ("asha", 500, "promotions of asha"),
            ("race", 500, "asha with racing seeds"),
        )
        for many in (5_000, 50_000)
    ),
    Case(
        "proposal-tpe-50000",
        "a proposal of tpe with a window of 500 after 50,000 trials",
        "ms of CPU",
        Side("sweep", "proposal", ("50000", "500")),
        Side("tpe without a window after 5,000", "proposal", ("5000",)),
        3.0,
        more_is_better=False,
    ),
    *(
        _look("long", command, f"`sweep {command}`, 5,000 trials with 500,000 results", 1.0)
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
    ),
)

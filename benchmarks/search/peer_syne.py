"""Syne Tune's ASHA on a game; run by an interpreter that has syne-tune. Its ASHA stops trials.

    python -m benchmarks.search.peer_syne ASHA GAME SEED BUDGET

Its scheduler is asked directly, as its tuner asks it with one worker: no processes, no clock.
Prints one JSON line: what each iteration reported, in order.
"""

import json
import sys
from datetime import datetime
from typing import Any

from syne_tune.backend.trial_status import Trial
from syne_tune.config_space import choice, loguniform, randint, uniform
from syne_tune.optimizer.baselines import ASHA
from syne_tune.optimizer.scheduler import SchedulerDecision

from benchmarks.search.game import ITERATIONS
from benchmarks.search.games import load

ETA = 3


def _domain(kind: str, words: Any) -> Any:
    if kind == "choice":
        return choice([json.dumps(word) if isinstance(word, list) else word for word in words])
    if kind == "randint":
        return randint(*words)
    return (loguniform if kind == "loguniform" else uniform)(*words)


def _plain(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) and value.startswith("[") else value


def _word(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list) else value


def main() -> None:
    """The command line."""
    name, seed, budget = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    game = load(name, seed)
    points = [{n: _word(v) for n, v in point.items()} for point in game.draw(budget // 4)]
    scheduler = ASHA(
        {name: _domain(*raw) for name, raw in game.space.items()},
        metric="value",
        time_attr="iteration",
        max_t=ITERATIONS,
        do_minimize=False,
        random_seed=seed,
        reduction_factor=ETA,
        points_to_evaluate=points,
    )
    reports: list[tuple[int, int, float, dict[str, Any]]] = []
    for number in range(len(points)):
        suggestion = scheduler.suggest()
        trial = Trial(number, suggestion.config, datetime.now())
        scheduler.on_trial_add(trial)
        settings = {n: _plain(suggestion.config[n]) for n in game.space}
        state: dict[str, float] = {}
        for iteration in range(1, ITERATIONS + 1):
            value, found = game.play(settings, iteration, state)
            state = dict(found)
            reports.append((number, iteration, value, settings))
            told = {"value": value, "iteration": iteration}
            if scheduler.on_trial_result(trial, told) == SchedulerDecision.STOP:
                break
    sys.stdout.write(json.dumps(reports[:budget]) + "\n")


if __name__ == "__main__":
    main()

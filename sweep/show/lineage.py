"""The settings of one lineage of a population, and when each began: what can be replayed."""

import json
from typing import Any

from sweep.errors import BadConfig
from sweep.history import Trial
from sweep.show import views, wording
from sweep.show.look import Sweep

Data = dict[str, Any]


def schedule(sweep: Sweep, asked: str) -> Data:
    """`sweep export-schedule`: the ancestors of a trial, eldest first, with their settings.

    Args:
        sweep: the population.
        asked: ``best``, or the number of a trial.

    Raises:
        UsageError: there is no such trial.
    """
    history, name = sweep.history, sweep.folder.name
    trial = views.best_trial(history, name) if asked == "best" else _numbered(sweep, asked)
    steps: list[Data] = []
    now: Trial | None = trial
    while now is not None:
        births = [replica.birth.time for replica in now.replicas if replica.birth is not None]
        begin = min(births, default=0.0)
        steps.insert(0, {"from": begin, "trial": now.number, "settings": dict(now.searched)})
        now = None if now.parent is None else history.trials[now.parent]
    return {
        "name": name,
        "trial": trial.number,
        "metric": sweep.spec.metric,
        "score": wording.finite(trial.score),
        "time_attr": history.objective.time_attr,
        "schedule": steps,
    }


def _numbered(sweep: Sweep, asked: str) -> Trial:
    if not asked.isdecimal():
        raise BadConfig("--trial", asked, "best, or the number of a trial")
    return views.find_trial(sweep.history, sweep.folder.name, int(asked))


def text(data: Data) -> str:
    """The schedule as the YAML file that `pbt_replay` reads."""
    score = f"{data['metric']} {wording.number(data['score'])}"
    head = (
        f"# trial {data['trial']} of {data['name']}, {score}: its ancestors' settings and its own"
    )
    steps = [f"  - {json.dumps(step)}" for step in data["schedule"]]
    lines = [head, *wording.yaml_lines({"time_attr": data["time_attr"]}), "schedule:", *steps]
    return "\n".join(lines) + "\n"

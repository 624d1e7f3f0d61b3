"""What a rehearsal makes doubtful in a spec: names that no result had, rungs that are one.

Nothing of this is sure: an evaluation may bring a metric later than the rehearsal shows.
"""

from sweep.launch import Resolved
from sweep.show import wording
from sweep.show.rehearsal import Rehearsal
from trainables.errors import nearest, printable
from trainables.results import VOLATILE_KEYS

#: Names of results that a line lists.
_SHOWN = 12


def find(resolved: Resolved, rehearsal: Rehearsal) -> list[str]:
    """Doubts, in words; empty where nothing was tried out."""
    if not rehearsal.keys:
        return []
    spec, scheduler = resolved.spec, resolved.scheduler
    places = {"metric": spec.metric, "scheduler.time_attr": scheduler.time_attr}
    places |= {f"stop.{name}": name for name in spec.stop}
    found = [
        _missing(place, name, rehearsal)
        for place, name in places.items()
        if name not in rehearsal.keys
    ]
    return found + _rungs(resolved, rehearsal)


def _missing(place: str, name: str, rehearsal: Rehearsal) -> str:
    known = sorted(key for key in rehearsal.keys if key.split("/")[0] not in VOLATILE_KEYS)
    shown = ", ".join(known[:_SHOWN]) + (", …" if len(known) > _SHOWN else "")
    later = (
        "; right if it comes later, as an evaluation does" if place != "scheduler.time_attr" else ""
    )
    return (
        f"{place}: the first {rehearsal.results} results have no {printable(name)}; "
        f"they have {shown}{nearest(name, known)}{later}"
    )


def _rungs(resolved: Resolved, rehearsal: Rehearsal) -> list[str]:
    """Rungs below the first iteration, all of which a trial comes to at once."""
    scheduler = resolved.scheduler
    step = (rehearsal.advance or {}).get(scheduler.time_attr)
    below = [level for level in scheduler.levels if step is not None and level < step]
    if step is None or not below:
        return []
    names = ", ".join(wording.number(level) for level in below)
    return [
        f"scheduler.grace_period: one iteration brings {scheduler.time_attr} to "
        f"{wording.number(step)}; the rungs {names} lie below the first one, so nothing is "
        f"compared there before it"
    ]

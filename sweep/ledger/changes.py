"""Changes of a sweep's space and of the end of its trials, made while it was resumed."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sweep.history.events import Created, Recorded, SpaceChanged, StopChanged
from sweep.spec import SweepSpec
from sweep.spec.space import Space


@dataclass(frozen=True, kw_only=True)
class Change:
    """Change of a sweep's search space, or of the criteria that end trials, after its creation."""

    event: int
    """Number of the event that recorded the change."""
    time: float
    """Time of the event in seconds since 1970."""
    key: Literal["space", "stop"]
    """Key of the spec that was changed."""
    trials: int
    """Number of trials that existed then; trials from this number on belong to the new value."""
    before: Mapping[str, Any]
    """Changed parameter → description of its domain, or changed criterion → its value; before the
    change. It is None for a name that is new, and a name that was removed is not there."""
    after: Mapping[str, Any]
    """Same keys as `before`, with the descriptions or values after the change."""

    @property
    def text(self) -> str:
        """Line for people: ``the space changed after trial 3: lr is …, instead of …``."""
        place = f"after trial {self.trials - 1}" if self.trials else "before the first trial"
        changed = [
            f"{name} is {_text(new)}, instead of {_text(self.before[name])}"
            for name, new in self.after.items()
        ]
        which = "the space changed" if self.key == "space" else "the end moved"
        return f"{which} {place}: {'; '.join(changed) or 'only its notation'}"


def _text(value: Any) -> str:
    """Return a parameter's description unchanged, or a criterion's value as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


class Changes:
    """All changes of a sweep's space and end, oldest first, collected from its events.

    Args:
        created: spec with which the sweep was created.
        records: events so far, in the order of their numbers.
    """

    def __init__(self, created: SweepSpec, records: Iterable[Recorded] = ()) -> None:
        self.all: list[Change] = []
        self._created = created
        self._space: dict[str, str] | None = None
        self._stop = created.stop.to_spec()
        self._trials = 0
        self.extend(records)

    def extend(self, records: Iterable[Recorded]) -> None:
        """Collect the changes among further events, which follow those read so far."""
        for record in records:
            match record.event:
                case Created():
                    self._trials += 1
                case SpaceChanged():
                    self._change_space(record, record.event)
                case StopChanged():
                    new = dict(record.event.stop)
                    self._add(record, "stop", self._stop, new)
                    self._stop = new

    def _change_space(self, record: Recorded, event: SpaceChanged) -> None:
        """Add the change from the present space to the one in an event, which becomes the present.

        Raises BadSpace if the event's space is not valid.
        """
        new = _described(Space.parse(event.space, forbid=self._created.forbid, replaces=True))
        self._add(record, "space", self._space or _described(self._created.space), new)
        self._space = new

    def _add(
        self,
        record: Recorded,
        what: Literal["space", "stop"],
        old: Mapping[str, Any],
        new: Mapping[str, Any],
    ) -> None:
        """Add a change from `old` to `new`: the names of `new` whose values differ, maybe none."""
        names = [name for name, value in new.items() if old.get(name) != value]
        self.all.append(
            Change(
                event=record.number,
                time=record.time,
                key=what,
                trials=self._trials,
                before={name: old.get(name) for name in names},
                after={name: new[name] for name in names},
            )
        )


def _described(space: Space) -> dict[str, str]:
    """Return each parameter's name → description of its domain, as a text."""
    return {name: parameter.describe() for name, parameter in space.parameters.items()}

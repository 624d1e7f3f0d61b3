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
    """A change of the search space, or of the criteria that end trials."""

    event: int
    """Number of its event."""
    time: float
    """Time in seconds since 1970."""
    key: Literal["space", "stop"]
    """Changed key of the spec."""
    trials: int
    """Number of trials that existed; also the number of the first later trial."""
    before: Mapping[str, Any]
    """Each changed parameter with its description, or each changed criterion with its value."""
    after: Mapping[str, Any]
    """The same after the change."""

    @property
    def text(self) -> str:
        """The change on one line."""
        place = f"after trial {self.trials - 1}" if self.trials else "before the first trial"
        changed = [
            f"{name} is {_text(new)}, instead of {_text(self.before[name])}"
            for name, new in self.after.items()
        ]
        which = "the space changed" if self.key == "space" else "the end moved"
        return f"{which} {place}: {'; '.join(changed) or 'only its notation'}"


def _text(value: Any) -> str:
    """Return a description or a value of a criterion as a text."""
    return value if isinstance(value, str) else json.dumps(value)


class Changes:
    """All changes of a sweep, oldest first, from its events in order.

    Args:
        created: spec with which the sweep was created.
        records: events so far.
    """

    def __init__(self, created: SweepSpec, records: Iterable[Recorded] = ()) -> None:
        self.all: list[Change] = []
        self._created = created
        self._space: dict[str, str] | None = None
        self._stop = created.stop.to_spec()
        self._trials = 0
        self.extend(records)

    def extend(self, records: Iterable[Recorded]) -> None:
        """Add the changes among further events."""
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
        """Add a change of the space."""
        new = _described(Space.parse(event.space, forbid=self._created.forbid))
        self._add(record, "space", self._space or _described(self._created.space), new)
        self._space = new

    def _add(
        self,
        record: Recorded,
        what: Literal["space", "stop"],
        old: Mapping[str, Any],
        new: Mapping[str, Any],
    ) -> None:
        """Add a change from `old` to `new`, which have the same parameters or criteria."""
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
    """Return parameter → its description."""
    return {name: parameter.describe() for name, parameter in space.parameters.items()}

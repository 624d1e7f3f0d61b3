"""What `sweep verify` and `sweep sync` print."""

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from sweep.show import wording
from sweep.show.render import table
from trainables.errors import printable

Data = Mapping[str, Any]


def report(data: Data) -> RenderableType:
    """What was repaired, what is wrong, what was not compared."""
    parts: list[RenderableType] = [Text(printable(f"repaired: {t}")) for t in data["repaired"]]
    rows = [
        (
            damage["part"],
            printable(damage["place"]),
            printable(damage["problem"]),
            "--repair" if damage["remedy"] else "no",
        )
        for damage in data["damages"]
    ]
    if rows:
        parts.append(
            table([("part", "l"), ("where", "wrap"), ("what", "wrap"), ("mend", "l")], rows)
        )
    else:
        checked = wording.plural(data["checkpoints"], "checkpoint")
        parts.append(Text(printable(f"{data['name']} is whole ({checked})")))
    parts += [Text(printable(note)) for note in data["notes"]]
    return Group(*parts)


def sent(data: Data) -> RenderableType:
    """What each tracker was sent, and what it still misses."""
    rows = [
        (
            its["tracker"],
            wording.plural(its["sent"], "event"),
            f"misses {wording.plural(its['missing'], 'event')}" if its["missing"] else "has all",
        )
        for its in data["trackers"]
    ]
    return table([("", "l"), ("sent", "r"), ("", "l")], rows) if rows else Text("no trackers")

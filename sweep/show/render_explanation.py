"""What `sweep explain` prints."""

import time
from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from sweep.show import wording
from sweep.show.render import table, word
from trainables.errors import printable

Data = Mapping[str, Any]


def explanation(data: Data) -> RenderableType:
    """The decisions in their order, each with its numbers under it."""
    head = Text.assemble(
        (f"trial {data['trial']}", "bold"),
        f" of {printable(data['name'])}  ",
        word(data["status"]),
    )
    aim = f"{data['mode']} of {data['metric']}; {data['scheduler']} counts {data['time_attr']}"
    shown: list[RenderableType] = [head, Text(printable(aim))]
    if data["children"]:
        shown.append(Text(f"children: {', '.join(map(str, data['children']))}"))
    for step in data["decisions"]:
        at = time.strftime("%m-%d %H:%M:%S", time.localtime(step["at"]))
        shown += [Text(), Text.assemble((f"{at}  {step['what']}", "bold"))]
        shown.append(Padding(Text(printable(step["why"])), (0, 0, 0, 2)))
        shown += [Padding(_numbers(numbers), (0, 0, 0, 4)) for numbers in step["tables"]]
    if data["stands"] is not None:
        facts = data["stands"]["facts"]
        where = f"now: place {facts['place']} of {facts['of']} that came to {facts['rung']:g}"
        shown += [Text(), Text(where, style="bold")]
        shown += [Padding(_numbers(t), (0, 0, 0, 4)) for t in data["stands"]["tables"]]
    return Group(*shown)


def _numbers(data: Data) -> RenderableType:
    columns = [(printable(name), "r") for name in data["columns"]]
    return table(columns, [[_cell(cell) for cell in row] for row in data["rows"]])


def _cell(value: Any) -> str:
    if value is None or isinstance(value, float):
        return wording.number(value)
    return printable(str(value))

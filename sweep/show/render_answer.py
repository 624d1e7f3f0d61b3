"""What became of a request to a sweep's driver, in a line."""

from typing import Any

from rich.text import Text

from trainables.errors import printable


def answer(data: dict[str, Any]) -> Text:
    """The driver's answer, or what the request waits for."""
    name = printable(data["name"])
    if data["state"] == "done":
        return Text(f"{name}: {printable(data['answer'])}")
    if data["driven"]:
        return Text(f"{name}: the driver has not answered yet; it will when it next looks")
    return Text(f"{name}: no driver runs; `sweep resume {name}` begins with this")

"""What `sweep check-env` prints."""

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from sweep.show import wording
from sweep.show.render import table
from trainables.env_check import WIDTH
from trainables.errors import printable

Data = Mapping[str, Any]


def report(data: Data) -> RenderableType:
    """Facts, the level with its reasons, costs, faults."""
    rows: list[tuple[str, str]] = [
        ("observations", data["observation_space"]),
        ("actions", data["action_space"]),
        ("time limit", _time_limit(data["time_limit"])),
        ("checkpoints", data["exactness"]),
        *(("", reason) for reason in data["reasons"]),
        ("speed", _speed(data)),
        ("saving", _saving(data)),
        ("policies", f"cannot live in it: {data['unsupported']}" if data["unsupported"] else ""),
        *(("breach", text) for text in data["breaches"]),
    ]
    shown = [(title, printable(text)) for title, text in rows if text]
    return Group(
        Text(printable(data["env"]), style="bold"),
        table([("", "l"), ("", "wrap")], shown, head=False),
    )


def _time_limit(steps: int | None) -> str:
    return "none" if steps is None else wording.plural(steps, "step")


def _speed(data: Data) -> str:
    alone, side_by_side = data["steps_per_s"], data[f"steps_per_s_in_{WIDTH}"]
    if alone is None:
        return ""
    return (
        f"{wording.count(alone)} steps/s alone, {wording.count(side_by_side)} in {WIDTH} lanes of "
        "one process"
    )


def _saving(data: Data) -> str:
    if data["saved_bytes"] is None:
        return ""
    return (
        f"{wording.count(data['saved_bytes'])} bytes, {data['save_ms']:.1f} ms; restoring "
        f"{data['restore_ms']:.1f} ms"
    )

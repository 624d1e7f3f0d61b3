"""Numbers, durations and settings as short texts for people; JSON has exact values.

All names from users and files pass through `printable`, so that they cannot manipulate a terminal.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from sweep.core import stats
from trainables.errors import printable

#: Characters of a sparkline, lowest first.
_BARS = "▁▂▃▄▅▆▇█"
#: Pattern of keys that YAML reads as text without quotes, unless they are a word of its own.
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
#: Text for a missing value.
ABSENT = "-"


def number(value: float | None) -> str:
    """Return a number with six significant digits as text; `ABSENT` for None.

    An integer below 1e15 is written in full.
    """
    if value is None:
        return ABSENT
    whole = float(value).is_integer() and abs(value) < 1e15
    return f"{value + 0.0:.0f}" if whole else f"{value:.6g}"  # no sign on a zero


def finite(value: Any) -> Any:
    """Return `value` unchanged, or None for a float that is not finite, which JSON cannot hold."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def scores(values: Sequence[float | None]) -> str:
    """Return number of seeds, minimum and maximum of their scores, such as ``3: 410 … 480``.

    It is the number of seeds alone if fewer than two have a score.
    """
    found = [value for value in values if value is not None]
    if len(found) < 2:
        return str(len(values))
    return f"{len(values)}: {min(found):.3g} … {max(found):.3g}"


def with_standard_error(value: float | None, error: float | None) -> str:
    """Return an estimate with its standard error, ``455 ± 21``, to two digits of the error.

    It is the estimate alone if the error is None or not finite, and `ABSENT` if the estimate is
    None.
    """
    if value is None or error is None or not math.isfinite(error):
        return number(value)
    places = 1 - math.floor(math.log10(error)) if error > 0 else 13
    if places > 12 or abs(value) >= 1e15:  # too precise or too large for decimal places
        return f"{number(value)} ± {error:.2g}"
    return f"{value:.{max(0, places)}f} ± {error:.{max(0, places)}f}"


def count(value: float | None) -> str:
    """Return a number of steps with thousands separators; `ABSENT` for None."""
    return ABSENT if value is None else f"{value:,.0f}"


def duration(seconds: float | None) -> str:
    """Return seconds as ``8 s``, ``4:07`` or ``1:02:33``; `ABSENT` for None."""
    if seconds is None:
        return ABSENT
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{left:02d}" if hours else f"{minutes}:{left:02d}"


def age(seconds: float) -> str:
    """Return a number of seconds in its largest unit, rounded down, such as ``3 days``."""
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= size:
            return plural(int(seconds // size), unit)
    return plural(max(0, int(seconds)), "second")


def plural(amount: int, noun: str) -> str:
    """Return a number with a noun, ``1 trial`` or ``2 trials``."""
    return f"{amount} {noun}" if amount == 1 else f"{amount} {noun}s"


def trials_text(trials: int, bred: int, planned: int) -> str:
    """Return ``8 of 64 trials and 5 bred``, without the last part if there are no offspring."""
    more = f" and {bred} bred" if bred else ""
    return f"{trials} of {plural(planned, 'trial')}{more}"


def setting(value: Any) -> str:
    """Return a setting as a short text: a float with three digits, a text as it is, else JSON."""
    if isinstance(value, float):
        return f"{value:.3g}"
    return printable(value if isinstance(value, str) else json.dumps(value, separators=(",", ":")))


def settings(values: Mapping[str, Any]) -> str:
    """Return settings on one line: ``lr=0.0003 gamma=0.99``."""
    return " ".join(f"{printable(name)}={setting(value)}" for name, value in values.items())


def last_part(path: str) -> str:
    """Return the part after the last ``/`` of a result's name: ``episode_reward_mean``."""
    return printable(path.rsplit("/", 1)[-1])


def sparkline(values: list[float], width: int = 60, ends: tuple[float, float] | None = None) -> str:
    """Return a curve as a text of at most `width` bars, each the mean of neighbouring values.

    `ends` are the values of the lowest and highest bar, by default those of the curve; they must
    include all values. The text is empty for no values.
    """
    if not values:
        return ""
    bars = min(width, len(values))
    edges = [index * len(values) // bars for index in range(bars + 1)]
    halves = [stats.mean(values[a:b]) / 2 for a, b in pairwise(edges)]
    low, high = (min(halves), max(halves)) if ends is None else (ends[0] / 2, ends[1] / 2)
    span = high - low or 1.0  # the difference of undivided values may overflow
    return "".join(_BARS[round((half - low) / span * (len(_BARS) - 1))] for half in halves)


def yaml_lines(values: Mapping[str, Any], indent: int = 0) -> list[str]:
    """Return plain data as lines of YAML: nested mappings as blocks, all else as JSON."""
    lines = []
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            lines += [f"{' ' * indent}{_key(key)}:", *yaml_lines(value, indent + 2)]
        else:
            lines.append(f"{' ' * indent}{_key(key)}: {_flow(value)}")
    return lines


def _flow(value: Any) -> str:
    """Return a value as JSON that is valid YAML, too, in which there are no surrogate pairs."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in text)


def _key(name: str) -> str:
    """Return a mapping's key as YAML, quoted if necessary."""
    is_word = name.lower() in ("null", "true", "false")
    return name if _PLAIN.fullmatch(name) and not is_word else _flow(name)


def describe_lost_results(count: int) -> str:
    """Return the clause that the last `count` results are unsaved; empty for 0."""
    if not count:
        return ""
    if count == 1:
        return "the last result is unsaved: no checkpoint was taken after it"
    return f"the last {count} results are unsaved: no checkpoint was taken after them"


def describe_play(card: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines about a network's fresh episodes; `card` is the entry ``played`` of its card.

    Nothing is yielded if it played none, was compared with no others, and has no remark.
    """
    measured = card["fresh"]
    if measured is not None:
        error = "" if measured["error"] is None else f" ± {measured['error']:.3g}"
        spread = "" if measured["deviation"] is None else f", spread {measured['deviation']:.3g}"
        episodes = f"{measured['episodes']} fresh episode{'s' * (measured['episodes'] != 1)}"
        fewer = "" if measured["episodes"] == card["asked"] else f" of {card['asked']} asked for"
        yield f"on {episodes}{fewer}: mean {card['by']} {measured['mean']:.6g}{error}{spread}"
    rows = [row for row in card["compared"] if "mean" in row]
    if rows:
        most = max(row["episodes"] for row in rows)
        yield f"the best of {len(rows)} networks on {most} other episodes, the same for all"
    if card["remark"]:
        yield card["remark"]


def describe_outlook(expected: Mapping[str, Any], metric: str) -> str:
    """Return a sentence about the expected improvement: in the next hour, and by as much training.

    `expected` is the data of `overview.outlook`; the hour is left out if it is None there.
    """
    again = (
        f"as much training again by {expected['again']:.3g} ({expected['share']:.1%} of its range)"
    )
    if expected["hour"] is None:
        return f"expected to improve the best trial's {printable(metric)}: {again}"
    hour = f"the next hour by {expected['hour']:.3g} ({expected['hour_share']:.1%} of its range)"
    return f"expected to improve the best trial's {printable(metric)}: {hour}, {again}"

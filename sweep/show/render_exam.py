"""What `sweep best` says of a trial's seeds and of its exam, one remark per line."""

from collections.abc import Iterator, Mapping
from typing import Any

from sweep.estimates import LEVEL
from sweep.show import wording
from trainables.errors import printable

Data = Mapping[str, Any]


def remarks(data: Data) -> Iterator[str]:
    """The lines, without what marks them as comments."""
    several = [wording.number(score) for score in data["scores"]]
    if len(several) > 1:
        how = data["aggregate"] if isinstance(data["aggregate"], str) else "lower bound"
        yield f"{how} of {len(several)} seeds: {', '.join(several)}"
    if data["exam"] is not None:
        yield from _exam(data, data["exam"])
    elif len(several) == 1 and data["trials"] > 1:
        yield (
            f"the best of {data['trials']} scores of one seed each is partly luck; "
            f"sweep best {printable(data['name'])} --test-seeds 10 trains it anew"
        )


def _exam(data: Data, exam: Data) -> Iterator[str]:
    yield f"under test seeds ({exam['estimates']}, {LEVEL:.0%} interval):"
    for tested in exam["trials"]:
        yield "  " + _tested(tested)
    found = exam["comparison"]
    if found is not None:
        yield (
            f"a run of trial {found['first']} beats one of trial {found['second']} with "
            f"probability {found['value']:.2f} [{found['low']:.2f}, {found['high']:.2f}]"
        )
    if exam["done"] < exam["wanted"]:
        options = f"--test-seeds {exam['seeds']} --top {len(exam['asked'])}"
        yield (
            f"{exam['done']} of {exam['wanted']} tests have ended; go on with: "
            f"sweep best {printable(data['name'])} {options}"
        )


def _tested(tested: Data) -> str:
    interval, ended, missing = tested["estimate"], tested["ended"], tested["without_score"]
    if interval is None:
        none = "no score" if ended else "no score yet"
        found = ", ".join(wording.number(score) for score in tested["scores"]) or none
    else:
        low, high = (wording.number(interval[end]) for end in ("low", "high"))
        found = f"{wording.number(interval['value'])} [{low}, {high}]"
    without = f", {missing} of {ended} without a score" if missing else ""
    return (
        f"trial {tested['trial']}: {found} of {wording.plural(len(tested['scores']), 'seed')}"
        f"{without}; {wording.number(tested['score'])} in the search"
    )

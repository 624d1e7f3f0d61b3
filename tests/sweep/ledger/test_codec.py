"""Events as the ledger keeps them: written and read back the same, and nothing else is taken."""

import json
import math
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from sweep.history.events import (
    Closed,
    Created,
    End,
    Event,
    Goal,
    Moved,
    Opened,
    ParentCheckpoint,
    Row,
    Saved,
    Status,
)
from sweep.ledger import codec

SAVED = Saved(9, "ab" * 32, "ckpt-9.bin", 34_567, 1.5)
EVENTS: tuple[Event, ...] = (
    Closed(3, 0, 5, End.GOAL, Status.PAUSED, "rung 9", 4, error="\udc80", saved=(SAVED,)),
    Closed(3, 0, 5, End.CRASHED, Status.FAILED, "", remembered={"level": {"of": [1, None]}}),
    Created(
        2, {"lr": 1}, {"lr": 1e-3, "net": [64, 64.0]}, 7, 1, (ParentCheckpoint(0, 0, 9, SAVED),)
    ),
    Opened(1, 0, 2, Goal(9, 27.5), "leads", {"scores": [1, 2.5, math.inf], "half": "\ud800"}),
    Moved(1, Status.PRUNED, "waited", was_waiting=True),
)
KINDS = ["outcome", "crash", "trial", "slice", "move"]


def body_of(event: Event) -> str:
    return json.dumps(codec.to_body(event))


@pytest.mark.parametrize("event", EVENTS, ids=KINDS)
def test_an_event_comes_back_as_it_was_whole_numbers_as_whole_numbers(event: Event) -> None:
    found = codec.from_body(event.kind, body_of(event))
    assert found == event
    assert repr(found) == repr(event)  # 9 and 9.0 are equal, and written differently


@pytest.mark.parametrize("event", EVENTS, ids=KINDS)
def test_an_event_is_written_with_the_names_and_order_of_its_fields(event: Event) -> None:
    fields = {name: value for name, value in asdict(event).items() if name != "rows"}
    assert body_of(event) == json.dumps(fields)


def test_the_events_of_a_golden_ledger_are_written_again_byte_for_byte() -> None:
    text = (Path(__file__).parents[2] / "golden" / "ledger-0001.sql").read_text()
    rows = re.findall(
        r"INSERT INTO \"?events\"? VALUES\(\d+,\d+,[\d.e+]+,'(\w+)',\w+,'(.*)'\);", text
    )
    assert len(rows) == 28
    for kind, escaped in rows:
        body = escaped.replace("''", "'")
        now = codec.to_body(codec.from_body(kind, body))
        there = {
            name: now[name] for name in json.loads(body)
        }  # fields that are newer have defaults
        assert json.dumps(there, separators=(",", ":")) == body


def test_rows_come_from_their_own_table() -> None:
    event, rows = EVENTS[0], (Row(9, {"loss": 1.5}),)
    found = codec.from_body(event.kind, body_of(event), rows)
    assert isinstance(found, Closed)
    assert found.rows == rows
    with pytest.raises(codec.DecodeError, match="rows: they belong in a separate table"):
        codec.from_body("outcome", json.dumps({**codec.to_body(event), "rows": [asdict(rows[0])]}))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"trial": -1}, "trial: -1, not a whole number of at least 0"),
        ({"trial": True}, "trial: True, not a whole number of at least 0"),
        ({"trial": 3.0}, "trial: 3.0, not a whole number of at least 0"),
        ({"trial": "3"}, "trial: '3', not a whole number of at least 0"),
        ({"trial": 2**63}, "trial: a number of more than 64 bits, not a whole number"),
        ({"reason": 5}, "reason: 5, not text"),
        ({"reason": None}, "reason: None, not text"),
        ({"end": "gaol"}, "end: 'gaol', not one of 'goal', "),
        ({"end": []}, "end: a list of 0, not one of "),
        ({"remembered": []}, "remembered: a list of 0, not a mapping"),
        ({"dropped": {"a": "b"}}, "dropped: a mapping of 1, not a list"),
        ({"dropped": [7]}, "dropped: 7, not text"),
        ({"saved": [3]}, "saved: 3, not a mapping"),
        ({"saved": [asdict(SAVED) | {"value": "x"}]}, "saved: value: 'x', not a number"),
        ({"saved": [asdict(SAVED) | {"value": 2**63}]}, "saved: value: a number of more"),
        ({"saved": [asdict(SAVED) | {"file": "../x"}]}, "file is '../x'; expected a name without"),
        ({"saved": [asdict(SAVED) | {"of": 1}]}, "saved: the unknown key 'of'"),
        ({"trail": 3}, "the unknown key 'trail'"),
        ({"\ud800": 3}, r"the unknown key '\ud800'"),
        ({"x" * 99: 3}, f"the unknown key '{'x' * 39}…"),
    ],
    ids=str,
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_its_place(change: dict[str, object], said: str) -> None:
    text = json.dumps({**codec.to_body(EVENTS[0]), **change})
    with pytest.raises(codec.DecodeError) as refused:
        codec.from_body("outcome", text)
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize(
    ("kind", "body", "said"),
    [
        ("nothing", "{}", "'nothing' is not a kind of event"),
        (b"outcome", "{}", "b'outcome' is not a kind of event"),
        ("outcome", "[]", "a list of 0, not a mapping"),
        ("outcome", "{}", "no trial"),
        ("outcome", b"{}", "b'{}', not text"),
        ("outcome", "{'a': 1}", "not JSON (Expecting property name"),
        ("outcome", "[" * 100_000, "not JSON ("),
        ("outcome", "[" * 100 + "]" * 100, "more than 64 nested lists and mappings"),
        ("set", '{"budget": {"time_s": "x"}}', "budget: time_s: 'x', not a number"),
        ("set", '{"jobs": 0}', "jobs is 0; expected at least 1"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_is_no_event_is_refused(kind: object, body: object, said: str) -> None:
    with pytest.raises(codec.DecodeError) as refused:
        codec.from_body(kind, body)
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize(
    ("cls", "raw", "said"),
    [
        (str, b"as a database may hold it", "b'as a database may hold it', not text"),
        (bool, 1, "1, not true or false"),
        (float, True, "True, not a number"),
        (Status, "paused", "'paused', not one of 'WAITING', "),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_value_alone_is_read_as_exactly(cls: Any, raw: object, said: str) -> None:
    with pytest.raises(codec.DecodeError) as refused:
        codec.read(cls, raw)
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize(
    "text",
    ["5e-324", "0.1", "1e999", "-0.0", "-0", "9007199254740993", "1" * 40, "NaN", '{"a":1,"a":2}'],
)
def test_a_number_is_read_to_the_bit_as_python_reads_it(text: str) -> None:
    assert repr(codec.parse(text)) == repr(json.loads(text))


def test_rows_that_are_not_a_number_are_equal_when_read_twice() -> None:
    text = '{"loss": NaN}'
    assert codec.read_row(1, text) == codec.read_row(1, text)

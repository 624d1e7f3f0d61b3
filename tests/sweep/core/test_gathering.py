"""Several mistakes of one spec are reported in the order of their lines."""

import pytest

from sweep.core.errors import BadConfig, Gathering, KeyPath, Mistakes, Place, Source, UsageError


def test_an_error_without_a_line_is_sorted_by_the_line_of_its_key() -> None:
    marks: dict[KeyPath, Place] = {
        ("scheduler",): Place("a.yaml", 2),
        ("stop",): Place("a.yaml", 5),
    }
    gathering = Gathering(Source("a.yaml", marks))
    gathering.add(UsageError("somewhere"))
    gathering.add(BadConfig("stop", 0, "more", place=Place("a.yaml", 5)))
    gathering.add(BadConfig("scheduler.max_t", 3, "less"), "scheduler")
    with pytest.raises(Mistakes) as caught:
        gathering.check()
    seen = [str(mistake).partition(": ")[0] for mistake in caught.value.mistakes]
    assert seen == ["scheduler.max_t", "a.yaml:5", "somewhere"]

"""The page about reliability says what the last long run saw, and nothing else."""

from benchmarks.chaos import report
from benchmarks.chaos.parts import PARTS


def test_the_page_is_the_one_that_the_report_makes() -> None:
    page = report.PAGE.read_text("utf-8")
    assert report.insert_figures(page, report.read()) == page


def test_the_report_names_every_part_of_the_long_run_and_no_case_failed() -> None:
    parts = report.read()["parts"]
    assert list(parts) == [part.name for part in PARTS]
    assert {name: its["failed"] for name, its in parts.items() if its["failed"]} == {}


def test_a_part_whose_cases_all_failed_has_a_row_without_figures() -> None:
    failed = {"cases": 1, "failed": 1, "seconds": 41.0, "figures": {}}
    found = report.read()
    found["parts"]["partition_workers"] = failed
    page = report.insert_figures(report.PAGE.read_text("utf-8"), found)
    assert "? workers of 1 sweeps" in page
    assert "| 1 | 0.7 | `partition_workers` |" in page

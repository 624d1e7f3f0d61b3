"""The report in a real browser without a network, on a desk and on a phone, by day and by night."""

import json
import math
import re
import zlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from sweep.operations.report import comparison, page
from sweep.views import lookup
from tests.support import browser, sweeps
from tests.support.browser import Browser
from tests.support.hostile_trainer import EVIL
from tests.sweep.operations.report.test_page import HOSTILE

#: Two objectives, failures and hostile words; a population; rungs and seeds.
BRED = {
    "name": "bred",
    "searcher": "random",
    "trials": 4,
    "scheduler": {"name": "pbt", "perturbation_interval": 3},
    "trackers": (),
}
RUNGS = {"name": "rungs", "searcher": "random", "trials": 40, "trackers": (), "seeds": 2}

#: Settings with names as long as those of PPO, too many to stand beside each other.
CLIMBING = {
    "name": "climbing",
    "searcher": "random",
    "trials": 60,
    "stop": {"training_iteration": 64},
    "scheduler": {"name": "asha", "grace_period": 1, "reduction_factor": 2},
    "trackers": (),
    "space": {"lr": {"loguniform": [0.001, 0.9]}, "a_long_name_of_it": {"uniform": [0, 1]}},
}
WIDE = {
    "name": "wide",
    "searcher": "random",
    "trials": 4,
    "trackers": (),
    "space": {"x": {"uniform": [0.1, 1.0]}}
    | {f"_a_long_name_of_setting_{n}": {"uniform": [0.0, 1.0]} for n in range(10)},
}

CHROMIUM = browser.path()
OFFLINE = "--host-resolver-rules=MAP * ~NOTFOUND"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
]


@pytest.fixture(scope="module")
def tab() -> Iterator[Browser]:
    assert CHROMIUM is not None
    with browser.opened(CHROMIUM, OFFLINE) as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("pages")
    made = []
    for changes in (HOSTILE, BRED, RUNGS, WIDE, CLIMBING):
        folder = sweeps.make(root, **changes)
        sweeps.run(folder)
        made.append(root / f"{folder.name}.html")
        page.write(made[-1], page.build(lookup.read(folder), 0.0))
    return made


@pytest.mark.parametrize("width", [1280, 390])
def test_several_sweeps_are_drawn_on_one_page_and_printed(
    tab: Browser, tmp_path: Path, width: int
) -> None:
    """Their metric is hostile, and there are more of them than colours."""
    made = []
    for number in range(7):
        name = f"a-long-name-of-a-sweep-{number}"
        folder = sweeps.make(tmp_path, **{**HOSTILE, "name": name, "trials": 2, "seeds": 2})
        sweeps.run(folder)
        made.append(lookup.read(folder))
    path = tmp_path / "page.html"
    page.write(path, comparison.build(made, 0.0))
    tab.trouble.clear()
    tab.open_drawn(path, width)
    assert tab.evaluate("document.querySelectorAll('.js-plotly-plot svg.main-svg').length") >= 2
    labels = "document.querySelectorAll('[data-chart=best_curves] .legendtext')"
    names = f"[...{labels}].map(t => t.textContent)"
    assert json.loads(tab.evaluate(f"JSON.stringify({names})")) == [its.folder.name for its in made]
    assert tab.evaluate("typeof window.evil") == "undefined"
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert json.loads(tab.evaluate(RUN_TOGETHER)) == []
    assert (37, 99, 235) in colours(tab.printed())
    assert (tab.trouble, tab.requests) == ([], [])


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_every_picture_is_drawn_without_an_error_and_without_a_network(
    tab: Browser, pages: list[Path], width: int, dark: bool
) -> None:
    for path in pages:
        tab.trouble.clear()
        tab.open_drawn(path, width, dark)
        charts = tab.evaluate("document.querySelectorAll('[data-chart]').length")
        assert tab.evaluate("document.querySelectorAll('.js-plotly-plot svg.main-svg').length")
        assert tab.evaluate("Number(document.documentElement.dataset.drawn)") == charts >= 6
        assert tab.trouble == []
        assert tab.requests == []
        assert tab.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize(("place", "tilted"), [(2, False), (3, True)])
def test_names_of_settings_do_not_run_into_each_other(
    tab: Browser, pages: list[Path], place: int, tilted: bool
) -> None:
    tab.open_drawn(pages[place])
    names = "[...document.querySelectorAll('[data-chart=parallel] .annotation-text')].filter"
    bold = f"{names}(t => t.querySelector('tspan[style*=bold]'))"
    told = tab.evaluate(
        f"JSON.stringify({bold}.map(t => [t.getBoundingClientRect().left, "
        "t.getBoundingClientRect().right, t.getBBox().height]))"
    )
    boxes = json.loads(told)
    assert len(boxes) >= 2
    height = max(box[2] for box in boxes)
    for (left, right, _), (following, _, _) in pairwise(boxes):
        needed = height / math.sin(math.radians(25)) if tilted else right - left
        assert following - left >= needed, boxes


#: Text that stands less than 2 pixels from what is right of it: cells of a row, ticks of an axis.
RUN_TOGETHER = """
JSON.stringify((() => {
  for (const each of document.querySelectorAll("details")) each.open = true;
  const box = (node) => {
    const range = document.createRange();
    range.selectNodeContents(node);
    return range.getBoundingClientRect();
  };
  const rows = [...document.querySelectorAll("tr, .xaxislayer-above, .xaxislayer-below")];
  return rows.flatMap((row) => {
    const its = [...row.querySelectorAll("td, th, .xtick text")].filter((one) => one.textContent);
    const boxes = its.map(box).sort((one, other) => one.left - other.left);
    const close = boxes.slice(1).some((one, index) => one.left - boxes[index].right < 2);
    return close ? [row.textContent] : [];
  });
})())
"""


def test_on_a_phone_no_two_columns_run_together(tab: Browser, pages: list[Path]) -> None:
    for path in pages:
        tab.open_drawn(path, 390)
        assert json.loads(tab.evaluate(RUN_TOGETHER)) == []


def colours(pdf: bytes) -> set[tuple[int, ...]]:
    """The colours that a PDF of Chromium's draws with, of 0 to 255."""
    found = set()
    for packed in re.findall(rb"stream\r?\n(.*?)endstream", pdf, re.DOTALL):
        try:
            drawn = zlib.decompressobj().decompress(packed)
        except zlib.error:  # an image, or a font
            continue
        for three in re.findall(rb"([\d.]+) ([\d.]+) ([\d.]+) (?:rg|RG)\n", drawn):
            found.add(tuple(round(255 * float(part)) for part in three))
    return found


@pytest.mark.parametrize("dark", [False, True])
def test_it_is_printed_with_every_picture_and_in_the_colours_of_the_day(
    tab: Browser, pages: list[Path], dark: bool
) -> None:
    """Also by a person who sees it by night, and has not scrolled down to every picture."""
    charts = "document.querySelectorAll('[data-chart]').length"
    drawn = "document.querySelectorAll('.js-plotly-plot').length"
    tab.trouble.clear()
    tab.open_drawn(pages[-1], dark=dark, every=False)
    assert tab.evaluate(drawn) < tab.evaluate(charts)
    width = "document.querySelector('.js-plotly-plot .main-svg').getAttribute('width')"
    before = tab.evaluate(width)
    printed = colours(tab.printed())
    assert tab.evaluate(drawn) == tab.evaluate(charts)
    blue, orange, green = (37, 99, 235), (232, 89, 12), (10, 125, 90)
    assert {blue, orange, green} <= printed, "curves, bars, what was completed"
    night = {(16, 19, 24), (24, 28, 35), (122, 176, 255), (110, 168, 254)}
    assert not night & printed
    tab.until(f"{width} === '{before}'")
    assert tab.evaluate("document.documentElement.className") == ""
    assert tab.trouble == []


def test_earlier_trials_are_rings_and_earlier_ends_are_lines(tab: Browser, tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path, trials=4, scheduler="fifo", stop={"training_iteration": 3})
    sweeps.run(folder)
    sweeps.run(folder, trials=6, space={"lr": {"loguniform": [0.01, 0.5]}})
    sweeps.run(folder, stop={"training_iteration": 6})
    page.write(tmp_path / "page.html", page.build(lookup.read(folder), 0.0))
    tab.trouble.clear()
    tab.open_drawn(tmp_path / "page.html")
    find = "[...document.querySelectorAll('{}')]"
    points = find.format("[data-chart=slice] .point")
    assert tab.evaluate(f"{points}.filter(p => p.style.fill === 'none').length") == 4
    assert tab.evaluate(f"{points}.length") == 6
    for chart, named in (("learning", "earlier end"), ("search", "other space,later end")):
        words = find.format(f"[data-chart={chart}] .annotation-text")
        assert tab.evaluate(f"{words}.map(t => t.textContent).join()") == named
        lines = find.format(f"[data-chart={chart}] .shapelayer path")
        assert tab.evaluate(f"{lines}.length") == named.count(",") + 1
    assert tab.trouble == []


def test_a_narrow_part_of_a_logarithmic_axis_has_ticks(tab: Browser, tmp_path: Path) -> None:
    space = {"lr": {"loguniform": [1e-6, 1.0]}}
    folder = sweeps.make(
        tmp_path, trials=2, scheduler="fifo", space=space, initial=[{"lr": 0.0018}, {"lr": 0.0061}]
    )
    sweeps.run(folder)
    page.write(tmp_path / "page.html", page.build(lookup.read(folder), 0.0))
    tab.open_drawn(tmp_path / "page.html")
    ticks = "[...document.querySelectorAll('[data-chart=slice] .xtick text')]"
    assert tab.evaluate(f"{ticks}.map(t => t.textContent).join()") == "0.002,0.005"


def test_words_of_users_are_neither_run_nor_links(tab: Browser, pages: list[Path]) -> None:
    tab.open_drawn(pages[0])
    assert tab.evaluate("typeof window.evil") == "undefined"
    assert tab.evaluate("document.querySelectorAll('main img').length") == 0
    links = "[...document.querySelectorAll('a')].map(a => a.getAttribute('href') ?? '#')"
    assert tab.evaluate(f"{links}.every(href => href.startsWith('#'))")
    drawn = "[...document.querySelectorAll('svg text')].map(t => t.textContent).join('|')"
    assert EVIL.rsplit("/", 1)[1] in tab.evaluate(drawn)


def test_a_script_that_got_into_the_page_would_not_be_run(
    tab: Browser, pages: list[Path], tmp_path: Path
) -> None:
    """The page's own policy is what stops it: the words here are put in unescaped."""
    text = pages[0].read_text()
    path = tmp_path / "attacked.html"
    attack = "<script>window.evil=1</script><img src=x onerror=window.evil=1>"
    path.write_text(text.replace("<main>", f"<main>{attack}", 1))
    tab.open_drawn(path)
    assert tab.evaluate("typeof window.evil") == "undefined"
    assert any("Content Security Policy" in line for line in tab.trouble)


def test_no_button_sends_a_picture_anywhere(tab: Browser, pages: list[Path]) -> None:
    tab.open_drawn(pages[0])
    titles = "[...document.querySelectorAll('.modebar-btn')].map(b => b.dataset.title)"
    found = tab.evaluate(f"{titles}.join('|')")
    assert "Download plot" in found
    assert "loud" not in found
    assert "hare" not in found


def test_the_colours_follow_the_system(tab: Browser, pages: list[Path]) -> None:
    ink = "getComputedStyle(document.querySelector('.legendtext, .xtick text')).fill"
    tab.open_drawn(pages[2])
    light = tab.evaluate(ink)
    tab.open_drawn(pages[2], dark=True)
    assert light != tab.evaluate(ink)

"""Whole searches on tables of learning curves, beside their peers; writes docs/search.md.

    python -m benchmarks.search --table curves.npz
    python -m benchmarks.search --tables FOLDER --plays 50 --jobs 8
    python -m benchmarks.search --table curves.npz --spec seeds.yaml --methods seeds random
    python -m benchmarks.search --report-only

A file of `--spec` holds keys of a spec (searcher, scheduler and the like); its stem is the
method's name, and ``{game}`` in it is the game's. What was played stands in ``plays.jsonl``, and is
not played again. Peers are played where they are installed, and numpy is all that they need beside:
for those that want an environment of their own, run it there, with `--play-only`.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.search import figures, log, ours, peers, plays, report

#: Tables of our own trainers, which every search is played on.
OWN_TABLES = Path(__file__).with_name("tables")


def main(words: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search")
    parser.add_argument("--table", type=Path, action="append", default=[], metavar="FILE")
    parser.add_argument("--tables", type=Path, action="append", default=[], metavar="FOLDER")
    parser.add_argument("--spec", type=Path, action="append", default=[], metavar="FILE")
    parser.add_argument("--methods", nargs="*", help="only these; as they are called on the page")
    parser.add_argument("--plays", type=int, default=50)
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 8])
    parser.add_argument("--trainings", type=int, default=plays.MOST, help="the budget of a search")
    parser.add_argument("--jobs", type=int, default=2, help="searches at once")
    parser.add_argument("--out", type=Path, help="a folder for everything; as a rule, its places")
    parser.add_argument("--play-only", action="store_true", help="without page and picture")
    parser.add_argument("--report-only", action="store_true")
    asked = parser.parse_args(words)
    here = asked.out or report.RESULTS.parent
    page = asked.out / report.PAGE.name if asked.out else report.PAGE
    path = here / "plays.jsonl"
    if not asked.report_only:
        methods = {**ours.METHODS, **{path.stem: _keys(path) for path in asked.spec}}
        others = list(peers.kinds())
        if asked.methods is not None:
            _refuse_unknown(parser, asked.methods, [*methods, *others])
            methods = {name: keys for name, keys in methods.items() if name in asked.methods}
            others = [name for name in others if name in asked.methods]
        what = plays.Asked(
            _tables(asked.table, asked.tables),
            methods,
            others,
            asked.plays,
            asked.workers,
            asked.trainings,
        )
        plays.run(what, path, asked.jobs, _say)
    if asked.play_only:
        return
    found = figures.sum_up(log.read(path))
    report.write(found, here / report.RESULTS.name, page)


def _keys(path: Path) -> ours.Keys:
    from ruamel.yaml import YAML  # not at the top: peers are played where there is none

    found: ours.Keys = YAML(typ="safe").load(path)
    return found


def _tables(files: Sequence[Path], folders: Sequence[Path]) -> list[Path]:
    """Every table that is there; a word of those that are not."""
    own = sorted(OWN_TABLES.glob("*.npz"))
    found = [*own, *files]
    for folder in folders:
        inside = sorted(folder.glob("*.npz"))
        found += inside
        if not inside:
            _say(f"{folder} is skipped: there is no table in it")
    for path in found:
        if not path.is_file():
            _say(f"{path} is skipped: there is no such file")
    return [path for path in found if path.is_file()]


def _refuse_unknown(
    parser: argparse.ArgumentParser, asked: Sequence[str], known: Sequence[str]
) -> None:
    if unknown := [name for name in asked if name not in known]:
        parser.error(f"no method is called {unknown[0]!r}; there are: {'; '.join(known)}")


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    main()

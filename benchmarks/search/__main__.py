"""Play whole searches on tables of learning curves, and write docs/search.md.

    python -m benchmarks.search --table curves.npz
    python -m benchmarks.search --tables FOLDER --plays 50 --jobs 8
    python -m benchmarks.search --table curves.npz --spec seeds.yaml --methods seeds random
    python -m benchmarks.search --report-only

A file of `--spec` contains keys of a spec, such as searcher and scheduler. Its stem is the name of
the method, and ``{game}`` in it is replaced by the name of the game. Each search is appended to
``plays.jsonl`` and not repeated. Installed peers are played; besides, they need only numpy. For a
peer with an environment of its own, run the command there with `--play-only`.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.search import figures, log, ours, peers, plays, report


def main(words: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search")
    parser.add_argument(
        "--table", type=Path, action="append", default=[], metavar="FILE", help="a table"
    )
    parser.add_argument("--tables", type=Path, action="append", default=[], metavar="FOLDER")
    parser.add_argument("--spec", type=Path, action="append", default=[], metavar="FILE")
    parser.add_argument(
        "--methods", nargs="*", help="names of methods, as on the page; by default all"
    )
    parser.add_argument("--plays", type=int, default=50, help="plays of each game")
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 8])
    parser.add_argument(
        "--trainings", type=int, default=plays.MOST, help="budget of a search in full trainings"
    )
    parser.add_argument("--jobs", type=int, default=2, help="searches at the same time")
    parser.add_argument(
        "--out", type=Path, help="folder for all files, instead of the repository's"
    )
    parser.add_argument("--play-only", action="store_true", help="do not write page and picture")
    parser.add_argument("--report-only", action="store_true", help="play no search")
    options = parser.parse_args(words)
    folder = options.out or report.RESULTS.parent
    page = options.out / report.PAGE.name if options.out else report.PAGE
    path = folder / "plays.jsonl"
    if not options.report_only:
        methods = {**ours.METHODS, **{path.stem: _keys(path) for path in options.spec}}
        others = list(peers.methods())
        if options.methods is not None:
            _refuse_unknown(parser, options.methods, [*methods, *others])
            methods = {name: keys for name, keys in methods.items() if name in options.methods}
            others = [name for name in others if name in options.methods]
        selection = plays.Selection(
            _tables(options.table, options.tables),
            methods,
            others,
            options.plays,
            options.workers,
            options.trainings,
        )
        plays.run(selection, path, options.jobs, _print)
    if options.play_only:
        return
    results = folder / report.RESULTS.name
    # plays.jsonl is not committed: without it, the page is written from the figures alone
    from_figures = options.report_only and not path.exists()
    found = report.read(results) if from_figures else figures.sum_up(log.read(path))
    report.write(found, results, page)


def _keys(path: Path) -> ours.Keys:
    from ruamel.yaml import YAML  # not at the top: environments of peers lack it

    keys: ours.Keys = YAML(typ="safe").load(path)
    return keys


def _tables(files: Sequence[Path], folders: Sequence[Path]) -> list[Path]:
    """Return the tables that exist; print a line for each missing one."""
    own = sorted(report.OWN_TABLES.glob("*.npz"))
    paths = [*own, *files]
    for folder in folders:
        tables = sorted(folder.glob("*.npz"))
        paths += tables
        if not tables:
            _print(f"{folder} is skipped: there is no table in it")
    for path in paths:
        if not path.is_file():
            _print(f"{path} is skipped: there is no such file")
    return [path for path in paths if path.is_file()]


def _refuse_unknown(
    parser: argparse.ArgumentParser, names: Sequence[str], known: Sequence[str]
) -> None:
    if unknown := [name for name in names if name not in known]:
        parser.error(f"no method is called {unknown[0]!r}; there are: {'; '.join(known)}")


def _print(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    main()

"""Several sweeps side by side in Python: what `sweep.load` returns for several names."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweep.ledger.folder import Folder
from sweep.views import comparison, lookup

if TYPE_CHECKING:
    from pandas import DataFrame


class Comparison:
    """Several sweeps with the same metric and mode, side by side.

    Each method reads the present state of the sweeps anew. Creation and methods raise UsageError if
    a sweep is named twice, or has another metric or mode than the first.
    """

    def __init__(self, folders: Sequence[Folder]) -> None:
        self._folders = tuple(folders)
        self._data()  # refuses sweeps that cannot be compared

    def __repr__(self) -> str:
        return f"<comparison of {', '.join(self.names)}>"

    def _repr_html_(self) -> str:
        """Return the results as an HTML table, for notebooks."""
        shown: str = self.results().to_html(index=False)
        return shown

    def _present_state(self, curves: bool = False) -> list[lookup.Sweep]:
        """Read the present state of all sweeps, with their learning curves if requested."""
        return [lookup.read(folder, curves) for folder in self._folders]

    def _data(self) -> dict[str, Any]:
        """Return the data of `views.comparison.compare` for all sweeps.

        Its keys are ``metric``, ``mode``, ``settings`` (names), ``shared`` (those that all sweeps
        search) and ``sweeps`` (a mapping for each). Raises UsageError if two sweeps are one, or
        have different metrics or modes.
        """
        return comparison.compare(self._present_state())

    @property
    def names(self) -> list[str]:
        """The names of the sweeps."""
        return [folder.name for folder in self._folders]

    def results(self) -> "DataFrame":
        """Return one row per sweep, with the settings of its best trial as ``config.NAME``.

        The other columns are ``name``, ``state``, ``trial`` (the best), ``expected`` (its score on
        a new seed), ``expected_error`` (the standard error), ``score``, ``seeds`` (of the best
        trial), number of ``trials``, environment ``steps`` and training ``seconds`` of all trials,
        ``searcher``, ``scheduler``, and the spec's keys ``score`` (as ``score_of``) and
        ``aggregate``. A setting without a value is missing (None or NaN), and so are the numbers
        of a best trial that does not exist; its ``seeds`` are 0.
        """
        from pandas import DataFrame

        data = self._data()
        rows = [
            {key: row[key] for key in comparison.COLUMNS}
            | {f"config.{name}": row["settings"].get(name) for name in data["settings"]}
            for row in data["sweeps"]
        ]
        return DataFrame(rows)

    def settings(self) -> "DataFrame":
        """Return one row per setting of the best trials, those that all sweeps search first.

        Columns ``setting``, and two for each sweep: the value under its name, and ``NAME.kind``,
        which is ``searched``, ``computed``, ``fixed``, ``inactive`` or ``absent``; the last two
        have the value None. Fixed settings that are the same in all sweeps are left out.
        """
        from pandas import DataFrame

        data = self._data()
        columns: dict[str, Any] = {"setting": data["settings"]}
        for row in data["sweeps"]:
            values = [row["settings"].get(name) for name in data["settings"]]
            columns[row["name"]] = values
            columns[f"{row['name']}.kind"] = [row["kinds"][name] for name in data["settings"]]
        return DataFrame(columns, dtype=object)

    def report(self, path: str | Path = "comparison.html") -> Path:
        """Write one HTML file that shows the sweeps side by side; return its path.

        An existing file is replaced. Raises StorageError if the file cannot be written, or if
        Plotly is not installed.
        """
        from sweep.operations.report import comparison as compared
        from sweep.operations.report import page

        written = Path(path)
        page.write(written, compared.build(self._present_state(curves=True), time.time()))
        return written

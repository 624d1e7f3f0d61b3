"""Runs a notebook's code cells as a kernel does: in ``__main__``, which has no file.

    python -c "from tests.support import notebook; notebook.run('docs/notebook.ipynb')"

Prints one line of JSON for each cell: what the last expression in it shows, or null.
"""

import ast
import json
from pathlib import Path
from typing import Any

import __main__


def code_cells(path: Path) -> list[dict[str, Any]]:
    """The code cells of a notebook."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def shown_in(cell: dict[str, Any]) -> str | None:
    """The committed result of a cell, as text."""
    for output in cell["outputs"]:
        if output["output_type"] == "execute_result":
            return "".join(output["data"]["text/plain"])
    return None


def run(path: str) -> None:
    """Run all code cells."""
    for number, cell in enumerate(code_cells(Path(path))):
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        name = f"<cell {number}>"
        exec(compile(tree, name, "exec"), vars(__main__))  # noqa: S102 our own notebook
        result = None
        if isinstance(last, ast.Expr):
            shown = eval(compile(ast.Expression(last.value), name, "eval"), vars(__main__))  # noqa: S307
            result = repr(shown)
        print(json.dumps(result))  # noqa: T201 read by the test

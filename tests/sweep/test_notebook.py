"""Sweeps in the kernel of a notebook: one picture that takes its own place, and no advice.

A real kernel runs where `ipykernel` and `nbclient` are installed.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import REPOSITORY, environment

#: What tqdm takes for the kernel of a notebook that has no widgets.
LIKE_A_KERNEL = """
import sys, types, warnings
for name in ("IPython", "IPython.display", "ipykernel.zmqshell"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["IPython"].get_ipython = lambda: None
sys.modules["ipywidgets"] = None
warnings.simplefilter("always")
"""


def run(code: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", f"{LIKE_A_KERNEL}{code}"]
    return subprocess.run(
        command, env=environment(), capture_output=True, text=True, check=False, timeout=300
    )


def test_tqdm_gives_no_advice_about_widgets_in_a_notebook() -> None:
    alone = run("import tqdm.auto")
    assert "IProgress not found" in alone.stderr, "tqdm warns no more: nothing is to be kept away"
    with_sweep = run("import sweep\nsweep.run\nimport tqdm.auto, optuna")
    assert ("IProgress" in with_sweep.stderr, with_sweep.returncode) == (False, 0)


CELLS = [
    "import sweep\nfrom trainables import report",
    "def train(config):\n    for i in range(3):\n        report({'loss': config['x'] - i})",
    "found = sweep.run(train, name='cells', space={'x': {'uniform': [0, 1]}}, metric='loss',\n"
    "                  mode='min', trials=3, jobs=1)",
    "found",
]


@pytest.mark.slow
def test_a_cell_of_a_real_kernel_shows_one_picture_that_takes_its_own_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ipykernel")
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(REPOSITORY), *sys.path]))
    shown: list[tuple[str, Any]] = []

    class Client(nbclient.NotebookClient):  # type: ignore[misc, name-defined]
        """Notes what the kernel says of a cell."""

        def process_message(self, message: Any, cell: Any, index: int) -> Any:
            shown.append((message["header"]["msg_type"], message["content"]))
            return super().process_message(message, cell, index)

    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    resources = {"metadata": {"path": str(tmp_path)}}
    Client(book, timeout=300, kernel_name="python3", resources=resources).execute()
    kinds = [kind for kind, _ in shown]
    assert kinds.count("display_data") == 1
    pictures = [told["data"]["text/plain"] for kind, told in shown if kind == "update_display_data"]
    assert len(pictures) > 2
    assert pictures[-1] == "", "the picture goes when the sweep has ended"
    assert all("cells  tpe" in picture for picture in pictures[:-1])
    streams = [told for kind, told in shown if kind == "stream"]
    assert [told["text"] for told in streams if told["name"] == "stderr"] == []
    said = "".join(told["text"] for told in streams)
    assert said.count("cells finished: 3 of 3 trials") == 1
    assert "<th>trial</th>" in book.cells[-1].outputs[0]["data"]["text/html"]

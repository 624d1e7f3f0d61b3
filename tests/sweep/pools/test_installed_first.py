"""Files that are called as what is installed disturb no process of a sweep."""

from pathlib import Path

import pytest

from tests.support.command_line import start, write_spec


@pytest.mark.slow
def test_a_file_called_as_an_installed_package_is_named_and_never_imported(tmp_path: Path) -> None:
    names = ("sweep", "trainables", "optuna")
    for name in names:
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong one was imported')\n")
    spec = write_spec(tmp_path, trials=2, stop={"training_iteration": 1}, scheduler="fifo")
    # As the installed program: `python -m` would put the current folder first itself.
    program = [
        "-c",
        "import sys; del sys.path[0]; from sweep.cli.main import main; sys.exit(main())",
    ]
    for words in (["run", spec], ["resume", "demo", "--trials", 4]):
        begun = start(*words, cwd=tmp_path, program=program)
        out, err = begun.communicate(timeout=240)
        assert begun.returncode == 0, out + err
        assert "the wrong one was imported" not in out + err
        if words[0] == "run":
            for name in names:
                assert f"{name}.py is not imported: {name}, which is installed, comes first" in err

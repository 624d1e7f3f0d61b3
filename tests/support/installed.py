"""Packages as somebody else would install them: modules in a folder, and what they are called."""

from collections.abc import Mapping
from pathlib import Path


def install(
    site: Path, name: str, files: Mapping[str, str], points: Mapping[str, Mapping[str, str]]
) -> None:
    """Write package `name` to `site`, which stands for a folder of installed packages.

    Args:
        site: on the import path of whoever uses it.
        name: of the package and of its distribution.
        files: module → its text.
        points: group → entry point → ``package.module:Name``.
    """
    package, told = site / name, site / f"{name}-1.0.dist-info"
    for folder in (package, told):
        folder.mkdir(parents=True)
    (package / "__init__.py").touch()
    for module, text in files.items():
        (package / f"{module}.py").write_text(text)
    (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [
        line
        for group, named in points.items()
        for line in (f"[{group}]", *(f"{one} = {path}" for one, path in named.items()))
    ]
    (told / "entry_points.txt").write_text("\n".join(lines) + "\n")

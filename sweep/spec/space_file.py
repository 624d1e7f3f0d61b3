"""The space of a YAML file: a whole spec's key ``space``, or a file that is nothing but a space."""

from collections.abc import Mapping
from pathlib import Path

from sweep.source import Source
from sweep.space import Space
from sweep.spec import SweepSpec, text_of, yaml_source


def read(path: Path, spec: SweepSpec) -> Space:
    """The space in `path`, without what `spec` forbids.

    Raises:
        UsageError: it cannot be read, or it cannot work.
    """
    raw, source = yaml_source.read(text_of(path), str(path))
    inner = raw.get("space")
    if isinstance(inner, Mapping) and ("trainable" in raw or len(raw) == 1):
        return Space.parse(inner, source, spec.forbid)
    marks = {("space", *place): at for place, at in source.marks.items()}
    return Space.parse(raw, Source(source.file, marks), spec.forbid)

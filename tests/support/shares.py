"""File systems that several machines share, as far as this process knows."""

from pathlib import Path

import pytest

from sweep.ledger import tables


def share_everything(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Take every file system for NFS; the list that says so is written into `folder`."""
    mounts = folder / "mountinfo"
    mounts.write_text("22 1 0:40 / / rw - nfs4 server:/export rw\n")
    monkeypatch.setattr(tables, "_MOUNTS", mounts)

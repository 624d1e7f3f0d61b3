"""Make the folder and the ledger of a new sweep, completely or not at all."""

import contextlib
import errno
import os
from pathlib import Path

from sweep import spec as specs
from sweep.core import pickled
from sweep.core.errors import StorageError
from sweep.driver.start.creation import learning, provenance
from sweep.driver.start.creation.resolving import Resolved
from sweep.driver.tracking import sync
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.slices import store

#: Environment variable that is not empty if a language model starts the sweep.
BY_A_MODEL = "SWEEP_BY_A_MODEL"


def create(
    folder: Folder,
    resolved: Resolved,
    source: str,
    tracking_uri: str | None = None,
    storage: str | None = None,
    checkpoints: str | None = None,
) -> list[str]:
    """Create the folder and the ledger of a new sweep, completely or not at all; return remarks.

    Results of earlier sweeps that the searcher uses are copied into the ledger, and a script's
    trainable is pickled into the folder. The remarks are about these sweeps.

    Args:
        source: text of the spec.
        tracking_uri: URI of MLflow, stored beside the ledger for `sweep resume`; None for its own
            file.
        storage: URL of the ledger's server; None for a file.
        checkpoints: URL of the checkpoints' storage, stored beside the ledger; None for the folder.

    Raises:
        NameTaken: a sweep of this name exists.
        StorageError: the folder of all sweeps cannot be created.
        BadConfig: an earlier sweep cannot be used.
    """
    learnt = learning.read(resolved.spec, resolved.searcher.options, folder.root)
    _make_root(folder.root)
    with folder.creating() as draft:
        if tracking_uri is not None:
            sync.write_tracking(draft.tracking_uri, tracking_uri)
        draft.spec.write_text(source, encoding="utf-8")
        if os.environ.get(BY_A_MODEL):
            draft.by_a_model.touch()
        of_script = pickled.is_of_script(resolved.spec.trainable)
        digest = pickled.digest_of(resolved.trainable) if of_script else None
        recorded = {
            **provenance.current(resolved.trainable, digest),
            "paths": list(resolved.paths),
            "time_attr": resolved.scheduler.time_attr,
            "levels": list(resolved.scheduler.levels),
        }
        text = specs.canonical_json(resolved.spec)
        made = Ledger.create(draft.ledger, folder.name, text, recorded, storage)
        with contextlib.closing(made) as ledger:
            if of_script:
                pickled.write(draft.trainable, resolved.trainable, ledger.sweep_id)
            if learnt.sweeps:
                ledger.append(None, [learnt.event])
            if checkpoints is not None:
                store.begin(draft, checkpoints, ledger.name, ledger.sweep_id)
    return list(learnt.remarks)


def _make_root(root: Path) -> None:
    """Create the folder of all sweeps if it does not exist.

    Raises StorageError if it cannot be created; the message says where and why. A PermissionError
    is passed on.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
    except PermissionError:
        raise  # the command line adds the folder's owner
    except OSError as error:
        there = next(above for above in (root, *root.absolute().parents) if os.path.lexists(above))
        why = "it is not a folder" if not there.is_dir() else error.strerror
        if error.errno == errno.ENOENT:  # as in /proc
            why = "its file system does not allow new folders"
        raise StorageError(
            f"cannot create the folder {root} in {there}: {why}; choose another root folder "
            "with --root"
        ) from error

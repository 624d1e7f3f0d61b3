"""The command that accepts what somebody else signed: trust."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from sweep.commands import answering, json_option


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE…", type=click.Path(path_type=Path))
@json_option
def trust(files: tuple[Path, ...], as_json: bool) -> None:
    """Let checkpoints that somebody else signed be restored: they may run code as you.

    It counts for these very files, wherever they lie, and for you alone.
    """
    from trainables import checkpoint_file, signing

    with answering(as_json) as answer:
        trusted = [_described(file, *checkpoint_file.identify(file)) for file in files]
        signing.trust(found["digest"] for found in trusted)
        answer(trusted, _lines)


def _described(file: Path, digest: str, header: dict[str, Any]) -> dict[str, Any]:
    signer = header.get("key")
    return {"file": str(file), "digest": digest, "step": header["step"], "signed_by": signer}


def _lines(trusted: Sequence[dict[str, Any]]) -> str:
    from trainables.errors import printable

    return "\n".join(
        printable(f"trusted: {found['file']}, signed by {found['signed_by'] or 'nobody'}")
        for found in trusted
    )

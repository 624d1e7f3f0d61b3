"""The token that a policy server and its clients share: of a file, a variable, or made once."""

import contextlib
import os
import secrets
from pathlib import Path

from trainables.errors import TrainableError

#: Environment variable with the token.
VARIABLE = "SWEEP_POLICY_TOKEN"
#: Minimum length of a token, in characters.
LEAST = 16
#: Maximum length of a token, in characters.
MOST = 4096


class TokenError(TrainableError):
    """There is no usable token for server and client; the message says what to do."""


def shared_token(file: str | Path | None = None) -> str:
    """Return the secret that clients send to the policy server with every request.

    It is read from `file`, else from the variable ``SWEEP_POLICY_TOKEN``, else from this user's own
    file, ``sweep/policy-token`` in ``$XDG_CONFIG_HOME`` or ``~/.config``, which is made by the
    first of server and client; other users cannot read it. Raises TokenError if a file is missing
    or others can read it, or the token is not valid.
    """
    if file is not None:
        return _read(Path(file).expanduser().resolve())  # secrets are mounted as links
    if (given := os.environ.get(VARIABLE)) is not None:
        return _checked(given, VARIABLE)
    path = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser()
    path = path / "sweep" / "policy-token"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = path.with_name(f".{path.name}-{os.getpid()}-{secrets.token_hex(8)}")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as whole:
            whole.write(secrets.token_hex(32) + "\n")
        with contextlib.suppress(FileExistsError):  # never over another one
            os.link(draft, path)
        draft.unlink()
    return _read(path)


def _read(path: Path) -> str:
    """Return a file's token; raises TokenError if it is missing, invalid or readable by others."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(file.fileno())
            content = file.read(MOST + 1)
    except OSError as error:
        raise TokenError(
            f"{path}: {error.strerror}; name a file with the token (token_file), or set {VARIABLE}"
        ) from None
    if status.st_mode & 0o077:
        raise TokenError(f"{path}: others can read this token; run chmod 600 {path}")
    return _checked(content.decode("ascii", "replace"), str(path))


def _checked(text: str, place: str) -> str:
    """Return the token in `text` without spaces; TokenError about `place` if it is invalid."""
    token = text.strip()
    if not (LEAST <= len(token) <= MOST and token.isascii() and token.isprintable()):
        raise TokenError(
            f"{place}: there is no valid token; write one of {LEAST} to {MOST} printable "
            "ASCII characters in one line, for example the output of openssl rand -hex 32"
        )
    return token

"""Ports on 127.0.0.1 for servers that tests start."""

import random
import socket

#: Below the ports that the system gives to connections (`ip_local_port_range`), above Ray's.
_FIRST, _LAST = 20_000, 32_000
#: Not the generator that tests seed: two workers would try the same ports in the same order.
_CHOICE = random.SystemRandom()


def free_port() -> int:
    """Return a port on which nobody listens, and that no other test is given."""
    while True:
        port = _CHOICE.randint(_FIRST, _LAST)
        if _is_free(port) and _claim(port):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
        try:
            listening.bind(("", port))
        except OSError:
            return False
        return True


def _claim(port: int) -> bool:
    """Claim a port for this process; return False where another one has it.

    The name of an abstract socket of Linux can be taken once on a machine, and is free again as
    soon as the process has ended.
    """
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0sweep-tests-{port}")
    except OSError:
        claim.close()
        return False
    claim.detach()  # it stays open
    return True

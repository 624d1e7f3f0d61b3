"""The command line as on another machine that sees the same folders.

    python -m tests.support.other_machine NAME LEASE_S resume demo …

It has another name and another kernel, whose locks it does not share, and waits `LEASE_S` seconds
for a sign of life.
"""

import sys

from sweep.cli import main
from sweep.ledger import folder, hold, lease
from sweep.ledger.lease import Host


def become(name: str, lease_s: float, renew_s: float) -> None:
    """Make this process one of another machine."""
    lease.this_host = lambda: Host(name, f"kernel of {name}")
    folder.LOCK = f"run.lock.{name}"
    hold.LEASE_S, hold.RENEW_S = lease_s, renew_s


if __name__ == "__main__":
    become(sys.argv[1], float(sys.argv[2]), 0.1)
    sys.exit(main.main(sys.argv[3:]))

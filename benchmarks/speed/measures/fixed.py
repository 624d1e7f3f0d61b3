"""A figure that is given: a limit, or what was measured once. ``python -m … NUMBER``."""

import sys

from benchmarks.speed.measures import clock

if __name__ == "__main__":
    clock.tell(float(sys.argv[1]))

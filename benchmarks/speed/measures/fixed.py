"""Print the figure given as argument: a limit, or an earlier measurement.

python -m benchmarks.speed.measures.fixed NUMBER
"""

import sys

from benchmarks.speed.measures import clock

if __name__ == "__main__":
    clock.print_figure(float(sys.argv[1]))

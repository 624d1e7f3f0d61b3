"""What every test may rely on: a terminal's signals arrive, whatever started the tests.

A background job of a shell and nohup ignore SIGINT and SIGHUP, and children inherit that.
"""

import signal

signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

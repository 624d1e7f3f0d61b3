"""The program `sweep`, also ``python -m sweep``; Ctrl-C ends it with one line."""


def entry() -> int:
    """Run one command. Returns the exit code.

    Imports take most of the start, so they are inside ``try``, where Ctrl-C is handled.
    """
    try:
        from sweep.cli import main

        return main.entry()
    except KeyboardInterrupt:
        import sys

        sys.stderr.write("sweep: interrupted\n")
        return 130  # the exit code of shells for SIGINT


if __name__ == "__main__":
    raise SystemExit(entry())

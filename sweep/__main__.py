"""The program `sweep`, also ``python -m sweep``; Ctrl-C ends it with one line."""


def entry() -> int:
    """Run the command in this process's arguments, and return its exit code.

    Ctrl-C prints one line and returns 130, also during the imports, which take most of the start.
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

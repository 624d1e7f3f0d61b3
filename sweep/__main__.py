"""The program `sweep`, also as ``python -m sweep``; from its start on Ctrl-C ends it in a line."""


def entry() -> int:
    """Run one command as a process of its own; returns the exit code.

    What the command line imports takes most of the start, so nothing is imported before this.
    """
    try:
        from sweep.cli import main

        return main.entry()
    except KeyboardInterrupt:
        import sys

        sys.stderr.write("sweep: interrupted\n")
        return 130  # as a shell says of SIGINT, and main


if __name__ == "__main__":
    raise SystemExit(entry())

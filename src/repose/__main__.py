"""`repose` and `python -m repose`: the command line."""

import sys


def main() -> None:
    """Run the command line. Ctrl-C ends it quietly, also while its libraries are being loaded."""
    try:
        from repose.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()

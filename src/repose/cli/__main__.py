"""`python -m repose.cli`: the command line."""

from repose.cli.main import main

main()

"""`python -m repose`: the command line."""

from repose.cli.main import main

main()

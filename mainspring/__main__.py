"""`python -m mainspring`: the command line."""

from mainspring.cli import main

main()

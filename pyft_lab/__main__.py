"""`python -m pyft_lab`, for a source tree that is not installed."""

from pyft_lab.command.cli import main

main()

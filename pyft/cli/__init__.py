"""The `pyft` command: one file per sub-command."""

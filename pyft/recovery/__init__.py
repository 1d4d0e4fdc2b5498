"""Decisions of recovery, without input or output: pyft/agent/recovery.py acts on them."""

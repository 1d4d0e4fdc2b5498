"""Decisions of recovery, without input or output: pyft/agent/lifecycle acts on them."""

"""Connections between hosts: which may speak, and what is checked."""

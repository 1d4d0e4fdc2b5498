"""Connections between hosts: who may speak, and what is checked."""

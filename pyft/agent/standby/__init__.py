"""Servers that have started but have no rank yet, and the memory that they hold."""

"""Errors that a user of the lab can see: one sentence, the values in [brackets]."""

from __future__ import annotations


class LabError(Exception):
    """Base of what the lab raises on purpose."""


class OutOfRangeError(LabError):
    """A formula was asked for where it does not hold."""


class SpecError(LabError):
    """A file that the user wrote has something in it that cannot be used."""

"""Flushes: lines of a job on disk, from which it is resumed when all of it was lost."""

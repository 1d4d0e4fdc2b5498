"""Runs mechanisms against the same faults: cells of a matrix, each in a folder of its own."""

"""Simulator of a cluster's faults: traces are drawn once, and every mechanism meets the same ones."""

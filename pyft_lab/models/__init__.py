"""Formulas: pure functions with the units in their arguments' names, and where they hold."""

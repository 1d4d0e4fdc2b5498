"""A host without a place, and how it takes one."""

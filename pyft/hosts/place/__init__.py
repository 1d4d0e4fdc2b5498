"""A place on its host: its lease, what the head decides about its images, their mirrors."""

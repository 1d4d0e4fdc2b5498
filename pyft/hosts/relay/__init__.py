"""The relay of a place: carries connections between places over the head, and comes back with its image."""

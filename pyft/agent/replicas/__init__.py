"""What ranks with the same contents do for each other, as pyft.recovery decides."""

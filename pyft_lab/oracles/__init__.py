"""What must hold of a run, by what it has left in its folder. Each oracle can fail."""

"""What runs in the ranks. The only part of the lab that imports torch outside of functions."""

"""What operators ask of a running job, and what they are told."""

"""What to set for a job: searched with formulas, decided by simulation."""

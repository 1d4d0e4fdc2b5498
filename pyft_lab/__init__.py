"""`pyft lab`: ways to survive faults, measured, modelled and simulated. Imports nothing of pyft."""

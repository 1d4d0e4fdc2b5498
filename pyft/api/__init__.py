"""What Python programs call: `pyft.run`, `pyft.status`, `pyft.inject`, `pyft.faults`."""

"""The head: what it knows and decides, its ledger, and the process itself."""

"""The head's ledger in Kubernetes: which head decides, and what has been decided."""

"""The head's ledger in etcd: which head decides, and what has been decided."""

"""pyft runs an unmodified PyTorch CUDA script against a server process that owns the GPU."""

__version__ = "0.1.0"

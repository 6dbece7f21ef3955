"""Maya: what an unmodified PyTorch training job would do on GPUs that are not there."""

__version__ = "0.1.0"

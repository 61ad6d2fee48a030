"""Errors, file I/O, random seeds, progress, distributed training, settings and shared types."""

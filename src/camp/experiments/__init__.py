"""Experiments: the run loop, its folder, and what is compared."""

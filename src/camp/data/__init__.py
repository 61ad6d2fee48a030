"""Datasets, image decoding, splits, tasks, augmentations and the view bank."""

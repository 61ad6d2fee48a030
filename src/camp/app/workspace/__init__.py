"""Workspaces: categories learned from batches of images, and decisions about them."""

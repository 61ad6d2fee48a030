"""Classifiers: from features to categories."""

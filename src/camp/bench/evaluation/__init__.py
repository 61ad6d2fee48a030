"""Evaluation of a method on the test images: pure functions of arrays, one metric per module."""

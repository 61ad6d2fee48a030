"""Prediction of the categories of images with a learned workspace."""

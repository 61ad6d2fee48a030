"""Prediction and learning on several machines."""

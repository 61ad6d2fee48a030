"""Prediction over HTTP."""

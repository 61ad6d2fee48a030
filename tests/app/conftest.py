"""Puts this folder on the path, so that tests import the small_* modules beside it."""

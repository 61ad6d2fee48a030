"""Types and constants that every layer shares."""

UNLABELLED = -1
"""Label of an image whose class is not given."""

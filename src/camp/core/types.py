"""Types and constants that every layer shares."""

UNLABELLED = -1
"""Label of an image whose class is not given."""
FALSE_ALARMS = 0.05
"""Default share of the images of known categories that are called unknown."""

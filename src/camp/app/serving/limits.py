"""Limits of the prediction server."""

MAX_BYTES = 64 << 20
"""Size limit of a picture."""
MAX_BYTES_WAITING = 256 << 20
"""Size limit of all pictures without an answer."""
MAX_WAITING = 64
"""Number of pictures without an answer from which on requests are refused."""
MAX_BATCH = 16
"""Number of pictures that are predicted together."""
LARGE = 24_000_000
"""Pixels of a picture from which on it is decoded alone; the largest that is accepted takes half a gigabyte."""

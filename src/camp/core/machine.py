"""What the machine offers, on every supported system."""

import os


def available_cores() -> int:
    """Return the number of cores that this process may use; where the system does not say, that of the machine."""
    if hasattr(os, "sched_getaffinity"):  # Linux alone has it
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

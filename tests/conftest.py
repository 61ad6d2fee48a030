"""One core a test process: the networks here are small, and pytest brings a process a core."""

import os

# Before torch is imported, and for the processes that tests start: numbers depend on the count of threads.
os.environ["OMP_NUM_THREADS"] = "1"

"""Executors carry out the runs of a study: in this process, in processes of this machine, or on a Ray cluster."""

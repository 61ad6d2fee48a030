"""The experiments of the paper: runs, evaluation, studies and reports."""

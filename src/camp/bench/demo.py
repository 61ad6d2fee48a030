"""The demonstration: CAMP and fine-tuned GCD on scikit-learn's digits, with a small network from scratch."""

from pathlib import Path

from camp.bench.api import run
from camp.core.progress import Progress

OPTIONS = {
    "tasks": 2,
    "novel_fraction": 0.2,
    "labelled_fraction": 0.5,
    "backbone": "conv-tiny",
    "epochs": 30,
    "projector_width": 256,
    "seed": 0,
}
"""2 tasks of 4 known digits and 1 novel digit; half of the images of known digits are labelled."""


def run_demo(out: Path, progress: Progress) -> list[Path]:
    """Run both methods below `out`, or continue them; returns their folders."""
    folders = []
    for method in ("camp", "gcd"):
        progress.note(f"{method.upper()} on digits: 2 tasks of 4 known and 1 novel class, half of the labels")
        folders.append(run("digits", out / method, method=method, quiet=progress.quiet, **OPTIONS).folder)
    return folders

"""`camp demo`: CAMP and fine-tuned GCD on scikit-learn's digits, with a small network from scratch."""

from camp.cli.output import show_runs
from camp.cli.shared import given_path
from camp.core.progress import Progress

OPTIONS = {
    "tasks": 2,
    "novel_fraction": 0.2,
    "labelled_fraction": 0.5,
    "backbone": "conv-tiny",
    "epochs": 30,
    "projector_width": 256,
}
"""2 tasks of 4 known digits and 1 novel digit; half of the images of known digits are labelled."""


def demo(out: str = "runs/demo", quiet: bool = False) -> None:
    """Compare CAMP with fine-tuned GCD on scikit-learn's digits and write a page, in a few minutes.

    Args:
        out: Folder for the two runs and the page.
        quiet: Do not show progress.
    """
    from camp.bench.api import run

    folder, progress = given_path(out, "--out"), Progress(quiet)
    for method in ("camp", "gcd"):
        progress.note(f"{method.upper()} on digits: 2 tasks of 4 known and 1 novel class, half of the labels")
        run("digits", folder / method, method, quiet, **OPTIONS)
    show_runs([folder / "camp", folder / "gcd"], folder / "report.html")

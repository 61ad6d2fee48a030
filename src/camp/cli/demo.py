"""`camp demo`: CAMP and GCD on scikit-learn's digits."""

from pathlib import Path

from camp.cli.output import show_runs


def demo(out: str = "runs/demo", quiet: bool = False) -> None:
    """Compare CAMP with fine-tuned GCD on scikit-learn's digits and write a page, in a few minutes.

    Args:
        out: Folder for the two runs and the page.
        quiet: Do not show progress.
    """
    from camp.bench.demo import run_demo
    from camp.core.progress import Progress

    show_runs(run_demo(Path(out), Progress(quiet)), Path(out) / "report.html")

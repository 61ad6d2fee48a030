"""`camp demo`: CAMP and GCD on scikit-learn's digits."""

from pathlib import Path

import tyro

from camp.cli.output import show_runs


def demo(words: list[str]) -> int:
    """Carry out the command."""
    return tyro.cli(_demo, args=words, prog="camp demo")


def _demo(out: str = "runs/demo", quiet: bool = False) -> int:
    """Compare CAMP with fine-tuned GCD on scikit-learn's digits and write a page, in a few minutes.

    Args:
        out: Folder for the two runs and the page.
        quiet: Do not show progress.
    """
    from camp.bench.demo import run_demo
    from camp.core.progress import Progress

    show_runs(run_demo(Path(out), Progress(quiet)), Path(out) / "report.html")
    return 0

"""Filling view banks before the runs that read them, with more cores than one run has."""

from collections.abc import Callable

from camp.bench.experiment import BlockMaker, Experiment
from camp.bench.settings import RunSettings
from camp.core.progress import Progress


def fill_bank(
    settings: RunSettings, progress: Progress, made_by: Callable[[set[str]], BlockMaker] | None = None
) -> None:
    """Add all images of a run with `settings` to its view bank; see `Experiment.fill_bank`."""
    Experiment.prepare(settings).fill_bank(progress, made_by)

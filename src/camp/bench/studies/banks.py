"""View banks made before the runs that read them, by more cores than one run has."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from camp.bench.experiment import Run
from camp.bench.settings import RunSettings
from camp.core.progress import Progress
from camp.data.bank.fill import Block, fill

_NOWHERE = Path(os.devnull) / "nowhere"

Making = Callable[[dict[str, bytes], list[str]], Iterable[Block]]
"""Makes blocks of views out of fingerprints and the keys that are missing."""


def prepared(settings: RunSettings, progress: Progress) -> Run:
    """A run that has its data set, split and backbone, and no folder: it is not to be begun."""
    run = Run(settings, _NOWHERE, progress, "")
    run.prepare()
    return run


def fill_bank(
    settings: RunSettings, progress: Progress, made_by: Callable[[set[str]], Making] | None = None
) -> None:
    """Make sure that the bank of a run with `settings` holds its pictures.

    `made_by` turns the keys that need augmented views into what makes blocks elsewhere.
    """
    run = prepared(settings, progress)
    keys, train = run.pictures()
    making = made_by(train) if made_by is not None else None
    fill(run.bank(), run.backbone, run.dataset, keys, train, progress, making)

"""Discovery in batches of more than MAX_IMAGES images: on a sample, from which all others are assigned in blocks.

The sample holds images of every labelled class, and unlabelled images drawn at random. The categories that are found in it are
densities (`category_mixture.FittedCategories`). All unlabelled images of the batch then take part in REFITS more M-steps, a
block at a time, so that a category that had a few images in the sample is estimated from all that it has. In the end every
image goes to its most probable category. Memory does not grow with the batch, and time does linearly.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from camp.core.parallel import threaded_map
from camp.core.progress import Progress
from camp.core.types import UNLABELLED
from camp.discovery.category_mixture import FittedCategories
from camp.discovery.simulated_novelty import MAX_SAMPLES, ParameterGrid

MAX_IMAGES = 20_000
"""Greatest number of images of a batch that is fitted as a whole, and of the unlabelled images in a sample."""
MAX_LABELLED, MAX_PER_CLASS = 10_000, 30
"""Labelled images of a sample: in all, and of a class."""
MANY_CLASSES = 300
"""From this number of known classes on, only powers are compared, on FOLDS folds: what selection costs grows with its square."""
FOLDS, POWERS = 2, (1.0, 0.5)
SAMPLES_PER_CLASS = 15
"""Unlabelled images per known class that novelty is simulated with, if that is more than `MAX_SAMPLES`."""
REMOVED_SHARE = 0.08
"""Share of the novel categories that are removed at a time, so that the number of fits does not grow with their number."""
REFITS = 1
_BLOCK = 4096

Result = TypeVar("Result")


def is_large(n_images: int) -> bool:
    """Return whether a batch is too large to be fitted as a whole."""
    return n_images > MAX_IMAGES


def sample_rows(labels: Tensor, generator: torch.Generator, n_more_classes: int = 0) -> Tensor:
    """Draw the rows of a sample, ascending.

    Args:
        labels: (n,) label of the known class, or UNLABELLED.
        generator: Source of the draw.
        n_more_classes: Classes that take part with images of earlier batches.
    """
    unlabelled = (labels == UNLABELLED).nonzero()[:, 0]
    if is_large(len(unlabelled)):
        order = torch.randperm(len(unlabelled), generator=generator)
        unlabelled = unlabelled[order[:MAX_IMAGES]]
    n_classes = len(labels[labels != UNLABELLED].unique()) + n_more_classes
    labelled = evenly_spaced(labels, per_class(n_classes))
    return torch.cat([unlabelled, labelled]).sort().values


def per_class(n_classes: int) -> int:
    """Return the number of labelled images of each class in a sample.

    >>> per_class(10), per_class(2_000)
    (30, 5)
    """
    return max(2, min(MAX_PER_CLASS, MAX_LABELLED // max(n_classes, 1)))


def evenly_spaced(labels: Tensor, most: int) -> Tensor:
    """Rows of at most `most` images of each label, evenly spaced, by label; those without a label are left out."""
    known = (labels != UNLABELLED).nonzero()[:, 0]
    order = known[labels[known].argsort(stable=True)]
    _, counts = labels[order].unique_consecutive(return_counts=True)
    rows = [torch.empty(0, dtype=torch.long)]
    for members in order.split(counts.tolist()):
        rows.append(members[torch.linspace(0, len(members) - 1, min(most, len(members))).long()])
    return torch.cat(rows)


def grid_for_samples(grid: ParameterGrid, n_known: int) -> ParameterGrid:
    """Return the values that parameters are selected from in a large batch with `n_known` known classes."""
    grid = replace(
        grid, removed_share=REMOVED_SHARE, max_samples=max(MAX_SAMPLES, SAMPLES_PER_CLASS * n_known)
    )
    if n_known < MANY_CLASSES:
        return grid
    # The means of many classes fill more directions than those of a few.
    return replace(
        grid,
        shrinkage=grid.shrinkage[:1],
        n_components=(max(grid.n_components),),
        power=grid.power[:1] if len(grid.power) == 1 else POWERS,
        equal_widths=grid.equal_widths[:1],
        max_folds=FOLDS,
    )


@dataclass(frozen=True)
class BlockClassifier:
    """Categories that were found in a sample, and how features become the points in which they are densities."""

    points: Callable[[Tensor], Tensor]
    """From features (b, D) to points (b, d)."""
    categories: FittedCategories

    def assign(
        self, features: Tensor, labels: Tensor, classes: Tensor, min_size: int, progress: Progress
    ) -> Tensor:
        """Assign all images (n,) of a batch to a category, 0 .. K - 1.

        Args:
            features: (n, D)
            labels: (n,) label of the known class, or UNLABELLED; labelled images are in their class.
            classes: Labels of the known categories, which come first, ascending.
            min_size: Smaller novel categories get no image.
        """
        fitted, unlabelled = self.categories, (labels == UNLABELLED).nonzero()[:, 0]
        assignments = torch.searchsorted(classes, labels.clamp_min(0))
        with progress.track("Assigning", (REFITS + 1) * len(unlabelled)) as bar:

            def in_blocks(result_of: Callable[[Tensor], Result]) -> Iterator[Result]:
                parts = unlabelled.split(_BLOCK)
                results = threaded_map(
                    lambda rows: result_of(self.points(features[rows])), parts, lookahead=4
                )
                for rows, result in zip(parts, results):
                    yield result
                    bar.advance(len(rows))

            for _ in range(REFITS):
                fitted = fitted.refit(in_blocks(fitted.assigned))
            nearest = list(in_blocks(lambda points: fitted.logits(points).argmax(dim=1)))
        assignments[unlabelled] = torch.cat([unlabelled[:0], *nearest])
        sizes = torch.bincount(assignments, minlength=len(fitted.log_priors))
        small = (sizes < min_size) & (torch.arange(len(sizes)) >= len(classes))
        for rows in unlabelled[small[assignments[unlabelled]]].split(_BLOCK):
            logits = fitted.logits(self.points(features[rows])).masked_fill_(small, -torch.inf)
            assignments[rows] = logits.argmax(dim=1)
        return assignments

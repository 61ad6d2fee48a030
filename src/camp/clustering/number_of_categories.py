"""How many novel categories a task has, by the accuracy of the clustering on labelled images it did not see.

The paper clusters for several k and takes the k with the highest accuracy on labelled data. Clamped images
are always right, so some labels must be hidden; and as it is the novel categories that are counted, whole
classes must be hidden too. The procedure, for a candidate k (known classes + novel ones):

1. The known classes are cut at random into at most `FOLDS` groups. In each fold one group is hidden
   altogether (it plays the novel classes), and of every other class a random half of the labelled images.
2. Semi-supervised k-means with k clusters: those of the classes that still have labelled images, and the
   rest by k-means++. The truly novel images take part, unlabelled as ever.
3. The score of the fold is the accuracy on the hidden images under the best one-to-one matching of clusters
   and classes. With too few clusters classes share one; with too many they are torn apart: both cost
   accuracy.

The score of k is the mean over the folds, which are the same for every k. Candidates are searched from
coarse to fine: a grid over all of them, then around the best one with half the step, down to a step of 1.
Of equal scores the smaller k wins.

Measured with every k tried and 20 runs a fold: on six Gaussian mixtures of 15 classes, 10 of them known, the
answers were 15, 15, 15, 15, 16 and 14, the last two where classes overlap heavily; on the pixels of
scikit-learn's ten digits, with one to four of them novel, 8, 10, 11, 12 and 11.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from camp.clustering.hungarian import cluster_accuracy
from camp.clustering.semi_supervised_kmeans import semi_supervised_kmeans
from camp.errors import CampError
from camp.progress import Progress
from camp.streams.tasks import UNLABELLED

FOLDS = 4
"""Groups of known classes, each hidden once."""
COARSE = 6
"""Steps of the first grid."""


@dataclass(frozen=True)
class Estimate:
    """The number of categories and how it was found."""

    n_novel: int
    """Novel categories."""
    k: int
    """Known and novel categories."""
    curve: tuple[tuple[int, float], ...]
    """(k, accuracy on hidden labelled images) of every candidate that was tried, by k."""


def estimate_n_novel(
    features: Tensor,
    labels: Tensor,
    max_novel: int,
    generator: torch.Generator,
    *,
    n_init: int = 20,
    progress: Progress | None = None,
) -> Estimate:
    """Estimate the novel categories among `features` (n, D) with `labels` (n,), -1 where unlabelled.

    At most `max_novel` are considered, and no more than there are unlabelled images. `n_init` runs of k-means
    a fold: with fewer, bad local optima make the curve ragged.
    """
    known = labels[labels != UNLABELLED].unique()
    if len(known) == 0:
        raise CampError(
            "The number of categories is estimated from labelled images, and there are none: give the number "
            "of novel categories instead."
        )
    if max_novel < 0:
        raise CampError(f"max_novel counts categories and can not be {max_novel}.")
    most = min(max_novel, int((labels == UNLABELLED).sum()))
    folds = list(_folds(labels, known, generator))
    scores: dict[int, float] = {}
    step = -(-most // COARSE) or 1
    grid = [*range(0, most, step), most]
    with (progress or Progress(quiet=True)).track("Number of categories", len(grid)) as bar:
        while True:
            for n_novel in grid:
                k = len(known) + n_novel
                scores[n_novel] = _score(features, labels, folds, k, n_init, generator)
                bar.advance()
                bar.say(f"{k} categories score {scores[n_novel]:.3f}")
            best = max(sorted(scores), key=lambda n_novel: scores[n_novel])
            if step == 1:
                break
            step = -(-step // 2)
            grid = [n for n in (best - step, best + step) if 0 <= n <= most and n not in scores]
            bar.total += len(grid)
    curve = tuple((len(known) + n_novel, scores[n_novel]) for n_novel in sorted(scores))
    return Estimate(n_novel=best, k=len(known) + best, curve=curve)


def _folds(labels: Tensor, known: Tensor, generator: torch.Generator) -> list[Tensor]:
    """(n,) bool of each fold: which labelled images are hidden."""
    labelled = labels != UNLABELLED
    order = known[torch.randperm(len(known), generator=generator).to(known.device)]
    folds = []
    for group in order.tensor_split(min(FOLDS, len(known))):
        half = torch.rand(len(labels), generator=generator).to(labels.device) < 0.5
        folds.append(labelled & (torch.isin(labels, group) | half))
    return folds


def _score(
    features: Tensor, labels: Tensor, folds: list[Tensor], k: int, n_init: int, generator: torch.Generator
) -> float:
    """Mean accuracy on the hidden images with k clusters."""
    accuracies = []
    for hidden in folds:
        shown = labels.masked_fill(hidden, UNLABELLED)
        clamped = len(shown[shown != UNLABELLED].unique())
        found = semi_supervised_kmeans(features, shown, k - clamped, n_init=n_init, generator=generator)
        accuracies.append(cluster_accuracy(found.assignments[hidden], labels[hidden]))
    return sum(accuracies) / len(accuracies)

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

from collections.abc import Callable
from dataclasses import dataclass

import torch
from sklearn.metrics import silhouette_score
from torch import Tensor

from camp.core.errors import CampError
from camp.core.progress import Progress
from camp.core.types import UNLABELLED
from camp.discovery.hungarian import cluster_accuracy
from camp.discovery.semi_supervised_kmeans import semi_supervised_kmeans

FOLDS = 4
"""Groups of known classes, each hidden once."""
COARSE = 6
"""Steps of the first grid."""
SILHOUETTE_POINTS = 2000
"""Pictures that are compared with each other where there is no label."""


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
    folds: int = FOLDS,
    coarse: int = COARSE,
    n_init: int = 20,
    space: Callable[[Tensor], Tensor] | None = None,
    tolerance: float = 0.0,
    progress: Progress | None = None,
) -> Estimate:
    """Estimate the novel categories among `features` (n, D) with `labels` (n,), -1 where unlabelled.

    At most `max_novel` are considered, and no more than there are unlabelled images. `n_init` runs of k-means
    a fold: with fewer, bad local optima make the curve ragged. The first grid has `coarse` steps. `space` makes the
    points to be clustered out of the labels that a fold shows, where labels shape them. With a `tolerance` the
    greatest number of the first grid is taken that scores within it of the best.
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
    trials = [
        (hidden, features if space is None else space(labels.masked_fill(hidden, UNLABELLED)))
        for hidden in _folds(labels, known, folds, generator)
    ]
    scores: dict[int, float] = {}
    step = -(-most // coarse) or 1
    grid = [*range(0, most, step), most]
    with (progress or Progress(quiet=True)).track("Number of categories", len(grid)) as bar:
        while True:
            for n_novel in grid:
                k = len(known) + n_novel
                scores[n_novel] = _score(trials, labels, k, n_init, generator)
                bar.advance()
                bar.say(f"{k} categories score {scores[n_novel]:.3f}")
            top = max(scores.values())
            good = [n_novel for n_novel in sorted(scores) if scores[n_novel] >= top - tolerance]
            best = good[-1] if tolerance else good[0]
            if step == 1 or tolerance:
                break
            step = -(-step // 2)
            grid = [n for n in (best - step, best + step) if 0 <= n <= most and n not in scores]
            bar.total += len(grid)
    curve = tuple((len(known) + n_novel, scores[n_novel]) for n_novel in sorted(scores))
    return Estimate(n_novel=best, k=len(known) + best, curve=curve)


def estimate_without_labels(
    features: Tensor,
    max_novel: int,
    generator: torch.Generator,
    *,
    n_init: int = 10,
    progress: Progress | None = None,
) -> Estimate:
    """The number of categories where nothing was ever labelled: the k with the greatest mean silhouette, a rough guess.

    Of `features` (n, D) at most SILHOUETTE_POINTS are compared with each other. One category is never found: a
    silhouette needs two.
    """
    count = len(features)
    if count < 3:
        return Estimate(n_novel=min(count, 1), k=min(count, 1), curve=())
    some = torch.randperm(count, generator=generator)[:SILHOUETTE_POINTS]
    unlabelled = torch.full((count,), UNLABELLED)
    scores = {}
    candidates = range(2, min(max_novel, count - 1) + 1)
    with (progress or Progress(quiet=True)).track("Number of categories", len(candidates)) as bar:
        for k in candidates:
            found = semi_supervised_kmeans(features, unlabelled, k, n_init=n_init, generator=generator)
            sides = found.assignments[some]
            several = 1 < len(sides.unique()) < len(some)
            scores[k] = float(silhouette_score(features[some].numpy(), sides.numpy())) if several else -1.0
            bar.advance()
            bar.say(f"{k} categories score {scores[k]:.3f}")
    best = max(sorted(scores), key=lambda k: scores[k])
    return Estimate(n_novel=best, k=best, curve=tuple(sorted(scores.items())))


def _folds(labels: Tensor, known: Tensor, count: int, generator: torch.Generator) -> list[Tensor]:
    """(n,) bool of each fold: which labelled images are hidden."""
    labelled = labels != UNLABELLED
    order = known[torch.randperm(len(known), generator=generator).to(known.device)]
    folds = []
    for group in order.tensor_split(min(count, len(known))):
        half = torch.rand(len(labels), generator=generator).to(labels.device) < 0.5
        folds.append(labelled & (torch.isin(labels, group) | half))
    return folds


def _score(
    trials: list[tuple[Tensor, Tensor]], labels: Tensor, k: int, n_init: int, generator: torch.Generator
) -> float:
    """Mean accuracy on the hidden images (n,) with k clusters of the points (n, d) of each trial."""
    accuracies = []
    for hidden, points in trials:
        shown = labels.masked_fill(hidden, UNLABELLED)
        clamped = len(shown[shown != UNLABELLED].unique())
        found = semi_supervised_kmeans(points, shown, k - clamped, n_init=n_init, generator=generator)
        accuracies.append(cluster_accuracy(found.assignments[hidden], labels[hidden]))
    return sum(accuracies) / len(accuracies)

"""Estimate the number of novel categories by clustering accuracy on images with hidden labels.

The paper clusters with several numbers of categories k and takes the k with the highest accuracy on
labelled images. Labelled images are always assigned to their class, so some labels have to be
hidden; and as novel categories are counted, whole classes have to be hidden too. For a candidate k
(known and novel categories):

1. Known classes are split at random into groups. Each fold hides all labels of one group, whose
   classes act as novel ones, and the labels of a random half of the images of every other class.
2. Semi-supervised k-means finds k clusters: those of the classes that still have labels, and the
   rest as novel clusters. The truly novel images take part without labels.
3. The score of the fold is the accuracy on the hidden images under the best one-to-one matching of
   clusters and classes. With too few clusters classes share one, with too many they are split: both
   cost accuracy.

The score of k is the mean over the folds, which are the same for every k.
"""

import torch
from torch import Tensor

from camp.core.errors import CampError
from camp.core.progress import Progress
from camp.core.types import UNLABELLED
from camp.discovery.base import NumberEstimate
from camp.discovery.category_search import argmax, coarse_to_fine, curve, random_groups
from camp.discovery.hungarian import cluster_accuracy
from camp.discovery.semi_supervised_kmeans import semi_supervised_kmeans

N_FOLDS = 4
"""Greatest number of groups of known classes; each is hidden once."""
N_STEPS = 6
"""Steps of the first grid of numbers."""
SILHOUETTE_SAMPLES = 2000
"""Number of images whose silhouette is computed."""


def estimate_n_novel(
    features: Tensor,
    labels: Tensor,
    max_novel: int,
    generator: torch.Generator,
    *,
    n_init: int = 20,
    progress: Progress | None = None,
) -> NumberEstimate:
    """Estimate the number of novel categories with the help of hidden labels.

    Args:
        features: (n, D)
        labels: (n,) known class of each image, or UNLABELLED.
        max_novel: Greatest number considered; never more than there are unlabelled images.
        generator: Source of the folds and of the starts of k-means.
        n_init: Runs of k-means per fold and candidate. Few runs end in bad local optima and make
            the curve ragged.
        progress: Receives a bar.
    """
    known = labels[labels != UNLABELLED].unique()
    if len(known) == 0:
        raise CampError(
            "The number of categories is estimated from labelled images, and there are none: give the number "
            "of novel categories instead."
        )
    if max_novel < 0:
        raise CampError(f"max_novel counts categories and cannot be {max_novel}.")
    maximum = min(max_novel, int((labels == UNLABELLED).sum()))
    folds = []
    for group in random_groups(known, min(N_FOLDS, len(known)), generator):
        half = torch.rand(len(labels), generator=generator).to(labels.device) < 0.5
        hidden = (labels != UNLABELLED) & (torch.isin(labels, group) | half)
        folds.append((hidden, labels.masked_fill(hidden, UNLABELLED)))

    def score(n_novel: int) -> float:
        accuracies = []
        for hidden, shown in folds:
            n_clusters = len(known) + n_novel - len(shown[shown != UNLABELLED].unique())
            clusters = semi_supervised_kmeans(features, shown, n_clusters, n_init=n_init, generator=generator)
            accuracies.append(cluster_accuracy(clusters.assignments[hidden], labels[hidden]))
        return sum(accuracies) / len(accuracies)

    best, scores = coarse_to_fine(
        score,
        maximum,
        N_STEPS,
        prefer="smallest",
        n_known=len(known),
        progress=progress or Progress(quiet=True),
    )
    return NumberEstimate(best, curve(scores, len(known)))


def estimate_without_labels(
    features: Tensor,
    max_novel: int,
    generator: torch.Generator,
    *,
    n_init: int = 10,
    progress: Progress | None = None,
) -> NumberEstimate:
    """Estimate the number of categories without labels, by the mean silhouette coefficient.

    A rough estimate of at least 2 for features (n, D), since a silhouette compares clusters.
    """
    from sklearn.metrics import silhouette_score  # takes long to import

    count = len(features)
    if count < 3:
        return NumberEstimate(min(count, 1), ())
    sample = torch.randperm(count, generator=generator)[:SILHOUETTE_SAMPLES]
    unlabelled = torch.full((count,), UNLABELLED)
    scores = {}
    candidates = range(2, min(max_novel, count - 1) + 1)
    with (progress or Progress(quiet=True)).track("Number of categories", len(candidates)) as bar:
        for k in candidates:
            found = semi_supervised_kmeans(features, unlabelled, k, n_init=n_init, generator=generator)
            clusters = found.assignments[sample]
            defined = 1 < len(clusters.unique()) < len(sample)
            scores[k] = (
                float(silhouette_score(features[sample].numpy(), clusters.numpy())) if defined else -1.0
            )
            bar.advance()
            bar.say(f"{k} categories score {scores[k]:.3f}")
    return NumberEstimate(argmax(scores, "smallest"), curve(scores, 0))

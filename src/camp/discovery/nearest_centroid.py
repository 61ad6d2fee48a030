"""Nearest centroid classifier."""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

_CHUNK = 8192


@dataclass(frozen=True)
class NearestCentroid:
    """Classify features by the nearest of K centroids."""

    centroids: Tensor
    """(K, D)"""
    metric: Literal["l2", "cosine"] = "l2"
    """Euclidean distance, or one minus the cosine."""

    def distances(self, z: Tensor) -> Tensor:
        """Distances (n, K) of features z (n, D)."""
        if self.metric == "cosine":
            return 1 - F.normalize(z, dim=1) @ F.normalize(self.centroids, dim=1).T
        # Not by |z|^2 - 2 z.c, which loses digits where two centroids are about equally near.
        return torch.cdist(z, self.centroids, compute_mode="donot_use_mm_for_euclid_dist")

    def predict(self, z: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Nearest centroid (n,) of features z (n, D), among the rows `allowed` if given."""
        classifier = self if allowed is None else NearestCentroid(self.centroids[allowed], self.metric)
        if not len(classifier.centroids):
            raise ValueError("there is no centroid to choose from")
        nearest = torch.cat([classifier.distances(part).argmin(dim=1) for part in z.split(_CHUNK)])
        return nearest if allowed is None else allowed.to(nearest.device)[nearest]

"""The nearest centroid classifier."""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

_CHUNK = 8192


@dataclass(frozen=True)
class NearestCentroid:
    """Categories by their centroids (K, D)."""

    centroids: Tensor
    metric: Literal["l2", "cosine"] = "l2"

    def distances(self, z: Tensor) -> Tensor:
        """(n, K) distances of features z (n, D): Euclidean, or one minus the cosine."""
        if self.metric == "cosine":
            return 1 - F.normalize(z, dim=1) @ F.normalize(self.centroids, dim=1).T
        # Without the shortcut through |z|^2 - 2 z.c, which loses digits where two centroids are equally near.
        return torch.cdist(z, self.centroids, compute_mode="donot_use_mm_for_euclid_dist")

    def predict(self, z: Tensor, allowed: Tensor | None = None) -> Tensor:
        """(n,) position of the nearest centroid, of those in `allowed` alone if given."""
        among = self if allowed is None else NearestCentroid(self.centroids[allowed], self.metric)
        if not len(among.centroids):
            raise ValueError("there is no centroid to choose from")
        nearest = torch.cat([among.distances(part).argmin(dim=1) for part in z.split(_CHUNK)])
        return nearest if allowed is None else allowed.to(nearest.device)[nearest]

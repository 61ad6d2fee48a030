"""Open-set classification by the nearest centroid, with rejection of unknown categories.

    p(k | z)  is proportional to  exp(-|z - p_k|^2 / T)
    unknown   where  |z - p_k| > r_k  for all k

T and the radii r_k are fitted on held-out distances of images whose category is known; see
`calibration`.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from camp.discovery.calibration import CategoryRegions
from camp.discovery.nearest_centroid import NearestCentroid

_CHUNK = 8192


@dataclass(frozen=True)
class Answers:
    """Predictions for n images; a category is the row of its centroid."""

    nearest: Tensor
    """(n,) nearest category."""
    confidence: Tensor
    """(n,) its probability."""
    runner_up: Tensor
    """(n,) second nearest category, or -1 if there is only one."""
    runner_up_confidence: Tensor
    """(n,) its probability, or 0."""
    distance: Tensor
    """(n,) smallest distance to a centroid divided by its radius; above 1 the image is unknown."""

    @property
    def unknown(self) -> Tensor:
        """(n,) bool: whether the image belongs to none of the categories."""
        return self.distance > 1


@dataclass(frozen=True)
class OpenSet:
    """Nearest centroid classifier that rejects images of unknown categories."""

    centroids: Tensor
    """(K, D)"""
    radii: Tensor
    """(K,)"""
    temperature: float
    """T"""

    @classmethod
    def of(cls, regions: CategoryRegions) -> Self:
        """The classifier with these centroids, radii and temperature."""
        return cls(torch.from_numpy(regions.centroids), torch.from_numpy(regions.radii), regions.temperature)

    def log_probabilities(self, z: Tensor) -> Tensor:
        """Log-probabilities (n, K) of features z (n, D)."""
        distances = NearestCentroid(self.centroids).distances(z)
        return torch.log_softmax(-distances.square() / self.temperature, dim=1)

    def answer(self, z: Tensor) -> Answers:
        """Predictions for features z (n, D)."""
        parts = [self._answer(part) for part in z.split(_CHUNK)]
        return Answers(*(torch.cat(column) for column in zip(*parts)))

    def _answer(self, z: Tensor) -> tuple[Tensor, ...]:
        distances = NearestCentroid(self.centroids).distances(z)
        probabilities = torch.softmax(-distances.square() / self.temperature, dim=1)
        order = distances.topk(min(2, len(self.centroids)), dim=1, largest=False).indices
        best, confidence = order[:, 0], probabilities.gather(1, order)
        relative = (distances / self.radii).amin(dim=1)
        if order.shape[1] == 1:
            return best, confidence[:, 0], torch.full_like(best, -1), torch.zeros_like(relative), relative
        return best, confidence[:, 0], order[:, 1], confidence[:, 1], relative

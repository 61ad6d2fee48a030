"""The nearest centroid with a probability, a runner-up, and the right to say that it is none of them.

    p(k | z)  is proportional to  exp(-|z - p_k|^2 / T)
    unknown   where  |z - p_k| > r_k  for the nearest k

T and the radii r_k are learned from pictures whose category is known, as if each had not been there when its centroid
was made (see `calibration`).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from camp.discovery.nearest_centroid import NearestCentroid

_CHUNK = 8192


@dataclass(frozen=True)
class Answers:
    """What is said about n pictures; categories are positions of centroids."""

    nearest: Tensor
    """(n,) the nearest category."""
    confidence: Tensor
    """(n,) its probability."""
    runner_up: Tensor
    """(n,) the second nearest, or -1 where there is but one category."""
    runner_up_confidence: Tensor
    """(n,) its probability; 0 where there is none."""
    distance: Tensor
    """(n,) to the nearest centroid, in radii of its category: beyond 1 it is none of them."""

    @property
    def unknown(self) -> Tensor:
        """(n,) bool."""
        return self.distance > 1


@dataclass(frozen=True)
class OpenSet:
    """K categories by centroids (K, D), radii (K,) and the temperature T."""

    centroids: Tensor
    radii: Tensor
    temperature: float

    def log_probabilities(self, z: Tensor) -> Tensor:
        """(n, K) of features z (n, D)."""
        distances = NearestCentroid(self.centroids).distances(z)
        return torch.log_softmax(-distances.square() / self.temperature, dim=1)

    def answer(self, z: Tensor) -> Answers:
        """Category, confidence, runner-up and distance of features z (n, D)."""
        parts = [self._answer(part) for part in z.split(_CHUNK)]
        return Answers(*(torch.cat(column) for column in zip(*parts)))

    def _answer(self, z: Tensor) -> tuple[Tensor, ...]:
        distances = NearestCentroid(self.centroids).distances(z)
        probabilities = torch.softmax(-distances.square() / self.temperature, dim=1)
        order = distances.topk(min(2, len(self.centroids)), dim=1, largest=False).indices
        best = order[:, :1]
        if order.shape[1] == 1:
            second, second_probability = torch.full_like(best, -1), torch.zeros_like(distances)
        else:
            second = order[:, 1:]
            second_probability = probabilities.gather(1, second)
        near = distances.gather(1, best)[:, 0] / self.radii[best[:, 0]]
        return best[:, 0], probabilities.gather(1, best)[:, 0], second[:, 0], second_probability[:, 0], near

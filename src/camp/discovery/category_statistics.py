"""Sufficient statistics of categories: how many images they have, and the sum of these."""

from dataclasses import dataclass
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from camp.discovery.class_scatter import class_sums


@dataclass(frozen=True)
class Statistics:
    """Number and sum of the images of K categories."""

    counts: Tensor
    """(K,)"""
    sums: Tensor
    """(K, d)"""

    @classmethod
    def of_classes(cls, points: Tensor, index: Tensor, n_classes: int, weights: Tensor) -> Self:
        """Those of points (n, d) of classes `index` (n,), each the mean of `weights` (n,) images."""
        counts = torch.bincount(index, weights, n_classes).to(points.dtype)
        return cls(counts, class_sums(weights[:, None] * points, index, n_classes).to(points.dtype))

    def with_assigned(self, assigned: "Assigned") -> "Statistics":
        """Add assigned images; their categories beyond these are new ones."""
        new = len(assigned.counts) - len(self.counts)
        counts, sums = F.pad(self.counts, (0, new)), F.pad(self.sums, (0, 0, 0, new))
        return Statistics(counts + assigned.counts, sums + assigned.sums)

    def with_novel(self, points: Tensor) -> "Statistics":
        """Append a category for each of points (m, d), its only image."""
        return Statistics(
            torch.cat([self.counts, points.new_ones(len(points))]), torch.cat([self.sums, points])
        )


@dataclass(frozen=True)
class Assigned:
    """Images with weights in K categories, by what the densities of categories are estimated from."""

    counts: Tensor
    """(K,) sum_i q_ik"""
    sums: Tensor
    """(K, d) sum_i q_ik x_i"""
    squared_weights: float
    """sum_ik q_ik^2"""
    squared_lengths: float
    """sum_ik q_ik |x_i|^2"""

    @classmethod
    def of(cls, points: Tensor, weights: Tensor) -> Self:
        """Those of points x (n, d) with weights q (n, K)."""
        lengths = points.square().sum(dim=1)
        return cls(
            weights.sum(dim=0),
            weights.T @ points,
            float(weights.square().sum()),
            float(weights.sum(dim=1) @ lengths),
        )

    def cosines(self, sums: Tensor) -> float:
        """sum_ik q_ik x_i (S_k - q_ik x_i) for points of unit length and `sums` S (K, d) that include these images."""
        return float((self.sums.double() * sums).sum()) - self.squared_weights

    def pairs(self, counts: Tensor) -> float:
        """sum_ik q_ik (n_k - q_ik) for `counts` n (K,) that include these images."""
        return float(self.counts.double() @ counts.double()) - self.squared_weights

    def squared_distances(self, centres: Tensor) -> float:
        """sum_ik q_ik |x_i - m_k|^2 for `centres` m (K, d)."""
        m = centres.double()
        inner, lengths = float((self.sums * m).sum()), float(self.counts.double() @ m.square().sum(dim=1))
        return self.squared_lengths - 2 * inner + lengths

"""The soft nearest neighbour classifier."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

_CHUNK = 8192


@dataclass(frozen=True)
class SoftNearestNeighbour:
    """p(x) = sum_j softmax_j( h(x).h_j / tau ) y_j over pictures j with a category; all h have unit length."""

    support: Tensor
    """(m, D) features of the pictures."""
    categories: Tensor
    """(m,) their categories, 0 .. K - 1."""
    count: int
    """K."""
    temperature: float = 0.1

    def probabilities(self, z: Tensor) -> Tensor:
        """(..., K) of features z (..., D); 0 for a category without pictures."""
        if not len(self.support):
            raise ValueError("there is no picture to be a neighbour")
        similarity = F.normalize(z, dim=-1) @ F.normalize(self.support, dim=1).T  # (..., m)
        return (similarity / self.temperature).softmax(dim=-1) @ F.one_hot(self.categories, self.count).to(
            z.dtype
        )

    def predict(self, z: Tensor, allowed: Tensor | None = None) -> Tensor:
        """(n,) the likeliest category of features z (n, D), of those in `allowed` alone if given."""
        allowed = torch.arange(self.count) if allowed is None else allowed
        likeliest = [self.probabilities(part)[:, allowed].argmax(dim=1) for part in z.split(_CHUNK)]
        return allowed.to(z.device)[torch.cat(likeliest)]

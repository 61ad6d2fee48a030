"""Semantic drift compensation (Yu et al., CVPR 2020): a centroid moves with the images near it.

    w_i = exp(-|F^{t-1}(x_i) - p|^2 / (2 sigma^2)) + floor
    p  += sum_i w_i (F^t(x_i) - F^{t-1}(x_i)) / sum_i w_i

The squared distances of unnormalised ViT features are so large that the exponentials vanish: with
the floor of 1e-5 of the authors' code all weights are equal, and p moves by the mean drift. With a
floor of 0 the weights differ; they are computed in log space and do not vanish.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from camp.nn.adapters.settings import AdapterSettings


def fit_sdc(old: Tensor, new: Tensor, settings: AdapterSettings) -> Callable[[Tensor], Tensor]:
    """Return psi, which moves each centroid (k, D) by the weighted drift of the pairs (n, D)."""
    drift = new - old
    floor = math.log(settings.sdc_floor) if settings.sdc_floor else -math.inf

    def psi(centroids: Tensor) -> Tensor:
        # Not via |x|^2 - 2 x.p + |p|^2, whose rounding error is large compared with sigma^2.
        distances = torch.cdist(centroids, old, compute_mode="donot_use_mm_for_euclid_dist")
        log_w = -distances.square() / (2 * settings.sdc_sigma**2)  # (k, n)
        log_w = torch.logaddexp(log_w, torch.full_like(log_w, floor))
        return centroids + log_w.softmax(dim=1) @ drift

    return psi

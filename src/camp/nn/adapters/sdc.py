"""Semantic drift compensation (Yu et al., CVPR 2020): a centroid moves as the pictures near it moved.

    w_i = exp(-|F^{t-1}(x_i) - p|^2 / (2 sigma^2)) + floor
    p  += sum_i w_i (F^t(x_i) - F^{t-1}(x_i)) / sum_i w_i

With raw features of a ViT the squared distances are in the hundreds, the exponentials vanish, and the
reference's floor of 1e-5 makes all weights alike: the plain mean of the drift. A floor of 0 keeps the weights
apart; they are computed in log space and do not vanish.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from camp.nn.adapters.settings import AdapterSettings


def fit_sdc(old: Tensor, new: Tensor, settings: AdapterSettings) -> Callable[[Tensor], Tensor]:
    """psi that moves each centroid (k, D) by the weighted drift of the pairs (n, D)."""
    drift = new - old
    floor = math.log(settings.sdc_floor) if settings.sdc_floor else -math.inf

    def psi(centroids: Tensor) -> Tensor:
        # Without the shortcut through |x|^2 - 2 x.p, whose rounding error is large beside sigma^2.
        distances = torch.cdist(centroids, old, compute_mode="donot_use_mm_for_euclid_dist")
        log_w = -distances.square() / (2 * settings.sdc_sigma**2)  # (k, n)
        log_w = torch.logaddexp(log_w, torch.full_like(log_w, floor))
        return centroids + log_w.softmax(dim=1) @ drift

    return psi

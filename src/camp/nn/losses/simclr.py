"""SimCLR contrastive loss (Chen et al., 2020)."""

import torch
import torch.nn.functional as F
from torch import Tensor

from camp.nn.losses.checks import check_temperature, check_views
from camp.nn.losses.similarity import log_probabilities


def simclr(h: Tensor, temperature: float = 1.0) -> Tensor:
    """Compute L_SimCLR = -1/2B sum_i log( exp(h_i.h_i'/tau) / sum_{n != i} exp(h_i.h_n/tau) ).

    The sum is over all 2B views i; i' is the other view of the same image, n runs over the 2B - 1
    other views.

    Args:
        h: Projections (2, B, d) of two views, L2-normalised here; the loss is 0 for B = 0.
        temperature: tau; the default is that of the authors' code, while the paper uses SupCon's.
    """
    check_views("h", h)
    check_temperature(temperature)
    images = h.shape[1]
    if images == 0:
        return h.sum()
    other_view = torch.arange(2 * images, device=h.device).roll(images)
    return F.nll_loss(log_probabilities(h, temperature), other_view)

"""Soft neighbourhood contrastive loss (MetaGCD, Wu et al. 2023): a view finds the views of similar images."""

import torch
import torch.nn.functional as F
from torch import Tensor

from camp.nn.losses.checks import check_temperature, check_views
from camp.nn.losses.similarity import log_probabilities


def soft_neighbourhood(h: Tensor, threshold: float = 0.85, temperature: float = 0.07) -> Tensor:
    """L_SNCL = -1/|A| sum_{a in A} 1/|P_a| sum_{b in P_a} w_ij log( exp(h_a.h_b/tau) / sum_{n != a} exp(h_a.h_n/tau) )

    with a a view of image i and b one of image j. The similarity s_ij of two images is the greatest cosine
    of their views; N_i = {j : s_ij >= threshold} are the neighbours of i, i among them; P_a are the other
    views of N_i, and A the views of images with a neighbour besides themselves (SimCLR looks after the rest).
    The positiveness w_ij is the softmax of s_ij over N_i, scaled so that the greatest is 1. That one is w_ii,
    as s_ii = 1, and therefore w_ij = exp(s_ij - 1).

    h (2, B, d) is L2-normalised here. Exactly 0 if nobody has a neighbour. Two things differ from the authors'
    code: n runs over all other views, there only over views in A; and neighbours and positiveness are targets
    without a gradient, else the loss would fall by making neighbours less alike.
    """
    check_views("h", h)
    check_temperature(temperature)
    if not -1 <= threshold <= 1:
        raise ValueError(f"threshold is a cosine between -1 and 1, and {threshold} is not.")
    with torch.no_grad():
        unit = F.normalize(h, dim=-1)
        s = torch.einsum("vid,wjd->vwij", unit, unit).amax(dim=(0, 1)).fill_diagonal_(1.0)  # (B, B)
        neighbour = s >= threshold
        anchor = (neighbour.sum(dim=1) > 1).repeat(2)  # (2B,)
        w = torch.where(neighbour, torch.exp(s - 1), 0.0).repeat(2, 2).fill_diagonal_(0.0)  # (2B, 2B)
    if not anchor.any():
        return 0.0 * h.sum()
    # The -inf of a view with itself must not meet the zero weight it would get.
    log_share = log_probabilities(h, temperature).masked_fill(w == 0, 0.0)[anchor]
    w = w[anchor]
    return -((w * log_share).sum(dim=1) / (w > 0).sum(dim=1)).mean()

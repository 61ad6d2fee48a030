"""Soft neighbourhood contrastive loss (MetaGCD, Wu et al., 2023)."""

import torch
import torch.nn.functional as F
from torch import Tensor

from camp.nn.losses.checks import check_temperature, check_views
from camp.nn.losses.similarity import log_probabilities


def soft_neighbourhood(h: Tensor, threshold: float = 0.85, temperature: float = 0.07) -> Tensor:
    """Compute the soft neighbourhood contrastive loss.

        L = -1/|A| sum_{a in A} 1/|P_a| sum_{b in P_a} w_ij log p_ab
        p_ab = exp(h_a.h_b/tau) / sum_{n != a} exp(h_a.h_n/tau)

    where a is a view of image i and b a view of image j. The similarity s_ij of two images is the
    maximum cosine of their views; N_i = {j : s_ij >= threshold} are the neighbours of i, including
    i; P_a are the other views of N_i, and A the views of images with other neighbours than
    themselves (SimCLR handles the rest). The positiveness w_ij is the softmax of s_ij over N_i,
    scaled to a maximum of 1: w_ij = exp(s_ij - 1), since s_ii = 1.

    Unlike in the code of the authors, n runs over all other views instead of those in A, and
    neighbours and positiveness have no gradient; otherwise the loss would decrease by making
    neighbours less similar.

    Args:
        h: Projections (2, B, d) of two views, L2-normalised here; the loss is 0 without neighbours.
        threshold: Minimum cosine of neighbours.
        temperature: tau.
    """
    check_views("h", h)
    check_temperature(temperature)
    if not -1 <= threshold <= 1:
        raise ValueError(f"threshold must be a cosine between -1 and 1, but is {threshold}.")
    with torch.no_grad():
        unit = F.normalize(h, dim=-1)
        s = torch.einsum("vid,wjd->vwij", unit, unit).amax(dim=(0, 1)).fill_diagonal_(1.0)  # (B, B)
        neighbour = s >= threshold
        anchor = (neighbour.sum(dim=1) > 1).repeat(2)  # (2B,)
        w = torch.where(neighbour, torch.exp(s - 1), 0.0).repeat(2, 2).fill_diagonal_(0.0)  # (2B, 2B)
    if not anchor.any():
        return 0.0 * h.sum()
    # Mask the -inf of a view with itself, since 0 * -inf is not 0.
    log_p = log_probabilities(h, temperature).masked_fill(w == 0, 0.0)[anchor]
    w = w[anchor]
    return -((w * log_p).sum(dim=1) / (w > 0).sum(dim=1)).mean()

"""Softmax over the similarities of views, shared by the contrastive losses."""

import torch
import torch.nn.functional as F
from torch import Tensor


def log_probabilities(h: Tensor, temperature: float) -> Tensor:
    """Compute log( exp(h_i.h_n/tau) / sum_{n != i} exp(h_i.h_n/tau) ) for all views i, n: (2B, 2B).

    The projections h (2, B, d) are L2-normalised here; entries i = n are minus infinity.
    """
    views = F.normalize(h.flatten(0, 1), dim=1)  # (2B, d)
    similarity = views @ views.T / temperature
    itself = torch.eye(len(views), dtype=torch.bool, device=h.device)
    return similarity.masked_fill(itself, -torch.inf).log_softmax(dim=1)

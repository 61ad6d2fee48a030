"""What both contrastive losses share: log-probabilities of every other view, seen from each view."""

import torch
import torch.nn.functional as F
from torch import Tensor


def log_probabilities(h: Tensor, temperature: float) -> Tensor:
    """log exp(h_i . h_n / tau) / sum_{n != i} exp(h_i . h_n / tau) for all views i, n: (2B, 2B).

    `h` (2, B, d) is brought to unit length; entries i = n are minus infinity.
    """
    if h.dim() != 3 or h.shape[0] != 2:
        raise ValueError(f"projections of two views are (2, B, d), not {tuple(h.shape)}")
    if temperature <= 0:
        raise ValueError(f"a temperature is positive, not {temperature}")
    views = F.normalize(h.flatten(0, 1), dim=1)  # (2B, d)
    similarity = views @ views.T / temperature
    itself = torch.eye(len(views), dtype=torch.bool, device=h.device)
    return similarity.masked_fill(itself, -torch.inf).log_softmax(dim=1)

"""Supervised contrastive loss (Khosla et al., 2020)."""

from torch import Tensor

from camp.nn.losses.checks import check_labels, check_temperature, check_views
from camp.nn.losses.similarity import log_probabilities


def supcon(h: Tensor, labels: Tensor, temperature: float = 0.07) -> Tensor:
    """Compute L_SupCon = -1/2B sum_i 1/|N_i| sum_{q in N_i} log p_iq.

        p_iq = exp(h_i.h_q/tau) / sum_{n != i} exp(h_i.h_n/tau)

    The sum is over all 2B views i (both views are anchors); N_i are the other views with the label
    of i, including the other view of the same image.

    Args:
        h: Projections (2, B, d) of two views, L2-normalised here; the loss is 0 for B = 0.
        labels: Labels (B,) of the images.
        temperature: tau.
    """
    check_views("h", h)
    check_labels(labels, h)
    check_temperature(temperature)
    if h.shape[1] == 0:
        return h.sum()
    log_p = log_probabilities(h, temperature)  # (2B, 2B)
    both = labels.repeat(2)
    positive = (both[:, None] == both).fill_diagonal_(False)
    # Mask the -inf of a view with itself, since 0 * -inf is not 0.
    per_anchor = log_p.masked_fill(~positive, 0.0).sum(dim=1) / positive.sum(dim=1)
    return -per_anchor.mean()

"""Supervised contrastive loss (Khosla et al. 2020): a view finds all views of images of its class."""

from torch import Tensor

from camp.nn.losses.checks import check_labels, check_temperature, check_views
from camp.nn.losses.similarity import log_probabilities


def supcon(h: Tensor, labels: Tensor, temperature: float = 0.07) -> Tensor:
    """L_SupCon = -1/2B sum_i 1/|N_i| sum_{q in N_i} log( exp(h_i.h_q/tau) / sum_{n != i} exp(h_i.h_n/tau) )

    over all 2B views i (both views are anchors), where N_i are the other views with the label of i, the other
    view of the same image among them. h (2, B, d) is L2-normalised here; labels (B,). Exactly 0 for B = 0.
    """
    check_views("h", h)
    check_labels(labels, h)
    check_temperature(temperature)
    if h.shape[1] == 0:
        return h.sum()
    log_share = log_probabilities(h, temperature)  # (2B, 2B)
    both = labels.repeat(2)
    positive = (both[:, None] == both).fill_diagonal_(False)
    # The -inf of a view with itself must not meet the zero weight it would get.
    per_anchor = log_share.masked_fill(~positive, 0.0).sum(dim=1) / positive.sum(dim=1)
    return -per_anchor.mean()

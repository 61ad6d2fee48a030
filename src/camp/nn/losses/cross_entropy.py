"""Cross-entropy of labelled images with the prototypes."""

import torch.nn.functional as F
from torch import Tensor

from camp.nn.losses.checks import check_labels, check_temperature, check_views


def cross_entropy(logits: Tensor, labels: Tensor, temperature: float = 0.1) -> Tensor:
    """Compute L_CE = -1/2B sum_i ( log p_i^(y_i) + log p_i'^(y_i) ) with p = softmax(logits / tau_s).

    Args:
        logits: Logits (2, B, K) of two views.
        labels: Labels (B,) of the images; the loss is 0 for B = 0.
        temperature: tau_s.
    """
    check_views("logits", logits)
    check_labels(labels, logits)
    check_temperature(temperature)
    if logits.shape[1] == 0:
        return logits.sum()
    return F.cross_entropy((logits / temperature).flatten(0, 1), labels.repeat(2))

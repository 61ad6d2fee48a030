"""Cross-entropy of labelled images against the prototypes."""

import torch.nn.functional as F
from torch import Tensor

from camp.nn.losses.checks import check_labels, check_temperature, check_views


def cross_entropy(logits: Tensor, labels: Tensor, temperature: float = 0.1) -> Tensor:
    """L_CE = -1/2B sum_i ( log p_i^(y_i) + log p_i'^(y_i) ) with p = softmax(logits / tau_s)

    logits (2, B, K), labels (B,) for both views. Exactly 0 for B = 0.
    """
    check_views("logits", logits)
    check_labels(labels, logits)
    check_temperature(temperature)
    if logits.shape[1] == 0:
        return logits.sum()
    return F.cross_entropy((logits / temperature).flatten(0, 1), labels.repeat(2))

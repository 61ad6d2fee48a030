"""Mean-entropy maximisation (Assran et al., 2022)."""

import math

from torch import Tensor

from camp.nn.losses.checks import check_temperature, check_views


def mean_entropy(logits: Tensor, temperature: float = 0.1) -> Tensor:
    """Compute L = log K - H(p_mean) with p_mean = 1/2B sum_i (p_i + p_i') and p = softmax(logits / tau_s).

    It is the paper's -H plus a constant: 0 if the mean prediction is uniform, at most log K.

    Args:
        logits: Logits (2, B, K) of two views.
        temperature: tau_s.
    """
    check_views("logits", logits)
    check_temperature(temperature)
    views, images, prototypes = logits.shape
    if images == 0:
        return logits.sum()
    log_p = (logits / temperature).log_softmax(dim=-1).flatten(0, 1)  # (2B, K)
    # In log space, so that an unused prototype gives 0 * (a large number) and not 0 * inf.
    log_mean = log_p.logsumexp(dim=0) - math.log(views * images)
    return math.log(prototypes) + (log_mean.exp() * log_mean).sum()

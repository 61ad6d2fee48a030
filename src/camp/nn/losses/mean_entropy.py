"""Mean-entropy maximisation (Assran et al. 2022): the batch as a whole should use all prototypes."""

import math

from torch import Tensor

from camp.nn.losses.checks import check_temperature, check_views


def mean_entropy(logits: Tensor, temperature: float = 0.1) -> Tensor:
    """log K - H(p_mean), where p_mean = 1/2B sum_i (p_i + p_i') and p = softmax(logits / tau_s)

    logits (2, B, K). It is the paper's -H moved up by a constant: 0 for the uniform mean, at most log K.
    """
    check_views("logits", logits)
    check_temperature(temperature)
    views, images, prototypes = logits.shape
    if images == 0:
        return logits.sum()
    log_p = (logits / temperature).log_softmax(dim=-1).flatten(0, 1)  # (2B, K)
    # In logarithms, so that a prototype nobody uses gives 0 * (a large number) and not 0 * inf.
    log_mean = log_p.logsumexp(dim=0) - math.log(views * images)
    return math.log(prototypes) + (log_mean.exp() * log_mean).sum()

"""Implicit semantic augmentation (Wang et al., NeurIPS 2019; Zhu et al., NeurIPS 2021)."""

import torch.nn.functional as F
from torch import Tensor

from camp.nn.losses.checks import check_temperature


def semantic_augmentation(
    means: Tensor,
    covariances: Tensor,
    labels: Tensor,
    weight: Tensor,
    bias: Tensor,
    strength: float = 2.5,
    temperature: float = 0.1,
) -> Tensor:
    """Compute an upper bound of the cross-entropy of Gaussian features.

        L = -1/n sum_i log softmax_y( a_i / tau )
        a_ik = w_k.mu_i + b_k + lambda/2 (w_k - w_y)^T Sigma_i (w_k - w_y)

    with y the label of i. By Jensen's inequality L is at least the expected cross-entropy of (w_k.z
    + b_k) / tau for z drawn from N(mu_i, lambda tau Sigma_i).

    Args:
        means: mu (n, D) of n classes or samples.
        covariances: Sigma (n, D, D).
        labels: Labels (n,).
        weight: Weight w (K, D) of the linear classifier.
        bias: Bias b (K,) of the linear classifier.
        strength: lambda.
        temperature: tau.
    """
    check_temperature(temperature)
    difference = weight - weight[labels][:, None]  # (n, K, D)
    variance = ((difference @ covariances) * difference).sum(dim=2)  # (n, K)
    logits = F.linear(means, weight, bias) + strength / 2 * variance
    return F.cross_entropy(logits / temperature, labels)

"""Semantic augmentation (Wang et al., NeurIPS 2019; Zhu et al., NeurIPS 2021): endless samples of a class at once."""

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
    """L = -1/n sum_i log softmax_y( a_i / tau ),  a_ik = w_k.mu_i + b_k + lambda/2 (w_k - w_y)^T Sigma_i (w_k - w_y)

    with y the label of i. means (n, D) and covariances (n, D, D) are those of n classes or samples, labels (n,);
    weight (K, D) and bias (K,) a linear classifier's. By Jensen's inequality L is never less than the mean
    cross-entropy of (w_k.z + b_k) / tau for z drawn from N(mu_i, lambda tau Sigma_i).
    """
    check_temperature(temperature)
    apart = weight - weight[labels][:, None]  # (n, K, D)
    variance = ((apart @ covariances) * apart).sum(dim=2)  # (n, K)
    logits = F.linear(means, weight, bias) + strength / 2 * variance
    return F.cross_entropy(logits / temperature, labels)

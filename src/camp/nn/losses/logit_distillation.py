"""Distillation of logits (Hinton et al., 2015), as used by LwF."""

import torch.nn.functional as F
from torch import Tensor

from camp.nn.losses.checks import check_temperature


def logit_distillation(logits: Tensor, target: Tensor, temperature: float) -> Tensor:
    """Compute L = -1/B sum_i sum_k q_ik log p_ik with p = softmax(logits / T), q = softmax(target / T).

    Args:
        logits: Logits (B, K) of the student; the loss is 0 for B = 0.
        target: Logits (B, K) of the teacher, without gradient.
        temperature: T.
    """
    check_temperature(temperature)
    if logits.shape != target.shape or logits.ndim != 2:
        raise ValueError(
            f"Both logits must have shape (B, K), but have {tuple(logits.shape)} and {tuple(target.shape)}."
        )
    if len(logits) == 0:
        return logits.sum()
    q = F.softmax(target.detach() / temperature, dim=1)
    return F.cross_entropy(logits / temperature, q)

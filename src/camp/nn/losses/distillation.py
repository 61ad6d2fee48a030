"""Losses that keep old knowledge, and the total loss of CAMP.

L = (1 - alpha) ((1 - beta) L_SSL + beta L_SL) + alpha L_KD
"""

from collections.abc import Mapping
from typing import Literal, TypeVar

import torch.nn.functional as F
from torch import Tensor

from camp.nn.losses.checks import check_temperature

Number = TypeVar("Number", Tensor, float)


def projected_distillation(
    predicted: Tensor, target: Tensor, kind: Literal["mse", "cosine"] = "mse"
) -> Tensor:
    """Compute L_KD between phi(F^t(x)) (n, D) and F^{t-1}(x) (n, D), the latter without gradient.

    "mse" is the mean over images and dimensions of (predicted - target)^2, as in the authors' code
    (the paper writes the sum, which is n D times as large; its alpha is for the mean). "cosine" is
    the mean over images of 1 - cos(predicted, target).
    """
    _check_pairs("features", "(n, D)", predicted, target)
    if kind not in ("mse", "cosine"):
        raise ValueError(f'The kind of distillation must be "mse" or "cosine", not "{kind}".')
    if len(predicted) == 0:
        return predicted.sum()
    if kind == "mse":
        return F.mse_loss(predicted, target.detach())
    return (1 - F.cosine_similarity(predicted, target.detach(), dim=1)).mean()


def logit_distillation(logits: Tensor, target: Tensor, temperature: float) -> Tensor:
    """Compute L = -1/B sum_i sum_k q_ik log p_ik with p = softmax(logits / T), q = softmax(target / T).

    Both are (B, K), and the teacher's `target` has no gradient (Hinton et al., 2015; used by LwF).
    """
    check_temperature(temperature)
    _check_pairs("logits", "(B, K)", logits, target)
    if len(logits) == 0:
        return logits.sum()
    q = F.softmax(target.detach() / temperature, dim=1)
    return F.cross_entropy(logits / temperature, q)


def _check_pairs(name: str, shape: str, a: Tensor, b: Tensor) -> None:
    if a.shape != b.shape or a.ndim != 2:
        raise ValueError(
            f"Both {name} must have shape {shape}, but have {tuple(a.shape)} and {tuple(b.shape)}."
        )


def elastic(
    parameters: Mapping[str, Tensor], anchors: Mapping[str, Tensor], fisher: Mapping[str, Tensor]
) -> Tensor:
    """Compute L_EWC = 1/2 sum_i F_i (theta_i - theta*_i)^2 over the parameters named in `fisher`.

    theta* are the parameters after the previous task (`anchors`) and F is the diagonal of the Fisher
    information (Kirkpatrick et al., PNAS 2017).
    """
    terms = [(fisher[name] * (parameters[name] - anchors[name]).square()).sum() for name in fisher]
    return sum(terms[1:], terms[0]) / 2


def balanced(ssl: Number, sl: Number, beta: float) -> Number:
    """Compute L_new = (1 - beta) L_SSL + beta L_SL.

    >>> balanced(1.0, 2.0, beta=0.25)
    1.25
    """
    if not 0 <= beta <= 1:
        raise ValueError(f"beta must be between 0 and 1, not {beta}")
    return (1 - beta) * ssl + beta * sl


def distilled(new: Number, kd: Number, alpha: float) -> Number:
    """Compute L = (1 - alpha) L_new + alpha L_KD, from the second task on.

    >>> distilled(1.0, 3.0, alpha=0.5)
    2.0
    """
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha must be between 0 and 1, not {alpha}")
    return (1 - alpha) * new + alpha * kd

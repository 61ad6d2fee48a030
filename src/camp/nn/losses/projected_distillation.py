"""Feature distillation through the projector phi."""

from typing import Literal

import torch.nn.functional as F
from torch import Tensor


def projected_distillation(
    predicted: Tensor, target: Tensor, kind: Literal["mse", "cosine"] = "mse"
) -> Tensor:
    """Compute L_KD between phi(F^t(x)) and F^{t-1}(x).

    Args:
        predicted: phi(F^t(x)) (n, D).
        target: F^{t-1}(x) (n, D), without gradient.
        kind: "mse" is the mean over images and dimensions of (predicted - target)^2, as in the
            authors' code (the paper writes the sum, which is n D times as large; its alpha is for
            the mean). "cosine" is the mean over images of 1 - cos(predicted, target).
    """
    if predicted.shape != target.shape or predicted.ndim != 2:
        raise ValueError(
            f"Both features must have shape (n, D), but have {tuple(predicted.shape)} and {tuple(target.shape)}."
        )
    if kind not in ("mse", "cosine"):
        raise ValueError(f'The kind of distillation must be "mse" or "cosine", not "{kind}".')
    if len(predicted) == 0:
        return predicted.sum()
    if kind == "mse":
        return F.mse_loss(predicted, target.detach())
    return (1 - F.cosine_similarity(predicted, target.detach(), dim=1)).mean()

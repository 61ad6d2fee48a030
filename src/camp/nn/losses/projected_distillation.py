"""Knowledge distillation through the projector phi."""

from typing import Literal

import torch.nn.functional as F
from torch import Tensor


def projected_distillation(
    predicted: Tensor, target: Tensor, kind: Literal["mse", "cosine"] = "mse"
) -> Tensor:
    """L_KD between phi(F^t(x)), `predicted` (n, D), and F^{t-1}(x), `target` (n, D), which gets no gradient.

    "mse": the mean over images and dimensions of (predicted - target)^2, as in the authors' code. The paper
    writes the sum over the batch of squared norms, n D times as much; its alpha goes with the mean.
    "cosine": the mean over images of 1 - cos(predicted, target).
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

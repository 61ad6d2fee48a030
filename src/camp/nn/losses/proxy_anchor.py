"""Proxy-anchor loss (Kim et al., CVPR 2020)."""

import torch
import torch.nn.functional as F
from torch import Tensor

from camp.nn.losses.checks import check_labels, check_views


def proxy_anchor(
    z: Tensor, labels: Tensor, proxies: Tensor, scale: float = 32.0, margin: float = 0.1
) -> Tensor:
    """Compute the proxy-anchor loss.

        L = 1/|P+| sum_{p in P+} log(1 + sum_{z in Z_p+} e^{-mu (s(z, p) - delta)})
          + 1/|P|  sum_{p in P}  log(1 + sum_{z in Z_p-} e^{ mu (s(z, p) + delta)})

    where Z_p+ are the embeddings of p's class, Z_p- all others, P+ the proxies whose class is in
    the batch and s the cosine.

    Args:
        z: Embeddings (2, B, D) of two views, 2B in all; the loss is 0 for B = 0.
        labels: Labels (B,) of the images.
        proxies: Proxies P (C, D) of the classes 0 .. C - 1.
        scale: mu.
        margin: delta.
    """
    check_views("z", z)
    check_labels(labels, z)
    if z.shape[1] == 0:
        return z.sum()
    classes = torch.arange(len(proxies), device=z.device)
    s = F.normalize(z.flatten(0, 1), dim=-1) @ F.normalize(proxies, dim=-1).T  # (2B, C)
    positive = labels.repeat(2)[:, None] == classes
    present = positive.any(dim=0)  # P+
    pull = _log_one_plus_sum(-scale * (s - margin), positive)
    push = _log_one_plus_sum(scale * (s + margin), ~positive)
    return pull[present].mean() + push.mean()


def _log_one_plus_sum(x: Tensor, chosen: Tensor) -> Tensor:
    """Compute log(1 + sum_i e^x_ic) over the `chosen` i, for every c: (n, C) -> (C,)."""
    # The 1 is an additional row e^0 of the logsumexp, so that large exponents cannot overflow.
    return F.pad(x.masked_fill(~chosen, -torch.inf), (0, 0, 1, 0)).logsumexp(dim=0)

"""Contrastive and metric losses on two views of each image, L2-normalised here; 0 for a batch without images."""

import torch
import torch.nn.functional as F
from torch import Tensor

from camp.nn.losses.checks import check_labels, check_temperature, check_views


def log_probabilities(h: Tensor, temperature: float) -> Tensor:
    """Compute log( exp(h_i.h_n/tau) / sum_{n != i} exp(h_i.h_n/tau) ) for all views i, n: (2B, 2B).

    The projections h are (2, B, d); entries i = n are minus infinity.
    """
    views = F.normalize(h.flatten(0, 1), dim=1)  # (2B, d)
    similarity = views @ views.T / temperature
    itself = torch.eye(len(views), dtype=torch.bool, device=h.device)
    return similarity.masked_fill(itself, -torch.inf).log_softmax(dim=1)


def simclr(h: Tensor, temperature: float = 1.0) -> Tensor:
    """Compute L_SimCLR = -1/2B sum_i log( exp(h_i.h_i'/tau) / sum_{n != i} exp(h_i.h_n/tau) ).

    The sum is over all 2B views i of the projections h (2, B, d); i' is the other view of the same
    image, n runs over the 2B - 1 other views (Chen et al., 2020). The default temperature is that of
    the authors' code, while the paper uses SupCon's.
    """
    check_views("h", h)
    check_temperature(temperature)
    images = h.shape[1]
    if images == 0:
        return h.sum()
    other_view = torch.arange(2 * images, device=h.device).roll(images)
    return F.nll_loss(log_probabilities(h, temperature), other_view)


def supcon(h: Tensor, labels: Tensor, temperature: float = 0.07) -> Tensor:
    """Compute L_SupCon = -1/2B sum_i 1/|N_i| sum_{q in N_i} log p_iq (Khosla et al., 2020).

        p_iq = exp(h_i.h_q/tau) / sum_{n != i} exp(h_i.h_n/tau)

    The sum is over all 2B views i of h (2, B, d) (both views are anchors); N_i are the other views
    with the label (B,) of i, including the other view of the same image.
    """
    check_views("h", h)
    check_labels(labels, h)
    check_temperature(temperature)
    if h.shape[1] == 0:
        return h.sum()
    log_p = log_probabilities(h, temperature)  # (2B, 2B)
    both = labels.repeat(2)
    positive = (both[:, None] == both).fill_diagonal_(False)
    # Mask the -inf of a view with itself, since 0 * -inf is not 0.
    per_anchor = log_p.masked_fill(~positive, 0.0).sum(dim=1) / positive.sum(dim=1)
    return -per_anchor.mean()


def soft_neighbourhood(h: Tensor, threshold: float = 0.85, temperature: float = 0.07) -> Tensor:
    """Compute the soft neighbourhood contrastive loss (MetaGCD, Wu et al., 2023) of h (2, B, d).

        L = -1/|A| sum_{a in A} 1/|P_a| sum_{b in P_a} w_ij log p_ab
        p_ab = exp(h_a.h_b/tau) / sum_{n != a} exp(h_a.h_n/tau)

    where a is a view of image i and b a view of image j. The similarity s_ij of two images is the
    maximum cosine of their views; N_i = {j : s_ij >= threshold} are the neighbours of i, including
    i; P_a are the other views of N_i, and A the views of images with other neighbours than
    themselves (SimCLR handles the rest). The positiveness w_ij is the softmax of s_ij over N_i,
    scaled to a maximum of 1: w_ij = exp(s_ij - 1), since s_ii = 1.

    Unlike in the code of the authors, n runs over all other views instead of those in A, and
    neighbours and positiveness have no gradient; otherwise the loss would decrease by making
    neighbours less similar.
    """
    check_views("h", h)
    check_temperature(temperature)
    if not -1 <= threshold <= 1:
        raise ValueError(f"threshold must be a cosine between -1 and 1, but is {threshold}.")
    with torch.no_grad():
        unit = F.normalize(h, dim=-1)
        s = torch.einsum("vid,wjd->vwij", unit, unit).amax(dim=(0, 1)).fill_diagonal_(1.0)  # (B, B)
        neighbour = s >= threshold
        anchor = (neighbour.sum(dim=1) > 1).repeat(2)  # (2B,)
        w = torch.where(neighbour, torch.exp(s - 1), 0.0).repeat(2, 2).fill_diagonal_(0.0)  # (2B, 2B)
    if not anchor.any():
        return 0.0 * h.sum()
    log_p = log_probabilities(h, temperature).masked_fill(w == 0, 0.0)[anchor]
    w = w[anchor]
    return -((w * log_p).sum(dim=1) / (w > 0).sum(dim=1)).mean()


def proxy_anchor(
    z: Tensor, labels: Tensor, proxies: Tensor, scale: float = 32.0, margin: float = 0.1
) -> Tensor:
    """Compute the proxy-anchor loss (Kim et al., CVPR 2020) of embeddings z (V, B, D) with labels (B,).

        L = 1/|P+| sum_{p in P+} log(1 + sum_{z in Z_p+} e^{-mu (s(z, p) - delta)})
          + 1/|P|  sum_{p in P}  log(1 + sum_{z in Z_p-} e^{ mu (s(z, p) + delta)})

    over the embeddings of all V views. P are the proxies (C, D) of the classes 0 .. C - 1, Z_p+ the
    embeddings of p's class, Z_p- all others, P+ the proxies whose class is in the batch, s the cosine,
    mu the `scale` and delta the `margin`.
    """
    if z.ndim != 3:
        raise ValueError(f"z must have shape (views, B, dims), but has {tuple(z.shape)}.")
    check_labels(labels, z)
    if z.shape[1] == 0:
        return z.sum()
    classes = torch.arange(len(proxies), device=z.device)
    s = F.normalize(z.flatten(0, 1), dim=-1) @ F.normalize(proxies, dim=-1).T  # (2B, C)
    positive = labels.repeat(len(z))[:, None] == classes
    present = positive.any(dim=0)  # P+
    pull = _log_one_plus_sum(-scale * (s - margin), positive)
    push = _log_one_plus_sum(scale * (s + margin), ~positive)
    return pull[present].mean() + push.mean()


def _log_one_plus_sum(x: Tensor, chosen: Tensor) -> Tensor:
    """Compute log(1 + sum_i e^x_ic) over the `chosen` i, for every c: (n, C) -> (C,)."""
    # The 1 is an additional row e^0 of the logsumexp, so that large exponents cannot overflow.
    return F.pad(x.masked_fill(~chosen, -torch.inf), (0, 0, 1, 0)).logsumexp(dim=0)

"""Fits of the adapters psi to pairs of features (n, D) of the same views under the old and the new model."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from camp.core.progress import Progress
from camp.nn.adapters.settings import AdapterSettings
from camp.nn.init import init_default_

Adapter = Callable[[Tensor], Tensor]
"""Function from centroids (k, D) in the old feature space to the new one."""

_MOMENTUM, _WEIGHT_DECAY, _DECAY_PER_EPOCH = 0.9, 1e-5, 0.95


def fit_network(
    network: nn.Module,
    old: Tensor,
    new: Tensor,
    settings: AdapterSettings,
    generator: torch.Generator,
    progress: Progress,
    views: int,
) -> Adapter:
    """Minimise the mean of |F^t(x) - psi(F^{t-1}(x))|^2 over pairs (n, D); return psi in evaluation mode.

    SGD as in the authors' code. With several `views` per image an epoch takes n / views pairs, different ones in consecutive
    epochs.
    """
    init_default_(network.to(old.device), generator).train()
    optimizer = torch.optim.SGD(
        network.parameters(),
        lr=settings.adapter_learning_rate,
        momentum=_MOMENTUM,
        weight_decay=_WEIGHT_DECAY,
    )
    with progress.track("Adapter", settings.adapter_epochs) as bar:
        for epoch in range(settings.adapter_epochs):
            for group in optimizer.param_groups:
                group["lr"] = settings.adapter_learning_rate * _DECAY_PER_EPOCH**epoch
            if epoch % views == 0:
                parts = torch.randperm(len(old), generator=generator).tensor_split(views)
            for rows in torch.split(parts[epoch % views].to(old.device), settings.adapter_batch_size):
                if len(rows) < 2:  # batch norm needs two
                    continue
                loss = F.mse_loss(network(old[rows]), new[rows])
                optimizer.zero_grad(set_to_none=True)
                torch.autograd.backward(loss)
                optimizer.step()
            bar.advance()
    network.eval()

    @torch.no_grad()
    def psi(centroids: Tensor) -> Tensor:
        moved: Tensor = network(centroids)
        return moved

    return psi


def fit_linear(old: Tensor, new: Tensor, settings: AdapterSettings) -> Adapter:
    """Fit the linear adapter of CAMP, psi(p) = W p + b, in closed form.

        min_{W, b}  1/n sum_i | F^t(x_i) - W F^{t-1}(x_i) - b |^2  +  lambda | W - I |^2

    The ridge penalty is relative to the identity: in directions without data (with fewer pairs than
    dimensions, or features in a subspace) a centroid stays where it was.
    """
    weight, bias = least_squares(old, new, settings.ridge)
    return lambda centroids: (centroids.double() @ weight.T + bias).to(centroids.dtype)


def least_squares(old: Tensor, new: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    """Return W (D, D) and b (D,) in double precision.

    With Delta = W - I the residual is (new - old) - Delta old, an ordinary ridge regression of the
    drift; lambda is `ridge` times the mean variance of the old features.
    """
    count, dim = old.shape
    x, y = old.double(), new.double()
    mean_x, mean_y = x.mean(dim=0), y.mean(dim=0)
    x, drift = x - mean_x, (y - mean_y) - (x - mean_x)
    covariance = x.T @ x / count
    scale = covariance.diagonal().mean().clamp_min(torch.finfo(torch.double).tiny)
    identity = torch.eye(dim, dtype=torch.double, device=old.device)
    # A minimal ridge keeps the factorisation defined if ridge is 0 and the features are degenerate.
    factor = torch.linalg.cholesky(covariance + max(ridge, 1e-12) * scale * identity)
    weight = identity + torch.cholesky_solve(x.T @ drift / count, factor).T
    return weight, mean_y - weight @ mean_x


def fit_sdc(old: Tensor, new: Tensor, settings: AdapterSettings) -> Adapter:
    """Return psi, which moves each centroid p by the drift of the images near it (SDC, Yu et al., CVPR 2020).

        w_i = exp(-|F^{t-1}(x_i) - p|^2 / (2 sigma^2)) + floor
        p  += sum_i w_i (F^t(x_i) - F^{t-1}(x_i)) / sum_i w_i

    The squared distances of unnormalised ViT features are so large that the exponentials vanish: with
    the floor of 1e-5 of the authors' code all weights are equal, and p moves by the mean drift. With a
    floor of 0 the weights differ; they are computed in log space and do not vanish.
    """
    drift = new - old
    floor = math.log(settings.sdc_floor) if settings.sdc_floor else -math.inf

    def psi(centroids: Tensor) -> Tensor:
        # Not via |x|^2 - 2 x.p + |p|^2, whose rounding error is large compared with sigma^2.
        distances = torch.cdist(centroids, old, compute_mode="donot_use_mm_for_euclid_dist")
        log_w = -distances.square() / (2 * settings.sdc_sigma**2)  # (k, n)
        log_w = torch.logaddexp(log_w, torch.full_like(log_w, floor))
        return centroids + log_w.softmax(dim=1) @ drift

    return psi

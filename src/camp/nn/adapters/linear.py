"""The linear adapter, CAMP's own: psi(p) = W p + b.

    min_{W, b}  1/n sum_i | F^t(x_i) - W F^{t-1}(x_i) - b |^2  +  lambda | W - I |^2

solved exactly. The ridge pulls towards the identity: in directions that the pairs say nothing about (there
are fewer pairs than dimensions, or the features lie in a plane) a centroid stays where it was, which is the
best guess about a tip that moved little.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from camp.core.progress import Progress
from camp.nn.adapters.descent import fit_network
from camp.nn.adapters.settings import AdapterSettings


def fit_linear(
    old: Tensor,
    new: Tensor,
    settings: AdapterSettings,
    generator: torch.Generator,
    progress: Progress,
    views: int = 1,
) -> Callable[[Tensor], Tensor]:
    """psi by the normal equations, or by the reference's descent."""
    if settings.solver == "sgd":
        network = nn.Linear(old.shape[1], new.shape[1])
        return fit_network(network, old, new, settings, generator, progress, views)
    weight, bias = least_squares(old, new, settings.ridge)
    return lambda centroids: (centroids.double() @ weight.T + bias).to(centroids.dtype)


def least_squares(old: Tensor, new: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    """W (D, D) and b (D,) in double precision.

    With D = W - I the residual is (new - old) - D old, a plain ridge problem for the drift; lambda is `ridge`
    times the mean variance of the old features.
    """
    count, dim = old.shape
    x, y = old.double(), new.double()
    mean_x, mean_y = x.mean(dim=0), y.mean(dim=0)
    x, drift = x - mean_x, (y - mean_y) - (x - mean_x)
    covariance = x.T @ x / count
    scale = covariance.diagonal().mean().clamp_min(torch.finfo(torch.double).tiny)
    identity = torch.eye(dim, dtype=torch.double, device=old.device)
    # A trace of the scale keeps the factorisation defined when ridge is 0 and the features are degenerate.
    factor = torch.linalg.cholesky(covariance + max(ridge, 1e-12) * scale * identity)
    weight = identity + torch.cholesky_solve(x.T @ drift / count, factor).T
    return weight, mean_y - weight @ mean_x

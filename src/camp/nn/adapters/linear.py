"""Linear adapter of CAMP: psi(p) = W p + b.

    min_{W, b}  1/n sum_i | F^t(x_i) - W F^{t-1}(x_i) - b |^2  +  lambda | W - I |^2

solved in closed form. The ridge penalty is relative to the identity: in directions without data
(with fewer pairs than dimensions, or features in a subspace) a centroid stays where it was.
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
    """Fit psi by the normal equations, or by SGD as in the authors' code."""
    if settings.solver == "sgd":
        network = nn.Linear(old.shape[1], new.shape[1])
        return fit_network(network, old, new, settings, generator, progress, views)
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

"""The adapters by name."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from camp.core.errors import CampError
from camp.core.progress import Progress
from camp.nn.adapters.settings import AdapterSettings
from camp.nn.adapters.solvers import Adapter, fit_linear, fit_network, fit_sdc
from camp.nn.distillers import mlp, trex

NETWORKS: dict[str, Callable[[int], nn.Module]] = {
    "linear": lambda dim: nn.Linear(dim, dim),
    "mlp": mlp,
    # Without its last normalisation, since the new features are not normalised.
    "trex": lambda dim: trex(dim)[:-1],
}
"""Adapters that are trained by SGD, by the length of features."""

ADAPTERS = ("none", *NETWORKS, "sdc")


def fit_adapter(
    name: str,
    old: Tensor,
    new: Tensor,
    settings: AdapterSettings,
    generator: torch.Generator,
    progress: Progress | None = None,
    views: int = 1,
) -> Adapter:
    """Fit psi to the features (n, D) of the same views under the `old` and the `new` model.

    `views` is the number of views per image; an SGD epoch takes one of them.
    """
    if old.shape != new.shape or old.dim() != 2:
        raise ValueError(f"pairs of features are (n, D) each, not {tuple(old.shape)} and {tuple(new.shape)}")
    progress = progress or Progress(quiet=True)
    if name == "none":
        return lambda centroids: centroids
    if name == "linear" and settings.solver == "exact":
        return fit_linear(old, new, settings)
    if name == "sdc":
        return fit_sdc(old, new, settings)
    if name in NETWORKS:
        return fit_network(NETWORKS[name](old.shape[1]), old, new, settings, generator, progress, views)
    raise CampError(f'There is no adapter "{name}"; the adapters are {", ".join(ADAPTERS)}.')

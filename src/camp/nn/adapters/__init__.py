"""Adapters psi: Z_t-1 -> Z_t, which map centroids of earlier tasks to the new feature space."""

from collections.abc import Callable

import torch
from torch import Tensor

from camp.core.errors import CampError
from camp.core.progress import Progress
from camp.nn.adapters.descent import fit_network
from camp.nn.adapters.linear import fit_linear
from camp.nn.adapters.sdc import fit_sdc
from camp.nn.adapters.settings import AdapterSettings
from camp.nn.distillers import mlp, trex

__all__ = ["ADAPTERS", "Adapter", "AdapterSettings", "fit_adapter"]

Adapter = Callable[[Tensor], Tensor]
"""Function from centroids (k, D) in the old feature space to the new one."""

ADAPTERS = ("none", "linear", "mlp", "trex", "sdc")


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
    if name == "linear":
        return fit_linear(old, new, settings, generator, progress, views)
    if name in ("mlp", "trex"):
        # T-ReX without its last normalisation, since the new features are not normalised.
        network = mlp(old.shape[1]) if name == "mlp" else trex(old.shape[1])[:-1]
        return fit_network(network, old, new, settings, generator, progress, views)
    if name == "sdc":
        return fit_sdc(old, new, settings)
    raise CampError(f'There is no adapter "{name}"; the adapters are {", ".join(ADAPTERS)}.')

"""Adapters trained by SGD on pairs of features, as in the authors' code."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from camp.core.progress import Progress
from camp.nn.adapters.settings import AdapterSettings
from camp.nn.init import init_default_

_MOMENTUM, _WEIGHT_DECAY, _DECAY_PER_EPOCH = 0.9, 1e-5, 0.95


def fit_network(
    network: nn.Module,
    old: Tensor,
    new: Tensor,
    settings: AdapterSettings,
    generator: torch.Generator,
    progress: Progress,
    views: int = 1,
) -> Callable[[Tensor], Tensor]:
    """Minimise the mean of |F^t(x) - psi(F^{t-1}(x))|^2 over pairs (n, D); return psi in evaluation mode.

    With several `views` per image an epoch takes n / views pairs, different ones in consecutive
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

"""Settings of adapters; imported by the command line, hence without torch."""

from dataclasses import dataclass
from typing import Literal

from camp.core.errors import CampError


@dataclass(frozen=True)
class AdapterSettings:
    """Settings of all adapters; each uses those that concern it."""

    solver: Literal["exact", "sgd"] = "exact"
    """Solver of the linear adapter: least squares in closed form, or SGD as in the authors' code."""
    ridge: float = 1e-3
    """Ridge penalty of the exact solver, relative to the mean variance of the old features."""
    adapter_epochs: int = 100
    """Number of SGD epochs for the MLP and T-ReX adapters, and the linear adapter with the solver sgd."""
    adapter_learning_rate: float = 0.1
    """Initial learning rate of the adapter's SGD, multiplied by 0.95 after each epoch."""
    adapter_batch_size: int = 128
    """Batch size of the adapter's SGD."""
    sdc_sigma: float = 0.3
    """Width sigma of the Gaussian weights of SDC."""
    sdc_floor: float = 1e-5
    """Minimum weight of a pair in SDC, before normalisation."""

    def __post_init__(self) -> None:
        if self.ridge < 0 or self.sdc_floor < 0:
            raise CampError("The ridge and SDC's floor cannot be negative.")
        if self.sdc_sigma <= 0 or self.adapter_learning_rate <= 0:
            raise CampError("SDC's sigma and the adapter's learning rate must be positive.")
        if self.adapter_epochs < 1 or self.adapter_batch_size < 2:
            raise CampError("An adapter trained by SGD needs at least one epoch and batches of two.")

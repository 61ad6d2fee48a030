"""How adapters are fitted; free of torch."""

from dataclasses import dataclass
from typing import Literal

from camp.core.errors import CampError


@dataclass(frozen=True)
class AdapterSettings:
    """Settings of all adapters; each reads those that concern it."""

    solver: Literal["exact", "sgd"] = "exact"
    """Of the linear adapter: least squares in closed form, or the reference's descent."""
    ridge: float = 1e-3
    """Of the exact solution: pull towards the identity, relative to the mean variance of the old features."""
    adapter_epochs: int = 100
    """Of descent."""
    adapter_learning_rate: float = 0.1
    """Of descent with momentum 0.9, times 0.95 after each epoch."""
    adapter_batch_size: int = 128
    """Of descent."""
    sdc_sigma: float = 0.3
    """Width of SDC's weights."""
    sdc_floor: float = 1e-5
    """Least weight of a pair in SDC, before they are made to sum to one."""

    def __post_init__(self) -> None:
        if self.ridge < 0 or self.sdc_floor < 0:
            raise CampError("The ridge and SDC's floor can not be negative.")
        if self.sdc_sigma <= 0 or self.adapter_learning_rate <= 0:
            raise CampError("SDC's sigma and the adapter's learning rate must be positive.")
        if self.adapter_epochs < 1 or self.adapter_batch_size < 2:
            raise CampError("An adapter trained by descent needs at least one epoch and batches of two.")

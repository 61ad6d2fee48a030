"""Checks of the arguments of losses."""

from torch import Tensor


def check_views(name: str, value: Tensor) -> None:
    """Raise an error unless `value` (2, B, d) holds two views of B images."""
    if value.ndim != 3 or value.shape[0] != 2:
        raise ValueError(
            f"{name} must have shape (2, B, dims), two views first, but has {tuple(value.shape)}."
        )


def check_labels(labels: Tensor, value: Tensor) -> None:
    """Raise an error unless `labels` (B,) has one label for both views."""
    if labels.shape != value.shape[1:2]:
        raise ValueError(
            f"labels must have shape ({value.shape[1]},), one for both views, but have {tuple(labels.shape)}."
        )


def check_temperature(temperature: float) -> None:
    """Raise an error unless the temperature is positive."""
    if not temperature > 0:
        raise ValueError(f"The temperature must be positive, but is {temperature}.")

"""What every loss asks of its input."""

from torch import Tensor


def check_views(name: str, value: Tensor) -> None:
    """Refuse what is not two views (2, B, ...) of B images."""
    if value.ndim != 3 or value.shape[0] != 2:
        raise ValueError(
            f"{name} must have shape (2, B, dims), two views first, but has {tuple(value.shape)}."
        )


def check_labels(labels: Tensor, value: Tensor) -> None:
    """Refuse labels that are not one (B,) for both views."""
    if labels.shape != value.shape[1:2]:
        raise ValueError(
            f"labels must have shape ({value.shape[1]},), one for both views, but have {tuple(labels.shape)}."
        )


def check_temperature(temperature: float) -> None:
    """Refuse temperatures that are not above zero."""
    if not temperature > 0:
        raise ValueError(f"A temperature must be above 0, and {temperature} is not.")

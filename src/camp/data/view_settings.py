"""Settings of views; free of torch, so that the command line can show them at once."""

from dataclasses import dataclass, field
from typing import Literal

from camp.core.errors import CampError
from camp.core.settings import DOES_NOT_CHANGE_RESULT


@dataclass(frozen=True)
class Augmentation:
    """The reference's self-supervised view: random resized crop, colour jitter, greyscale, flip."""

    crop_scale: float = 0.08
    """Smallest share of the picture's area a crop may have."""
    flip: float = 0.5
    """Probability of a horizontal flip."""
    jitter: float = 0.8
    """Probability of a change of colour."""
    brightness: float = 0.4
    """Greatest relative change of brightness."""
    contrast: float = 0.4
    """Greatest relative change of contrast."""
    saturation: float = 0.2
    """Greatest relative change of saturation."""
    hue: float = 0.1
    """Greatest shift of hue, in turns of the colour circle."""
    grey: float = 0.2
    """Probability of a grey picture."""
    vector_noise: float = 0.1
    """For embeddings instead of pictures: length of the noise relative to the vector's."""
    vector_dropout: float = 0.1
    """For embeddings: probability that an entry is dropped."""

    def __post_init__(self) -> None:
        if not 0 < self.crop_scale <= 1:
            raise CampError(f"The smallest crop must be a share in (0, 1], not {self.crop_scale}.")
        for name in ("flip", "jitter", "grey", "vector_dropout"):
            if not 0 <= getattr(self, name) <= 1:
                raise CampError(
                    f"The probability of {name} must be between 0 and 1, not {getattr(self, name)}."
                )
        if self.vector_dropout == 1:
            raise CampError("A vector_dropout of 1 leaves nothing of a vector; use less.")


@dataclass(frozen=True)
class ViewSettings:
    """Where views come from."""

    views: Literal["bank", "fresh"] = "bank"
    """`bank`: the trunk runs once a view and training reads its output. `fresh`: new augmentations in each
    step, through the trunk each time (the paper's regime, for GPUs)."""
    augmentations: int = 8
    """Augmented views a picture has in the bank; each epoch draws two of them."""
    precision: Literal["half", "int8"] = "half"
    """How tokens are kept in the bank."""
    normalisation: Literal["backbone", "reference"] = "backbone"
    """Pixel statistics: those the backbone was trained with, or the reference's (CIFAR-10's for all)."""
    bank: str | None = field(default=None, metadata=DOES_NOT_CHANGE_RESULT)
    """Folder of the view banks; by default camp/banks in the user's cache."""
    crop_scale: float | None = None
    """Smallest share of the area a random crop keeps; by default the data set's."""
    flip: float | None = None
    """Probability of a mirrored view; by default the data set's."""
    jitter: float | None = None
    """Probability of changed colours; by default the data set's."""
    grey: float | None = None
    """Probability of a grey view; by default the data set's."""
    bad_share: float = 0.05
    """Share of unreadable pictures above which a run stops."""

    def __post_init__(self) -> None:
        if self.views == "bank" and self.augmentations < 2:
            raise CampError(
                f"Two views of a picture are compared, so the bank needs at least 2 augmentations, not {self.augmentations}."
            )
        if not 0 <= self.bad_share <= 1:
            raise CampError(f"bad_share is a share between 0 and 1, not {self.bad_share}.")

"""Settings of views and augmentations; imported by the command line, hence without torch."""

from dataclasses import dataclass, field
from typing import Literal

from camp.core.errors import CampError
from camp.core.settings import DOES_NOT_CHANGE_RESULT


@dataclass(frozen=True)
class Augmentation:
    """Random crop, flip, colour jitter and greyscale, as in the authors' code."""

    crop_scale: float = 0.08
    """Minimum area of a crop, as a fraction of the image; the crop is resized to the size of the image."""
    padding: float | None = None
    """If given, a crop has the size of the image instead, which is first padded with black on each side by this fraction
    of its side (1/8: 4 of 32 pixels)."""
    flip: float = 0.5
    """Probability of a horizontal flip."""
    jitter: float = 0.8
    """Probability of colour jitter."""
    brightness: float = 0.4
    """Maximum relative change of brightness."""
    contrast: float = 0.4
    """Maximum relative change of contrast."""
    saturation: float = 0.2
    """Maximum relative change of saturation."""
    hue: float = 0.1
    """Maximum shift of the hue, in turns of the colour circle."""
    grey: float = 0.2
    """Probability of conversion to greyscale."""
    vector_noise: float = 0.1
    """For vectors instead of images: length of the noise, relative to the length of the vector."""
    vector_dropout: float = 0.1
    """For vectors: probability that an entry is dropped."""

    def __post_init__(self) -> None:
        if not 0 < self.crop_scale <= 1:
            raise CampError(
                f"The minimum area of a crop (crop_scale) must be in (0, 1], not {self.crop_scale}."
            )
        if self.padding is not None and not 0 <= self.padding < 1:
            raise CampError(f"padding is a fraction of the side of an image, in [0, 1), not {self.padding}.")
        for name in ("flip", "jitter", "grey", "vector_dropout"):
            if not 0 <= getattr(self, name) <= 1:
                raise CampError(
                    f"The probability of {name} must be between 0 and 1, not {getattr(self, name)}."
                )
        if self.vector_dropout == 1:
            raise CampError("A vector_dropout of 1 leaves nothing of a vector; use a smaller value.")


@dataclass(frozen=True)
class ViewSettings:
    """How views of images are computed and stored."""

    views: Literal["bank", "fresh"] = "bank"
    """`bank`: run the trunk once per view and train on its stored output. `fresh`: run the trunk
    on new augmentations at each step, as in the paper (for GPUs)."""
    augmentations: int = 8
    """Number of augmented views per image in the bank; each epoch draws two of them, and methods that train nothing
    need none."""
    precision: Literal["half", "int8"] = "half"
    """Precision of the tokens in the bank."""
    normalisation: Literal["backbone", "reference"] = "backbone"
    """Pixel statistics: those of the backbone, or of CIFAR-10, as in the authors' code."""
    bank: str | None = field(default=None, metadata=DOES_NOT_CHANGE_RESULT)
    """Folder of the view banks; by default camp/banks in the user's cache folder."""
    crop_scale: float | None = None
    """Minimum area of a random crop, as a fraction of the image; by default that of the data set."""
    padding: float | None = None
    """Crop images at their own size after padding them by this fraction of their side, instead of resizing crops;
    by default 0.125 for CIFAR with --setting cil, as FACIL and PyCIL do."""
    flip: float | None = None
    """Probability of a horizontal flip; by default that of the data set."""
    jitter: float | None = None
    """Probability of colour jitter; by default that of the data set, and 0 with --setting cil."""
    grey: float | None = None
    """Probability of conversion to greyscale; by default that of the data set, and 0 with --setting cil."""
    bad_share: float = 0.05
    """Maximum fraction of unreadable images; a run with more of them stops."""

    def __post_init__(self) -> None:
        if self.augmentations < 0:
            raise CampError(f"The number of augmentations cannot be negative, and {self.augmentations} is.")
        if self.bank is not None and not self.bank.strip():
            raise CampError("The folder of the view banks (bank) is empty; give its name, or leave it out.")
        if self.crop_scale is not None and self.padding is not None:
            raise CampError("Crops are either resized (crop_scale) or padded (padding): give one of the two.")
        if not 0 <= self.bad_share <= 1:
            raise CampError(f"bad_share must be between 0 and 1, not {self.bad_share}.")

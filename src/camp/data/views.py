"""Interfaces of views and encoders. A method accesses views by row, and never files, names or true labels."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, Self

import torch
from torch import Tensor

Batch = dict[str, Tensor]
"""Fields of n views by name, each (n, ...); a tip computes features (n, D) from them."""

Trunk = Callable[[Tensor], Batch]
"""Function from normalised float32 pixels (B, 3, R, R) to the fields of B views."""


@dataclass(frozen=True)
class Field:
    """Name and shape of one output tensor of a trunk."""

    name: str
    shape: tuple[int, ...]
    """Shape for one view, without the batch axis."""
    kind: Literal["tokens", "exact"]
    """"tokens" may be stored in half precision, or in int8 with one scale per row of the last axis,
    in a second field `name_scale`. "exact" is stored in float32."""


class Encoder(Protocol):
    """The part of a backbone that the view bank uses: the frozen trunk, its input and its output."""

    name: str
    resolution: int
    """Image side R in pixels; 0 if the input is not images."""
    mean: tuple[float, float, float]
    """Mean of the pixel normalisation, for pixels in 0..1."""
    std: tuple[float, float, float]
    fields: tuple[Field, ...]
    """Fields that the trunk computes for a view."""
    trunk: Trunk | None
    """Frozen trunk, or None if the tip takes pixels or vectors directly."""
    fingerprint: str
    """Hash of the trunk's weights and resolution: equal fingerprints give equal fields."""

    @property
    def device(self) -> torch.device:
        """Device of the trunk and the tip."""

    def single_threaded_trunk(self) -> Trunk | None:
        """Return the trunk for callers that run one thread per core."""


class Views(Protocol):
    """Views of n images: one clean view and several augmented views of each."""

    @property
    def augmentations(self) -> int | None:
        """Number of augmented views per image, or None if each draw is a new view."""

    def __len__(self) -> int:
        """Return the number of images n."""

    def clean(self, rows: Tensor) -> Batch:
        """Return the clean views of images `rows` (B,)."""

    def draw(self, rows: Tensor, count: int, generator: torch.Generator) -> Tensor:
        """Draw ids (count, B) of augmented views of each image, different ones if there are enough."""

    def augmented(self, rows: Tensor, ids: Tensor) -> Batch:
        """Return the views `ids` (count, B) of images `rows` (B,), view-major: count * B views."""

    def subset(self, rows: Tensor) -> Self:
        """Return views of the images `rows`."""

    def concat(self, other: Self) -> Self:
        """Return views of these images followed by those of `other`, which must be of the same bank."""

    def digests(self) -> Tensor:
        """Return the digests (n, 16) uint8 of the images."""

    def from_digests(self, digests: Tensor) -> Self:
        """Return views of the images of the same bank with these digests (m, 16)."""

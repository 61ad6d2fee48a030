"""What a method sees of pictures: views by number, never files, names or true labels."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, Self

import torch
from torch import Tensor

Batch = dict[str, Tensor]
"""The fields a trunk gives for n views, by name; axis 0 of each is the view. A tip turns it into (n, D)."""

Trunk = Callable[[Tensor], Batch]
"""Normalised float32 pixels (B, 3, R, R) -> the fields of B views."""


@dataclass(frozen=True)
class Field:
    """One tensor that a trunk gives for a view."""

    name: str
    shape: tuple[int, ...]
    """Of one view, without the batch axis."""
    kind: Literal["tokens", "exact"]
    """"tokens" may be kept in half precision, or in int8 with one scale per row of the last axis; the scales
    then come as a second field, `name_scale`. "exact" stays float32."""


class Encoder(Protocol):
    """What the view bank needs of a backbone: the frozen trunk, and what it takes and gives."""

    @property
    def name(self) -> str:
        """Name of the encoder."""

    @property
    def resolution(self) -> int:
        """R, side of the square images in pixels; 0 where there are no images."""

    @property
    def mean(self) -> tuple[float, float, float]:
        """Mean of the normalisation that the network expects, for pixels in 0..1."""

    @property
    def std(self) -> tuple[float, float, float]:
        """Standard deviation of the same normalisation."""

    @property
    def fields(self) -> tuple[Field, ...]:
        """What the trunk gives for a view."""

    @property
    def trunk(self) -> Trunk | None:
        """The frozen trunk, or None where the tip takes pixels or vectors as they are."""

    @property
    def fingerprint(self) -> str:
        """Hash of the trunk's weights, cut and resolution: equal fingerprints give equal fields."""

    @property
    def device(self) -> torch.device:
        """Device of the trunk and the tip."""

    def single_threaded_trunk(self) -> Trunk | None:
        """The trunk for callers that run it in one thread per core."""


class Views(Protocol):
    """The views of n pictures: one clean view and a number of augmented ones each."""

    @property
    def augmentations(self) -> int | None:
        """Augmented views a picture has, or None when each draw is a new one."""

    def __len__(self) -> int:
        """Number of pictures n."""

    def clean(self, rows: Tensor) -> Batch:
        """The clean views of pictures `rows` (B,), in that order."""

    def draw(self, rows: Tensor, count: int, generator: torch.Generator) -> Tensor:
        """Ids (count, B) of `count` augmented views for each picture, no two alike where there are enough."""

    def augmented(self, rows: Tensor, ids: Tensor) -> Batch:
        """The views `ids` (count, B) of pictures `rows` (B,), view-major: count * B views."""

    def subset(self, rows: Tensor) -> Self:
        """The same views for some of the pictures."""

    def joined(self, other: Self) -> Self:
        """These pictures followed by those of `other`, which must come from the same bank."""

    def digests(self) -> Tensor:
        """Fingerprints (n, 16) uint8 of the pictures; `restored` finds them again."""

    def restored(self, digests: Tensor) -> Self:
        """Views of the pictures with these fingerprints in the same bank."""

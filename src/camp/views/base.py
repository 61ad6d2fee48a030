"""What a method sees of pictures: views by number, never files, names or true labels."""

from typing import Protocol, Self

import torch
from torch import Tensor

Batch = dict[str, Tensor]
"""The fields a trunk gives for n views, by name; axis 0 of each is the view. A tip turns it into (n, D)."""


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

"""Views of vectors: the vectors themselves, and augmented copies that are drawn at each step."""

from typing import Self

import numpy as np
import torch
from torch import Tensor

from camp.data.augmentations import augment_vectors
from camp.data.digests import rows_in
from camp.data.view_settings import Augmentation
from camp.data.views import Batch


class VectorViews:
    """Views of n rows of an array of vectors, which may be a memory map.

    Args:
        vectors: (N, D) of any type of number.
        rows: (n,) the rows that these views are of.
        digests: (n, 16) uint8, by which the vectors are identified.
        device: Where the views are needed.
        augmentation: Of the augmented views.
    """

    def __init__(
        self,
        vectors: np.ndarray,
        rows: np.ndarray,
        digests: np.ndarray,
        device: torch.device,
        augmentation: Augmentation,
    ) -> None:
        self._vectors, self._rows, self._digests = vectors, rows, digests
        self._device, self._augmentation = device, augmentation

    @property
    def augmentations(self) -> int | None:
        """None: every draw is a new view."""
        return None

    def __len__(self) -> int:
        return len(self._rows)

    def clean(self, rows: Tensor) -> Batch:
        """Return the vectors `rows` (B,)."""
        chosen = self._vectors[self._rows[rows.cpu().numpy()]]
        return {"vector": torch.from_numpy(np.asarray(chosen, dtype=np.float32)).to(self._device)}

    def draw(self, rows: Tensor, count: int, generator: torch.Generator) -> Tensor:
        """Draw ids (count, B), which are the seeds of new views."""
        return torch.randint(2**62, (count, len(rows)), generator=generator)

    def augmented(self, rows: Tensor, ids: Tensor) -> Batch:
        """Return the views `ids` (count, B) of vectors `rows` (B,), view-major."""
        repeated = self.clean(rows)["vector"].repeat(len(ids), 1)
        return {"vector": augment_vectors(repeated, ids.flatten().numpy(), self._augmentation)}

    def subset(self, rows: Tensor) -> Self:
        """Return views of the vectors `rows`."""
        return self._of(rows.cpu().numpy())

    def concat(self, other: Self) -> Self:
        """Return views of these vectors, followed by those of `other`, which must be of the same array."""
        rows = np.concatenate([self._rows, other._rows])
        return self._with(rows, np.concatenate([self._digests, other._digests]))

    def digests(self) -> Tensor:
        """Return the digests (n, 16) uint8 of the vectors."""
        return torch.from_numpy(self._digests)

    def from_digests(self, digests: Tensor) -> Self:
        """Return views of the vectors with these digests (m, 16)."""
        return self._of(rows_in(digests.numpy(), self._digests))

    def _of(self, rows: np.ndarray) -> Self:
        return self._with(self._rows[rows], self._digests[rows])

    def _with(self, rows: np.ndarray, digests: np.ndarray) -> Self:
        return type(self)(self._vectors, rows, digests, self._device, self._augmentation)

"""Views of images in a bank: stored trunk outputs (`BankViews`), or computed at each step (`FreshViews`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from camp.data.augmentations import augment_images, augment_vectors, normalise_, to_unit
from camp.data.bank.bank import Bank
from camp.data.bank.pipeline import run_trunk
from camp.data.images import DIGEST_BYTES
from camp.data.view_settings import Augmentation
from camp.data.views import Batch, Encoder

_TRUNK_BATCH = 64


class BankViews:
    """Views of the images with these digests in a bank, without names and labels."""

    def __init__(self, bank: Bank, digests: Sequence[bytes], device: torch.device) -> None:
        self._bank = bank
        self._device = device
        self._digests = list(digests)
        self._clean = bank.clean.rows(self._digests)
        store = bank.augmented
        stored = store is not None and all(digest in store for digest in self._digests)
        self._augmented = store.rows(self._digests) if store is not None and stored else None

    @property
    def augmentations(self) -> int | None:
        """Number of augmented views of each image."""
        return self._bank.spec.augmentations

    def __len__(self) -> int:
        return len(self._digests)

    def clean(self, rows: Tensor) -> Batch:
        """Return the clean views of images `rows` (B,)."""
        store, at = self._bank.clean, self._clean[rows.cpu()]
        return {c.name: store.gather(c, at).to(self._device) for c in store.columns}

    def draw(self, rows: Tensor, count: int, generator: torch.Generator) -> Tensor:
        """Draw ids (count, B) of `count` different views of each image."""
        order = torch.rand(len(rows), self._bank.spec.augmentations, generator=generator).argsort(dim=1)
        return order[:, :count].T.contiguous()

    def augmented(self, rows: Tensor, ids: Tensor) -> Batch:
        """Return the views `ids` (count, B) of images `rows` (B,), view-major."""
        store = self._bank.augmented
        if store is None or self._augmented is None:
            raise ValueError("these images have only a clean view")
        count = self._bank.spec.augmentations
        at = (self._augmented[rows.cpu()] * count + ids).flatten()
        return {c.name: store.gather(c, at, parts=count).to(self._device) for c in store.columns}

    def _with_digests(self, digests: list[bytes]) -> Self:
        """Return such views of other images of the bank."""
        return type(self)(self._bank, digests, self._device)

    def subset(self, rows: Tensor) -> Self:
        """Return views of the images `rows`."""
        return self._with_digests([self._digests[row] for row in rows.tolist()])

    def concat(self, other: Self) -> Self:
        """Return views of these images, followed by those of `other`."""
        return self._with_digests([*self._digests, *other._digests])

    def digests(self) -> Tensor:
        """Return the digests (n, 16) uint8 of the images."""
        return torch.frombuffer(bytearray(b"".join(self._digests)), dtype=torch.uint8).view(-1, DIGEST_BYTES)

    def from_digests(self, digests: Tensor) -> Self:
        """Return views of the images with these digests (m, 16)."""
        return self._with_digests([bytes(d.tolist()) for d in digests])


@dataclass(frozen=True)
class ViewRenderer:
    """Computes fields from stored images or vectors: augment, normalise, run the trunk."""

    encoder: Encoder
    augmentation: Augmentation
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @torch.no_grad()
    def render(self, stored: Batch, seeds: Tensor | None) -> Batch:
        """Compute the views of stored "pixels" (B, R, R, 3) uint8 or "vector" (B, D), view-major.

        There is one augmented view for each of the `seeds` (count, B), or without them a clean view.
        """
        if "vector" in stored:
            x = stored["vector"]
            if seeds is not None:
                x = augment_vectors(x.repeat(len(seeds), 1), seeds.flatten().numpy(), self.augmentation)
            return {"vector": x}
        if seeds is None:
            x = to_unit(stored["pixels"])
        else:
            views = augment_images(stored["pixels"], seeds.T.numpy(), self.augmentation)
            x = views.transpose(0, 1).flatten(0, 1)
        x = normalise_(x, self.mean, self.std)
        return run_trunk(self.encoder.trunk, x, _TRUNK_BATCH)


class FreshViews(BankViews):
    """New augmentations at each step, computed from a bank of plain images or vectors."""

    def __init__(
        self, bank: Bank, digests: Sequence[bytes], device: torch.device, renderer: ViewRenderer
    ) -> None:
        super().__init__(bank, digests, device)
        self._renderer = renderer

    def _with_digests(self, digests: list[bytes]) -> Self:
        return type(self)(self._bank, digests, self._device, self._renderer)

    @property
    def augmentations(self) -> int | None:
        """None: every draw is a new view."""
        return None

    def clean(self, rows: Tensor) -> Batch:
        """Return the clean views of images `rows` (B,)."""
        return self._renderer.render(super().clean(rows), None)

    def draw(self, rows: Tensor, count: int, generator: torch.Generator) -> Tensor:
        """Draw ids (count, B), which are the seeds of new views."""
        return torch.randint(2**62, (count, len(rows)), generator=generator)

    def augmented(self, rows: Tensor, ids: Tensor) -> Batch:
        """Return the views `ids` (count, B) of images `rows` (B,), view-major."""
        return self._renderer.render(super().clean(rows), ids)


def open_bank_views(
    bank: Bank, digests: Sequence[bytes], device: torch.device, renderer: ViewRenderer
) -> BankViews:
    """Return stored views of images by digest, or fresh ones if the bank holds plain images."""
    if bank.spec.precision == "plain":
        return FreshViews(bank, digests, device, renderer)
    return BankViews(bank, digests, device)

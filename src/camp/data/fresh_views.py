"""Fresh views: new augmentations of every picture in every step, through the trunk where there is one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from camp.data.augmentations import augment_pictures, augment_vectors, normalise_, to_unit
from camp.data.bank.bank import Bank, BankViews
from camp.data.view_settings import Augmentation
from camp.data.views import Batch, Encoder

Trunk = Callable[[Tensor], Batch]
_TRUNK_BATCH = 64


@dataclass(frozen=True)
class Lens:
    """How stored pictures or vectors become what a tip takes."""

    encoder: Encoder
    augmentation: Augmentation
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @torch.no_grad()
    def look(self, stored: Batch, seeds: Tensor | None) -> Batch:
        """The view of each stored picture with each of its seeds (count, B), view-major; the clean one without."""
        if "vector" in stored:
            x = stored["vector"]
            if seeds is not None:
                x = augment_vectors(x.repeat(len(seeds), 1), seeds.flatten().numpy(), self.augmentation)
            return {"vector": x}
        if seeds is None:
            x = to_unit(stored["pixels"])
        else:
            x = (
                augment_pictures(stored["pixels"], seeds.T.numpy(), self.augmentation)
                .transpose(0, 1)
                .flatten(0, 1)
            )
        x = normalise_(x, self.mean, self.std)
        return in_batches(self.encoder.trunk, x)


def in_batches(trunk: Trunk | None, x: Tensor, size: int = _TRUNK_BATCH) -> Batch:
    """The trunk's fields for normalised views x (n, 3, R, R), a few at a time; without one, the pixels."""
    if trunk is None:
        return {"pixels": x}
    parts = [trunk(part) for part in x.split(size)]
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def views_of(bank: Bank, digests: Sequence[bytes], device: torch.device, lens: Lens) -> BankViews:
    """Views of the pictures with these fingerprints: the bank's own, or made anew where it holds plain pictures."""
    if bank.spec.precision == "plain":
        return FreshViews(bank, list(digests), device, lens)
    return BankViews(bank, digests, device)


class FreshViews(BankViews):
    """Views made at the moment they are asked for, from a bank of plain pictures or vectors."""

    def __init__(self, bank: Bank, digests: list[bytes], device: torch.device, lens: Lens) -> None:
        super().__init__(bank, digests, device)
        self._lens = lens

    def _of(self, digests: list[bytes]) -> Self:
        return type(self)(self._bank, digests, self._device, self._lens)

    @property
    def augmentations(self) -> int | None:
        """None: every draw is a new view."""
        return None

    def clean(self, rows: Tensor) -> Batch:
        """Clean views of `rows` (B,)."""
        return self._lens.look(super().clean(rows), None)

    def draw(self, rows: Tensor, count: int, generator: torch.Generator) -> Tensor:
        """Ids (count, B): seeds of new views."""
        return torch.randint(2**62, (count, len(rows)), generator=generator)

    def augmented(self, rows: Tensor, ids: Tensor) -> Batch:
        """Views `ids` (count, B) of `rows` (B,), view-major."""
        return self._lens.look(super().clean(rows), ids)

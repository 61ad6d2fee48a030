"""The view bank: what the frozen trunk makes of every view, computed once and read ever after.

A bank belongs to one trunk, one resolution and one way of augmenting; its pictures are found by the
fingerprint of their bytes, so one bank serves every split, seed, method and setting of the tip.
"""

import dataclasses
import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import torch
from torch import Tensor

from camp.core.errors import CampError
from camp.core.files import read_json, write_json
from camp.data.bank.store import DIGEST_BYTES, Column, Store
from camp.data.view_settings import Augmentation, ViewSettings
from camp.data.views import Batch, Encoder, Field

REFERENCE_MEAN, REFERENCE_STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
"""CIFAR-10's statistics, which the reference uses for every data set."""


def digest_of(data: bytes) -> bytes:
    """Fingerprint of a picture's bytes."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


@dataclass(frozen=True)
class BankSpec:
    """Everything that decides what a bank holds."""

    trunk: str
    """Fingerprint of the trunk, or `none` for a bank of plain pictures or vectors."""
    fields: tuple[Field, ...]
    resolution: int
    augmentations: int
    precision: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    augmentation: Augmentation

    @classmethod
    def of(cls, encoder: Encoder, settings: ViewSettings, augmentation: Augmentation) -> Self:
        """The bank that `backbone` needs under these settings."""
        reference = settings.normalisation == "reference"
        mean, std = (REFERENCE_MEAN, REFERENCE_STD) if reference else (encoder.mean, encoder.std)
        if settings.views == "bank" and encoder.trunk is not None:
            return cls(
                trunk=encoder.fingerprint,
                fields=encoder.fields,
                resolution=encoder.resolution,
                augmentations=settings.augmentations,
                precision=settings.precision,
                mean=mean,
                std=std,
                augmentation=augmentation,
            )
        # Without a trunk, or for fresh views, the bank holds the resized picture (or the vector) itself:
        # decoding is still done once, and nothing else decides what is in it.
        vector = encoder.fields[0].name == "vector" and encoder.trunk is None
        plain = encoder.fields[0] if vector else Field("pixels", (encoder.resolution,) * 2 + (3,), "exact")
        resolution = 0 if vector else encoder.resolution
        return cls("none", (plain,), resolution, 0, "plain", (), (), Augmentation())

    def fingerprint(self) -> str:
        """Name of the bank's folder."""
        text = json.dumps(dataclasses.asdict(self), sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=10).hexdigest()

    def columns(self) -> tuple[Column, ...]:
        """How the fields of one view are kept."""
        if self.precision == "plain":
            field = self.fields[0]
            return (Column(field.name, field.shape, "uint8" if field.name == "pixels" else "float32"),)
        kept: list[Column] = []
        for field in self.fields:
            if field.kind == "exact":
                kept.append(Column(field.name, field.shape, "float32"))
            elif self.precision == "half":
                kept.append(Column(field.name, field.shape, "float16"))
            else:
                kept.append(Column(field.name, field.shape, "int8"))
                kept.append(Column(f"{field.name}_scale", (*field.shape[:-1], 1), "float32"))
        return tuple(kept)

    def encode(self, batch: Batch) -> dict[str, np.ndarray]:
        """A trunk's output as it is written."""
        values: dict[str, np.ndarray] = {}
        for field in self.fields:
            x = batch[field.name]
            if field.kind == "exact":
                values[field.name] = x.float().cpu().numpy()
            elif self.precision == "half":
                values[field.name] = x.half().cpu().numpy()
            else:
                scale = x.abs().amax(dim=-1, keepdim=True).clamp_min(1e-12) / 127
                values[field.name] = (x / scale).round().to(torch.int8).cpu().numpy()
                values[f"{field.name}_scale"] = scale.float().cpu().numpy()
        return values


class Bank:
    """The clean view and the augmented views of pictures, on disk in `folder`."""

    def __init__(self, folder: Path, spec: BankSpec) -> None:
        self.folder = folder
        self.spec = spec
        described = folder / "bank.json"
        if described.exists() and read_json(described)["fingerprint"] != spec.fingerprint():
            raise CampError(
                f"The folder {folder} holds another view bank; remove it or choose another with --bank."
            )
        self.clean = Store(folder / "clean", spec.columns())
        many = tuple(
            Column(c.name, (spec.augmentations, *c.shape), c.dtype)
            for c in spec.columns()
            if spec.augmentations
        )
        self.augmented = Store(folder / "augmented", many) if many else None

    @classmethod
    def at(cls, settings: ViewSettings, spec: BankSpec) -> Self:
        """The bank for `spec` below the folder of banks."""
        return cls(banks_folder(settings) / spec.fingerprint(), spec)

    def describe(self) -> None:
        """Write what the bank is beside it, for people and for the check on opening."""
        about = {"fingerprint": self.spec.fingerprint(), **dataclasses.asdict(self.spec)}
        write_json(self.folder / "bank.json", about)

    def missing(self, digests: Sequence[bytes], augmented: bool) -> list[int]:
        """Positions in `digests` of pictures the bank does not hold (with their augmented views if asked)."""
        store = self.augmented if augmented and self.augmented is not None else None
        return [
            position
            for position, digest in enumerate(digests)
            if digest not in self.clean or (store is not None and digest not in store)
        ]

    def stores(self) -> tuple[Store, ...]:
        """What it is made of."""
        return (self.clean,) if self.augmented is None else (self.clean, self.augmented)

    def sealed(self) -> bool:
        """Whether all it holds is known to have reached the disk."""
        return all(store.sealed() == len(store) for store in self.stores())

    def bytes_per_view(self) -> int:
        """Bytes one view takes."""
        return sum(column.nbytes for column in self.spec.columns())

    def nbytes(self) -> int:
        """Bytes the whole bank takes."""
        views = len(self.clean) + len(self.augmented or ()) * self.spec.augmentations
        return views * self.bytes_per_view()


def banks_folder(settings: ViewSettings) -> Path:
    """Where banks are kept: the setting, or the environment's CAMP_BANKS, or the user's cache."""
    if settings.bank is not None:
        return Path(settings.bank).expanduser()
    if "CAMP_BANKS" in os.environ:
        return Path(os.environ["CAMP_BANKS"])
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "camp" / "banks"


class BankViews:
    """Views of pictures by their rows in a bank; it knows neither names nor labels."""

    def __init__(self, bank: Bank, digests: Sequence[bytes], device: torch.device) -> None:
        self._bank = bank
        self._device = device
        self._digests = list(digests)
        self._clean = bank.clean.rows(self._digests)
        store = bank.augmented
        held = store is not None and all(digest in store for digest in self._digests)
        self._augmented = store.rows(self._digests) if store is not None and held else None

    @property
    def augmentations(self) -> int | None:
        """Augmented views of each picture."""
        return self._bank.spec.augmentations

    def __len__(self) -> int:
        return len(self._digests)

    def clean(self, rows: Tensor) -> Batch:
        """Clean views of `rows` (B,)."""
        store, at = self._bank.clean, self._clean[rows.cpu()]
        return {c.name: store.gather(c, at).to(self._device) for c in store.columns}

    def draw(self, rows: Tensor, count: int, generator: torch.Generator) -> Tensor:
        """Ids (count, B) of different views of each picture."""
        order = torch.rand(len(rows), self._bank.spec.augmentations, generator=generator).argsort(dim=1)
        return order[:, :count].T.contiguous()

    def augmented(self, rows: Tensor, ids: Tensor) -> Batch:
        """Views `ids` (count, B) of `rows` (B,), view-major."""
        store = self._bank.augmented
        if store is None or self._augmented is None:
            raise ValueError("these pictures have only a clean view (they are test pictures)")
        count = self._bank.spec.augmentations
        at = (self._augmented[rows.cpu()] * count + ids).flatten()
        return {c.name: store.gather(c, at, parts=count).to(self._device) for c in store.columns}

    def _of(self, digests: list[bytes]) -> Self:
        """The same kind of views of other pictures of the bank."""
        return type(self)(self._bank, digests, self._device)

    def subset(self, rows: Tensor) -> Self:
        """Some of the pictures."""
        return self._of([self._digests[row] for row in rows.tolist()])

    def joined(self, other: Self) -> Self:
        """These pictures and then the other ones."""
        return self._of([*self._digests, *other._digests])

    def digests(self) -> Tensor:
        """(n, 16) uint8."""
        return torch.frombuffer(bytearray(b"".join(self._digests)), dtype=torch.uint8).view(-1, DIGEST_BYTES)

    def restored(self, digests: Tensor) -> Self:
        """Views of the pictures with these fingerprints."""
        return self._of([bytes(d.tolist()) for d in digests])

"""View bank: the output of the frozen trunk for every view of every image, computed once and stored on disk.

A bank belongs to one trunk, one resolution and one augmentation; its images are addressed by the
digest of their bytes, so one bank serves every split, seed, method and setting of the tip.
"""

import dataclasses
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from camp.core.errors import CampError
from camp.core.files import expand_user, read_json, write_json
from camp.data.bank.store import Column, Store
from camp.data.view_settings import Augmentation, ViewSettings
from camp.data.views import Batch, Encoder, Field

REFERENCE_MEAN, REFERENCE_STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
"""Pixel statistics of CIFAR-10, which the authors' code uses for every data set."""


@dataclass(frozen=True)
class BankSpec:
    """Everything that determines the content of a bank."""

    trunk: str
    """Fingerprint of the trunk's weights, or "none" for a bank of plain images or vectors."""
    fields: tuple[Field, ...]
    resolution: int
    augmentations: int
    precision: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    augmentation: Augmentation

    @classmethod
    def for_encoder(cls, encoder: Encoder, settings: ViewSettings, augmentation: Augmentation) -> Self:
        """Describe the bank that `encoder` needs with these settings."""
        reference = settings.normalisation == "reference"
        mean, std = (REFERENCE_MEAN, REFERENCE_STD) if reference else (encoder.mean, encoder.std)
        if settings.views == "bank" and encoder.trunk is not None:
            trunk, views, precision = encoder.fingerprint, settings.augmentations, settings.precision
            return cls(trunk, encoder.fields, encoder.resolution, views, precision, mean, std, augmentation)
        # Without a trunk, or for fresh views, the bank holds the resized image (or the vector) itself, which
        # depends on nothing but the resolution.
        vector = encoder.fields[0].name == "vector" and encoder.trunk is None
        plain = encoder.fields[0] if vector else Field("pixels", (encoder.resolution,) * 2 + (3,), "exact")
        resolution = 0 if vector else encoder.resolution
        return cls("none", (plain,), resolution, 0, "plain", (), (), Augmentation())

    def fingerprint(self) -> str:
        """Return the hash that names the bank's folder; an option that is None is left out, see `result_values`."""
        values = dataclasses.asdict(self, dict_factory=_without_none)
        text = json.dumps(values, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=10).hexdigest()

    def columns(self) -> tuple[Column, ...]:
        """Return the columns that store the fields of one view."""
        if self.precision == "plain":
            field = self.fields[0]
            return (Column(field.name, field.shape, "uint8" if field.name == "pixels" else "float32"),)
        columns: list[Column] = []
        for field in self.fields:
            if field.kind == "exact":
                columns.append(Column(field.name, field.shape, "float32"))
            elif self.precision == "half":
                columns.append(Column(field.name, field.shape, "float16"))
            else:
                columns.append(Column(field.name, field.shape, "int8"))
                columns.append(Column(f"{field.name}_scale", (*field.shape[:-1], 1), "float32"))
        return tuple(columns)

    def encode(self, batch: Batch) -> dict[str, np.ndarray]:
        """Convert the output of the trunk to the stored precision."""
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


def _without_none(items: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in items if value is not None}


class Bank:
    """The clean view and the augmented views of images, stored in `folder`."""

    def __init__(self, folder: Path, spec: BankSpec) -> None:
        self.folder = folder
        self.spec = spec
        description = folder / "bank.json"
        about = read_json(description) if description.exists() else {"fingerprint": spec.fingerprint()}
        if not isinstance(about, dict) or about.get("fingerprint") != spec.fingerprint():
            raise CampError(
                f"The folder {folder} holds another view bank; remove it or choose another with --bank."
            )
        self.clean = Store(folder / "clean", spec.columns())
        augmented = tuple(
            Column(c.name, (spec.augmentations, *c.shape), c.dtype)
            for c in spec.columns()
            if spec.augmentations
        )
        self.augmented = Store(folder / "augmented", augmented) if augmented else None

    @classmethod
    def open(cls, settings: ViewSettings, spec: BankSpec) -> Self:
        """Open the bank for `spec` in the folder of all banks."""
        folder = banks_folder(settings) / spec.fingerprint()
        try:
            return cls(folder, spec)
        except OSError as error:
            raise CampError(
                f"The view bank {folder} cannot be read ({error.strerror or error}); choose another with --bank."
            ) from error

    def check_place(self) -> None:
        """Refuse a bank that does not exist and cannot be made."""
        if self.folder.exists():
            return
        above = next(parent for parent in self.folder.absolute().parents if parent.exists())
        if not above.is_dir() or not os.access(above, os.W_OK):
            raise CampError(
                f"The view bank {self.folder} cannot be made, since {above} cannot be written to; choose another folder "
                "with --bank."
            )

    def describe(self) -> None:
        """Write `bank.json`, which describes the bank and is checked when it is opened."""
        description = {"fingerprint": self.spec.fingerprint(), **dataclasses.asdict(self.spec)}
        write_json(self.folder / "bank.json", description)

    def holds(self, digest: bytes, augmented: bool) -> bool:
        """Return whether the clean view (and the `augmented` views) of an image are stored."""
        store = self.augmented if augmented and self.augmented is not None else self.clean
        return digest in self.clean and digest in store

    def stores(self) -> tuple[Store, ...]:
        """Return the store of clean views and, if there is one, that of augmented views."""
        return (self.clean,) if self.augmented is None else (self.clean, self.augmented)

    def sealed(self) -> bool:
        """Return whether all records are known to be on disk."""
        return all(store.sealed() == len(store) for store in self.stores())

    def bytes_per_view(self) -> int:
        """Return the size of one view in bytes."""
        return sum(column.nbytes for column in self.spec.columns())

    def nbytes(self) -> int:
        """Return the size of the whole bank in bytes."""
        views = len(self.clean) + len(self.augmented or ()) * self.spec.augmentations
        return views * self.bytes_per_view()


def banks_folder(settings: ViewSettings) -> Path:
    """Return the folder of all banks: the setting, $CAMP_BANKS, or camp/banks in the user's cache."""
    if settings.bank is not None:
        return expand_user(settings.bank)
    if "CAMP_BANKS" in os.environ:
        return expand_user(os.environ["CAMP_BANKS"])
    return Path(os.environ.get("XDG_CACHE_HOME", expand_user("~/.cache"))) / "camp" / "banks"

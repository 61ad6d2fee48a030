"""Unknown images that predictions keep: features, digests and file names, in the folder `unknown` of the workspace.

Every file in it is complete from the moment it has its name and never changes, and its name is its own, so that several
processes can keep images at once without a lock. An image is identified by the digest of its bytes. Features belong to
the tip that computed them: those of another tip cannot be compared with the categories and are left out.
"""

import contextlib
import datetime
import hashlib
import json
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from camp.core.errors import CampError
from camp.core.files import atomic_write, checksum, sync_folder
from camp.core.finding import Finding
from camp.data.images import image_digest

if TYPE_CHECKING:
    from torch import Tensor

MAX_KEPT = 100_000
"""Number of images that a workspace keeps."""
BLOCK = 256
"""Images in one file where many are predicted at once."""


@dataclass(frozen=True)
class KeptImages:
    """n unknown images, each once, in the order in which they were kept."""

    files: tuple[str, ...]
    """Where each image was when it was predicted."""
    digests: tuple[str, ...]
    """Hexadecimal hashes of the file contents."""
    features: np.ndarray
    """(n, D)"""
    outdated: int = 0
    """Number of images whose features belong to an earlier tip."""

    def __len__(self) -> int:
        return len(self.files)

    @classmethod
    def empty(cls) -> "KeptImages":
        """No image."""
        return cls((), (), np.empty((0, 0), np.float32))

    def rows(self, digests: list[str]) -> list[int]:
        """Return the rows of the images `digests`, or raise a `CampError` if one is missing."""
        row_of = {digest: row for row, digest in enumerate(self.digests)}
        missing = [digest for digest in digests if digest not in row_of]
        if missing:
            raise CampError(
                f"{len(missing)} of the {len(digests)} unknown pictures are not kept any more, or were predicted before "
                "the last training; predict them again with --keep-unknown."
            )
        return [row_of[digest] for digest in digests]


def tip_fingerprint(tip: "Mapping[str, Tensor]") -> str:
    """Return a hash of the weights of a tip."""
    found = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(tip.items()):
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        found.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()


def read_kept(folder: Path, tip: str) -> KeptImages:
    """Read the images that are kept in `folder` with features of the tip with the fingerprint `tip`."""
    files, features, outdated = dict[str, str](), list[np.ndarray](), set[str]()
    for block in _blocks(folder):
        if block.tip != tip:
            outdated.update(block.digests)
            continue
        new = [row for row, digest in enumerate(block.digests) if digest not in files]
        files.update((block.digests[row], block.files[row]) for row in new)
        features.append(block.features[new])
    if not files:
        return KeptImages((), (), np.empty((0, 0), np.float32), len(outdated))
    return KeptImages(
        tuple(files.values()), tuple(files), np.concatenate(features), len(outdated - files.keys())
    )


def remove_learned(folder: Path, learned: set[str]) -> None:
    """Remove the files in `folder` all of whose images have been learned. The lock of the workspace must be held."""
    for block in _blocks(folder):
        if learned.issuperset(block.digests):
            with contextlib.suppress(OSError):
                block.path.unlink()


class UnknownKeeper:
    """Keeps unknown images in the folder of a workspace; safe to use from several threads.

    Args:
        folder: The folder `unknown`.
        save_thumbnail: Writes the thumbnail of an image with a digest, unless the workspace has none.
        block: Number of images that are written together.
    """

    def __init__(
        self, folder: Path, save_thumbnail: Callable[[Image.Image, bytes], None], block: int = BLOCK
    ) -> None:
        self.folder, self.block = folder, block
        self.kept = 0
        """Number of images that were added."""
        self.refused = 0
        """Number of images for which there was no room."""
        self._save_thumbnail = save_thumbnail
        self._stored = {(one.tip, digest) for one in _blocks(folder) for digest in one.digests}
        self._waiting: list[tuple[str, str, np.ndarray]] = []
        self._tip = ""
        self._lock = threading.Lock()

    def keep(self, tip: str, file: str, data: bytes, image: Image.Image | None, features: np.ndarray) -> None:
        """Keep an image, unless it is kept already.

        Args:
            tip: Fingerprint of the tip that computed the features.
            file: Where the image is.
            data: Its bytes.
            image: Its pixels, for a thumbnail; None for vectors.
            features: (D,)
        """
        digest = image_digest(data)
        with self._lock:
            if (tip, digest.hex()) in self._stored:
                return
            if len(self._stored) >= MAX_KEPT:
                self.refused += 1
                return
            if tip != self._tip:
                self._write()
                self._tip = tip
            if image is not None:
                self._save_thumbnail(image, digest)
            self._waiting.append((file, digest.hex(), features))
            self._stored.add((tip, digest.hex()))
            if len(self._waiting) >= self.block:
                self._write()

    def flush(self) -> None:
        """Write what has not been written yet."""
        with self._lock:
            self._write()

    def summary(self) -> str:
        """Say what was kept."""
        said = f"{self.kept} unknown pictures kept"
        if self.refused:
            said += f", {self.refused} not: {MAX_KEPT:,} are kept, which is the limit; camp review shows them"
        return f"{said}."

    def _write(self) -> None:
        if not self._waiting:
            return
        files, digests, features = zip(*self._waiting)
        now = datetime.datetime.now(datetime.UTC)
        about = {
            "files": json.dumps(files),
            "digests": json.dumps(digests),
            "tip": self._tip,
            "time": now.isoformat(timespec="seconds"),
        }
        name = f"{now:%Y%m%dT%H%M%S%f}-{secrets.token_hex(4)}.safetensors"
        values = np.stack(features)
        about["checksum"] = _block_checksum(about, values)
        content = save({"features": values}, metadata=about)
        with atomic_write(self.folder / name) as file:
            file.write(content)
        self.kept += len(files)
        self._waiting = []


@dataclass(frozen=True)
class _Block:
    """One file of kept images."""

    path: Path
    about: dict[str, str]
    """The metadata of the file."""
    tip: str
    files: list[str]
    digests: list[str]

    @property
    def features(self) -> np.ndarray:
        """(n, D), which are compared with their checksum; files of version 0.1.0 have none."""
        with _damage(self.path), safe_open(self.path, "np") as file:
            features: np.ndarray = file.get_tensor("features")
            if self.about.get("checksum") not in (None, _block_checksum(self.about, features)):
                raise ValueError("it was changed since it was written")
            if len(features) != len(self.files) or len(features) != len(self.digests):
                raise ValueError(f"it holds {len(features)} features of {len(self.files)} pictures")
            return features


def _block_checksum(about: Mapping[str, str], features: np.ndarray) -> str:
    rest = "\n".join(about[name] for name in ("files", "digests", "tip"))
    return checksum(rest.encode("utf-8", "surrogateescape") + np.ascontiguousarray(features).tobytes())


def check_kept(folder: Path, repair: bool) -> Iterator[Finding]:
    """Read all files of kept images; with `repair` set damaged ones aside, so that the others can be used."""
    for path in sorted(folder.glob("*.safetensors")):
        try:
            assert _read_block(path).features is not None
        except CampError as error:
            if repair:
                path.rename(path.with_suffix(".damaged"))
                sync_folder(folder)
            said = str(error).partition("; restore")[0]
            remedy = "it is set aside" if repair else "--repair sets it aside"
            remedy = f"{remedy}; predict its pictures again with --keep-unknown"
            yield Finding(said, remedy, repairable=True, repaired=repair)


def _blocks(folder: Path) -> Iterator[_Block]:
    """Read what the files in `folder` say about their images, the oldest first."""
    for path in sorted(folder.glob("*.safetensors")):
        try:
            block = _read_block(path)
        except CampError:
            if path.exists():
                raise
            continue  # a process that learned its images has removed it
        yield block


def _read_block(path: Path) -> _Block:
    """Read the metadata of a file."""
    with _damage(path):
        with safe_open(path, "np") as file:
            about = dict(file.metadata())
        return _Block(path, about, about["tip"], json.loads(about["files"]), json.loads(about["digests"]))


@contextlib.contextmanager
def _damage(path: Path) -> Iterator[None]:
    """Turn what a damaged file raises into a sentence."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise CampError(f"{path} is damaged ({error}); restore it from a copy, or remove it.") from error

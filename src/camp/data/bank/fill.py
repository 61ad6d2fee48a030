"""Fill a view bank: read and decode each image once, compute its views, run the trunk and store the output.

Images are stored in the order of their digests, which reveals nothing about them.
"""

import contextlib
import functools
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from filelock import FileLock, Timeout
from torch import Tensor

from camp.core.devices import to_device
from camp.core.errors import CampError
from camp.core.files import make_folder
from camp.core.parallel import threaded_map
from camp.core.progress import Progress
from camp.core.seeds import seed_of
from camp.data.augmentations import augment_images, normalise_, to_unit
from camp.data.bank.bank import Bank, BankSpec
from camp.data.bank.pipeline import TRUNK_BATCH, decode_resized, read_image, run_trunk
from camp.data.datasets.base import Reader
from camp.data.images import UnreadableImageError, image_digest
from camp.data.views import Batch, Encoder

_VIEWS_PER_BLOCK = 3 * TRUNK_BATCH
"""Views of a block of images with augmented views; blocks of clean views are smaller, so that threads end together."""

Block = tuple[list[str], dict[str, str], Batch]
"""Keys of images, why others of the block could not be read, and the fields of all views, image-major."""


@dataclass
class FillResult:
    """Outcome of filling a bank with a set of images."""

    digests: dict[str, bytes]
    """Digest of each readable image, by key."""
    bad: dict[str, str]
    """Why each other image could not be read, by key."""
    new_views: int
    """Number of views that were computed."""


def fill(
    bank: Bank,
    encoder: Encoder,
    reader: Reader,
    keys: Sequence[str],
    with_augmented: set[str],
    progress: Progress,
    make_blocks: Callable[[dict[str, bytes], list[str]], Iterable[Block]] | None = None,
    compute_digests: Callable[[Sequence[str]], Iterable[bytes | str]] | None = None,
) -> FillResult:
    """Compute and store the views of the images `keys` that `bank` does not hold yet.

    Images in `with_augmented` (training images) need augmented views, the others a clean one.
    `make_blocks` computes blocks elsewhere, given the digests and the missing keys; `compute_digests` computes for each
    key what `digest_or_fault` returns.
    """
    if compute_digests is None:
        outcomes = threaded_map(functools.partial(digest_or_fault, reader), keys)
    else:
        outcomes = iter(compute_digests(keys))
    digests, bad = _collect_digests(keys, outcomes, progress)
    readable = [key for key in keys if key in digests]
    if not _missing_keys(bank, digests, readable, with_augmented) and bank.sealed():
        return FillResult(digests, bad, 0)
    new_views = 0
    with _lock(bank, progress):
        with progress.track("Checking the bank", 1):
            for store in bank.stores():
                store.repair()
        bank.describe()
        missing = _missing_keys(bank, digests, readable, with_augmented)
        num_views = {key: 1 + bank.spec.augmentations * (key in with_augmented) for key in missing}
        _check_disk_space(bank, sum(num_views.values()))
        title = f"Trunk {encoder.name}" if encoder.trunk is not None else "Images"
        with progress.track(title, sum(num_views.values())) as bar:
            if make_blocks is not None:
                blocks = make_blocks(digests, missing)
            else:
                blocks = encode_blocks(bank.spec, encoder, reader, digests, missing, with_augmented)
            for keys_done, faults, batch in blocks:
                if faults:  # files with the same bytes (such as empty ones) are decoded once and are all bad
                    reasons = {digests[key]: fault for key, fault in faults.items()}
                    bad.update({key: reasons[digest] for key, digest in digests.items() if digest in reasons})
                bar.advance(sum(num_views[key] for key in faults))
                if keys_done:
                    written = _append_block(bank, [digests[key] for key in keys_done], batch)
                    new_views += written
                    bar.advance(written)
                    bar.say(f"{bank.nbytes() / 1e9:.1f} GB")
        for store in bank.stores():
            store.seal()
    return FillResult({key: d for key, d in digests.items() if key not in bad}, bad, new_views)


def _missing_keys(
    bank: Bank, digests: Mapping[str, bytes], keys: Sequence[str], with_augmented: Collection[str]
) -> list[str]:
    """Return keys of images that are missing in the bank, sorted by digest, one key per digest."""
    rows = sorted((digests[key], key not in with_augmented, key) for key in keys)
    missing: dict[bytes, str] = {}
    for digest, clean_only, key in rows:
        if digest not in missing and not bank.holds(digest, augmented=not clean_only):
            missing[digest] = key
    return list(missing.values())


def digest_or_fault(reader: Reader, key: str) -> bytes | str:
    """Return the digest of a file, or why it cannot be read."""
    try:
        return image_digest(read_image(reader, key))
    except UnreadableImageError as fault:
        return str(fault)


def _collect_digests(
    keys: Sequence[str], outcomes: Iterable[bytes | str], progress: Progress
) -> tuple[dict[str, bytes], dict[str, str]]:
    """Return the digests of the files that can be read, and why the others cannot."""
    digests: dict[str, bytes] = {}
    bad: dict[str, str] = {}
    with progress.track("Fingerprints", len(keys)) as bar:
        for key, outcome in zip(keys, outcomes):
            if isinstance(outcome, bytes):
                digests[key] = outcome
            else:
                bad[key] = outcome
            bar.advance()
    return digests, bad


def images_per_block(spec: BankSpec, augmented: bool) -> int:
    """Return the number of images that are encoded together, with or without augmented views."""
    return max(1, _VIEWS_PER_BLOCK // (1 + spec.augmentations)) if augmented else TRUNK_BATCH


def encode_blocks(
    spec: BankSpec,
    encoder: Encoder,
    reader: Reader,
    digests: Mapping[str, bytes],
    keys: Iterable[str],
    with_augmented: Collection[str],
) -> Iterator[Block]:
    """Yield blocks of images with the trunk's output for all views of each image.

    Views are image-major: the clean view of an image, then its augmented views. All images of a
    block have augmented views, or none has. On a CPU each thread takes a block from the files to
    the trunk's output. On another device the threads prepare pixels in advance for the trunk, which
    runs in the calling thread.
    """
    device = encoder.device
    on_cpu = device.type == "cpu"
    trunk = encoder.single_threaded_trunk() if on_cpu else encoder.trunk

    @torch.no_grad()
    def encode(keys: list[str]) -> tuple[list[str], dict[str, str], Tensor | Batch]:
        readable, faults, views = _load_block(spec, reader, digests, keys, with_augmented)
        if on_cpu and isinstance(views, Tensor):
            views = run_trunk(trunk, views, TRUNK_BATCH)
        return readable, faults, views

    keys = list(keys)
    train = [key for key in keys if key in with_augmented]
    rest = [key for key in keys if key not in with_augmented]
    blocks = []
    for images, augmented in ((train, True), (rest, False)):
        size = images_per_block(spec, augmented)
        blocks += [images[i : i + size] for i in range(0, len(images), size)]
    for readable, faults, outcome in threaded_map(encode, blocks, lookahead=4):
        if isinstance(outcome, Tensor):
            yield readable, faults, run_trunk(trunk, to_device(outcome, device), TRUNK_BATCH)
        else:
            yield readable, faults, outcome


def _load_block(
    spec: BankSpec,
    reader: Reader,
    digests: Mapping[str, bytes],
    keys: list[str],
    with_augmented: Collection[str],
) -> tuple[list[str], dict[str, str], Tensor | Batch]:
    """Return readable keys, faults of the others, and normalised views (n, 3, R, R) or plain fields."""
    images: dict[str, np.ndarray] = {}
    faults: dict[str, str] = {}
    for key in keys:
        try:
            images[key] = decode_resized(reader.decode, read_image(reader, key), spec.resolution)
        except UnreadableImageError as fault:
            faults[key] = str(fault)
    readable = list(images)
    if not readable:
        return readable, faults, {}
    pixels = torch.from_numpy(np.stack(list(images.values())))
    if spec.precision == "plain":
        return readable, faults, {spec.fields[0].name: pixels}
    views = to_unit(pixels)[:, None]
    if readable[0] in with_augmented:
        seeds = [
            [seed_of(v, "view", digests[key].hex()) for v in range(spec.augmentations)] for key in readable
        ]
        views = torch.cat([views, augment_images(pixels, np.array(seeds), spec.augmentation)], dim=1)
    return readable, faults, normalise_(views.flatten(0, 1), spec.mean, spec.std)


def _append_block(bank: Bank, digests: list[bytes], batch: Batch) -> int:
    """Store a block and return its number of views; clean views last, as they mark complete images."""
    n = len(digests)
    if bank.spec.precision == "plain":
        encoded = {name: x.numpy() for name, x in batch.items()}
    else:
        encoded = bank.spec.encode(batch)
    views = {name: x.reshape(n, -1, *x.shape[1:]) for name, x in encoded.items()}
    count: int = next(iter(views.values())).shape[1]
    if count > 1 and bank.augmented is not None:
        new = [i for i, digest in enumerate(digests) if digest not in bank.augmented]
        bank.augmented.append([digests[i] for i in new], {name: x[new, 1:] for name, x in views.items()})
    new = [i for i, digest in enumerate(digests) if digest not in bank.clean]
    bank.clean.append([digests[i] for i in new], {name: x[new, 0] for name, x in views.items()})
    return n * count


@contextlib.contextmanager
def _lock(bank: Bank, progress: Progress) -> Iterator[None]:
    """Hold the bank's lock; show progress while waiting for another process."""
    lock = FileLock(bank.folder / ".lock")
    try:
        make_folder(bank.folder)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            with progress.track(f"Waiting for another process that fills {bank.folder}", 1):
                lock.acquire()
        try:
            yield
        finally:
            lock.release()
    except OSError as error:
        raise CampError(
            f"The view bank {bank.folder} cannot be written to ({error.strerror or error}); choose another folder "
            "with --bank."
        ) from error


def _check_disk_space(bank: Bank, views: int) -> None:
    """Raise an error if the disk cannot hold so many more views."""
    needed, free = views * bank.bytes_per_view(), shutil.disk_usage(bank.folder).free
    if needed > free:
        raise CampError(
            f"The view bank needs {needed / 1e9:.1f} GB more in {bank.folder}, where {free / 1e9:.1f} GB are free: "
            "use fewer --augmentations, --precision int8, or another folder with --bank."
        )

"""Filling a view bank: decode each picture once, make its views, run the trunk, write; all at the same time.

Each core takes blocks of pictures all the way (see `blocks`). Pictures go in by fingerprint, so their order in the
bank says nothing about them.
"""

import contextlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from filelock import FileLock, Timeout
from torch import Tensor

from camp.core.errors import CampError
from camp.core.progress import Progress
from camp.core.seeds import seed_of
from camp.data.augmentations import augment_pictures, normalise_, to_unit
from camp.data.bank.bank import Bank, BankSpec, digest_of
from camp.data.bank.pipeline import TRUNK_BATCH, ahead, decoded, read
from camp.data.datasets.base import Reader
from camp.data.fresh_views import in_batches
from camp.data.images import BadImage
from camp.data.views import Batch, Encoder

_VIEWS_PER_BLOCK = 72


@dataclass
class Filled:
    """What became of a set of pictures."""

    digests: dict[str, bytes]
    """Fingerprint of each readable picture, by key."""
    bad: dict[str, str]
    """Why each other picture could not be read, by key."""
    new_views: int
    """Views that went through the trunk now."""


Block = tuple[list[str], dict[str, str], Batch]
"""Pictures by their keys, why others could not be read, and what the trunk makes of all views, picture-major."""


def fill(
    bank: Bank,
    encoder: Encoder,
    reader: Reader,
    keys: Sequence[str],
    with_augmented: set[str],
    progress: Progress,
    made_by: Callable[[dict[str, bytes], list[str]], Iterable[Block]] | None = None,
) -> Filled:
    """Make sure that `bank` holds the pictures `keys`, with augmented views for those in `with_augmented`.

    `made_by` makes the blocks elsewhere, out of fingerprints and the keys that are missing.
    """
    digests, bad = _fingerprints(reader, keys, progress)
    readable = [key for key in keys if key in digests]
    wanted = _missing(bank, digests, readable, with_augmented)
    if not wanted and bank.sealed():
        return Filled(digests, bad, 0)
    with _only_writer(bank, progress):
        with progress.track("Checking the bank", 1):
            for store in bank.stores():
                store.repair()
        bank.describe()
        wanted = _missing(bank, digests, readable, with_augmented)
        per_picture = {key: 1 + bank.spec.augmentations * (key in with_augmented) for key in wanted}
        _check_space(bank, sum(per_picture.values()))
        made = 0
        title = f"Trunk {encoder.name}" if encoder.trunk is not None else "Pictures"
        with progress.track(title, sum(per_picture.values())) as bar:
            blocks = (
                made_by(digests, list(wanted))
                if made_by is not None
                else blocks_of(bank.spec, encoder, reader, digests, wanted, with_augmented)
            )
            for keys_done, faults, batch in blocks:
                if faults:  # files of the same bytes (empty ones, say) are decoded once and are all bad
                    why = {digests[key]: fault for key, fault in faults.items()}
                    bad.update({key: why[digest] for key, digest in digests.items() if digest in why})
                for key in faults:
                    bar.advance(per_picture[key])
                if keys_done:
                    views = _write(bank, [digests[key] for key in keys_done], batch)
                    made += views
                    bar.advance(views)
                    bar.say(f"{bank.nbytes() / 1e9:.1f} GB")
        for store in bank.stores():
            store.seal()
    return Filled({key: d for key, d in digests.items() if key not in bad}, bad, made)


def _missing(
    bank: Bank, digests: dict[str, bytes], keys: Sequence[str], with_augmented: set[str]
) -> dict[str, None]:
    """Keys still to be made, sorted by fingerprint, each fingerprint once."""
    rows = sorted((digests[key], key not in with_augmented, key) for key in keys)
    once: dict[bytes, str] = {}
    for digest, clean_only, key in rows:
        if digest not in once and bank.missing([digest], augmented=not clean_only):
            once[digest] = key
    return dict.fromkeys(once.values())


def _fingerprints(
    reader: Reader, keys: Sequence[str], progress: Progress
) -> tuple[dict[str, bytes], dict[str, str]]:
    """Fingerprints of the files that can be read at all, and why the others can not."""

    def one(key: str) -> bytes | str:
        try:
            return digest_of(read(reader, key))
        except BadImage as fault:
            return str(fault)

    digests: dict[str, bytes] = {}
    bad: dict[str, str] = {}
    with progress.track("Fingerprints", len(keys)) as bar:
        for key, outcome in zip(keys, ahead(one, keys)):
            if isinstance(outcome, bytes):
                digests[key] = outcome
            else:
                bad[key] = outcome
            bar.advance()
    return digests, bad


def blocks_of(
    spec: BankSpec,
    encoder: Encoder,
    reader: Reader,
    digests: dict[str, bytes],
    wanted: Iterable[str],
    with_augmented: set[str],
) -> Iterator[Block]:
    """Blocks of pictures with the trunk's output, all views of a picture together.

    The batch is picture-major: the clean view, then the augmented ones; a block holds pictures of one kind.
    On a CPU every core takes whole blocks from the file to the trunk's output, and none waits for another. On
    another device the cores make views ahead of the trunk, which has the device to itself.
    """
    plain = spec.precision == "plain"
    device = encoder.device
    on_cpu = device.type == "cpu"
    trunk = encoder.single_threaded_trunk() if on_cpu else encoder.trunk

    def stored(key: str) -> np.ndarray | str:
        try:
            return decoded(reader.decode, read(reader, key), spec.resolution)
        except BadImage as fault:
            return str(fault)

    @torch.no_grad()
    def block(keys: list[str]) -> tuple[list[str], dict[str, str], Tensor | Batch]:
        """Views of some pictures, and on a CPU what the trunk makes of them."""
        outcomes = {key: stored(key) for key in keys}
        faults = {key: outcome for key, outcome in outcomes.items() if isinstance(outcome, str)}
        good = [key for key in keys if key not in faults]
        if not good:
            return good, faults, {}
        pictures = torch.from_numpy(np.stack([outcomes[key] for key in good]))
        if plain:
            return good, faults, {spec.fields[0].name: pictures}
        views = to_unit(pictures)[:, None]
        if good[0] in with_augmented:
            seeds = [
                [seed_of(v, "view", digests[key].hex()) for v in range(spec.augmentations)] for key in good
            ]
            views = torch.cat([views, augment_pictures(pictures, np.array(seeds), spec.augmentation)], dim=1)
        x = normalise_(views.flatten(0, 1), spec.mean, spec.std)
        return good, faults, in_batches(trunk, x, TRUNK_BATCH) if on_cpu else x

    train = [key for key in wanted if key in with_augmented]
    rest = [key for key in wanted if key not in with_augmented]
    size = max(1, _VIEWS_PER_BLOCK // (1 + spec.augmentations))
    blocks = [train[i : i + size] for i in range(0, len(train), size)]
    blocks += [rest[i : i + _VIEWS_PER_BLOCK] for i in range(0, len(rest), _VIEWS_PER_BLOCK)]
    for keys, faults, outcome in ahead(block, blocks, lookahead=4):
        if isinstance(outcome, Tensor):
            yield keys, faults, in_batches(trunk, outcome.to(device), TRUNK_BATCH)
        else:
            yield keys, faults, outcome


def _write(bank: Bank, digests: list[bytes], batch: Batch) -> int:
    """Enter a block: augmented views first, so that a clean entry means the picture is wholly there."""
    n = len(digests)
    encoded = (
        {name: x.numpy() for name, x in batch.items()}
        if bank.spec.precision == "plain"
        else bank.spec.encode(batch)
    )
    views = {name: x.reshape(n, -1, *x.shape[1:]) for name, x in encoded.items()}
    count = next(iter(views.values())).shape[1]
    if count > 1 and bank.augmented is not None:
        new = [i for i, digest in enumerate(digests) if digest not in bank.augmented]
        bank.augmented.append([digests[i] for i in new], {name: x[new, 1:] for name, x in views.items()})
    new = [i for i, digest in enumerate(digests) if digest not in bank.clean]
    bank.clean.append([digests[i] for i in new], {name: x[new, 0] for name, x in views.items()})
    return n * count


@contextlib.contextmanager
def _only_writer(bank: Bank, progress: Progress) -> Iterator[None]:
    """Hold the bank's lock; say so when another process has it."""
    bank.folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(bank.folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        with progress.track(f"Waiting for another process that fills {bank.folder}", 1):
            lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _check_space(bank: Bank, views: int) -> None:
    """Refuse to begin what the disk can not hold."""
    needed, free = views * bank.bytes_per_view(), shutil.disk_usage(bank.folder).free
    if needed > free:
        raise CampError(
            f"The view bank needs {needed / 1e9:.1f} GB more in {bank.folder}, where {free / 1e9:.1f} GB are free: "
            "use fewer --augmentations, --precision int8, or another folder with --bank."
        )

"""Verify all records of a view bank, and remove damaged ones."""

from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from camp.core.errors import CampError
from camp.core.files import read_json
from camp.core.finding import Finding
from camp.core.progress import Progress
from camp.data.bank.bank import Bank, BankSpec
from camp.data.bank.store import Store
from camp.data.view_settings import Augmentation
from camp.data.views import Field

AGAIN = "the next run that needs the images computes them again"


def check_bank(folder: Path, progress: Progress, repair: bool = False) -> list[Finding]:
    """Compare every record of a bank with its checksum; with `repair` remove the damaged ones."""
    try:
        bank = Bank(folder, _read_spec(folder))
    except (CampError, AttributeError, KeyError, TypeError, ValueError) as error:
        said = f"{folder / 'bank.json'} does not describe a view bank ({str(error).rstrip('.')})"
        return [Finding(said, f"remove {folder}; {AGAIN}")]
    if bank.spec.fingerprint() != read_json(folder / "bank.json")["fingerprint"]:
        return [
            Finding(f"{folder / 'bank.json'} was changed since it was written", f"remove {folder}; {AGAIN}")
        ]
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise CampError(f"Another process is working on {folder}; wait until it is done.") from None
    try:
        return [finding for store in bank.stores() for finding in _check_store(store, progress, repair)]
    finally:
        lock.release()


def _read_spec(folder: Path) -> BankSpec:
    """Read the description of a bank from `bank.json`."""
    values = dict(read_json(folder / "bank.json"))
    values.pop("fingerprint")
    fields = tuple(Field(**{**field, "shape": tuple(field["shape"])}) for field in values.pop("fields"))
    augmentation = Augmentation(**values.pop("augmentation"))
    mean, std = tuple(values.pop("mean")), tuple(values.pop("std"))
    return BankSpec(fields=fields, augmentation=augmentation, mean=mean, std=std, **values)


def _check_store(store: Store, progress: Progress, repair: bool) -> Iterator[Finding]:
    """Check the clean or the augmented views."""
    folder, count = store.folder, len(store)
    with progress.track(f"Checking {folder.name}", 1):
        damaged, missing, index = store.verify(), store.missing(), store.index_is_intact()
    if missing:
        yield Finding(f"{folder}: {missing} records that were known to be on disk are missing", AGAIN)
    if damaged:
        said = f"{folder}: {len(damaged)} of {count} records are not what was written"
        if repair:
            store.remove(damaged)
        remedy = f"they are removed, and {AGAIN}" if repair else f"--repair removes them, and {AGAIN}"
        yield Finding(said, remedy, repairable=True, repaired=repair)
    if not index:
        if repair:
            store.repair()
        remedy = "it is written again" if repair else f"--repair writes it again; {AGAIN}"
        yield Finding(
            f"{folder / 'index.bin'} was changed since it was written",
            remedy,
            repairable=True,
            repaired=repair,
        )

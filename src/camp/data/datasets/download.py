"""Download data sets: resumable, with checksums, and complete before the folder gets its name."""

import http.client
import shutil
import tarfile
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath
from typing import Any

from camp.core.errors import CampError
from camp.core.files import expand_user
from camp.core.progress import Bar, Progress
from camp.data.datasets import data_folder, dataset_info, is_present
from camp.data.datasets.info import Archive

TIMEOUT = 30.0
"""Seconds without data after which a connection is considered lost."""
BLOCK = 1 << 18
ATTEMPTS = 5
"""Consecutive connections without any data before the download fails."""
PAUSE = 1.0
"""Seconds to wait after a connection without any data."""


def download_dataset(name: str, directory: Path | None = None, progress: Progress | None = None) -> Path:
    """Download data set `name` into `directory` (None for its default folder) and return that folder.

    Files are downloaded to a hidden folder beside it, continuing an earlier attempt; it is renamed
    in one step after all checksums have been verified and everything is unpacked.
    """
    info = dataset_info(name)
    target = data_folder(name) if directory is None else expand_user(directory)
    progress = progress or Progress()
    if info.embedded or not info.archives:
        raise CampError(f"{info.title} cannot be downloaded here. {info.how_to_get}")
    if is_present(name, target):
        return target
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise CampError(f"{target} exists but does not hold {info.title}; name an empty or new folder.")
    staging = target.with_name(f".{target.name}.partial")
    try:
        with _lock(staging):
            files = [_download(archive, staging / "downloads", progress) for archive in info.archives]
            content = staging / "content"
            shutil.rmtree(content, ignore_errors=True)
            content.mkdir(parents=True)
            for file in files:
                with progress.track(f"unpacking {file.name}", file.stat().st_size) as bar:
                    unpack(file, content, bar)
            content.replace(target)
        shutil.rmtree(staging)
    except OSError as error:
        raise CampError(
            f"Could not get {name} into {target} ({error}); run it again to continue where it stopped."
        ) from error
    return target


def _lock(staging: Path) -> AbstractContextManager[object]:
    """Lock the staging folder, so that two downloads do not write to the same file."""
    from filelock import FileLock

    staging.mkdir(parents=True, exist_ok=True)
    lock = FileLock(staging / "lock", timeout=0)
    try:
        return lock.acquire()
    except TimeoutError:
        raise CampError(f"Another process is downloading into {staging}; wait for it.") from None


def _download(archive: Archive, folder: Path, progress: Progress) -> Path:
    """Download the file of `archive`; pooch verifies the checksum."""
    import pooch

    pooch.get_logger().setLevel("ERROR")
    if archive.checksum is None:
        progress.note(f"{archive.file_name}: {archive.note}")

    def resume(url: str, output_file: str, _: Any) -> None:
        part = folder / f"{archive.file_name}.part"
        fetch(url, part, progress)
        part.replace(output_file)

    try:
        path = pooch.retrieve(
            archive.url, known_hash=archive.checksum, fname=archive.file_name, path=folder, downloader=resume
        )
    except ValueError as error:
        # Pooch has removed the file, so the next attempt starts from the beginning.
        raise CampError(
            f"{archive.url} does not have the checksum {archive.checksum}: it is damaged or was replaced; "
            "try again, or get the data by hand."
        ) from error
    return Path(path)


def fetch(url: str, part: Path, progress: Progress) -> None:
    """Download `url` to `part`, continuing after its present content and after lost connections."""
    part.parent.mkdir(parents=True, exist_ok=True)
    failures = 0
    with progress.track(f"downloading {part.name.removesuffix('.part')}", 0) as bar:
        while True:
            before = part.stat().st_size if part.exists() else 0
            try:
                if _one_connection(url, part, bar):
                    return
                reason = "the connection was closed early"
            except urllib.error.HTTPError as error:
                raise CampError(
                    f"{url} answers {error.code} {error.reason}; the file may have moved."
                ) from error
            except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
                reason = str(getattr(error, "reason", error) or type(error).__name__)
            have = part.stat().st_size if part.exists() else 0
            failures = 0 if have > before else failures + 1
            # If nothing has ever arrived, the server is probably unreachable: do not retry.
            if failures and (not have or failures >= ATTEMPTS):
                raise CampError(
                    f"Could not download {url} ({reason}); check the network and run it again: "
                    f"the {have:,} bytes received so far are kept."
                )
            if failures:
                time.sleep(PAUSE)


def _one_connection(url: str, part: Path, bar: Bar) -> bool:
    """Append the data of one connection to `part`; return whether the file is complete."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != 416 or not have:
            raise
        # The server has no bytes beyond these: either the file is complete, or it is not from this URL.
        if error.headers.get("Content-Range", "") == f"bytes */{have}":
            return True
        part.unlink()
        return _one_connection(url, part, bar)
    with response:
        resumed = response.status == 206 and response.headers.get("Content-Range", "").startswith(
            f"bytes {have}-"
        )
        start = have if resumed else 0
        length = response.headers.get("Content-Length")
        total = None if length is None else start + int(length)
        bar.total = total or 0
        # Data of an earlier run do not count for the speed of this one.
        if bar.done:
            bar.done = start
        else:
            bar.skip(start)
        done = start
        with part.open("ab" if resumed else "wb") as file:
            while block := response.read(BLOCK):
                file.write(block)
                done += len(block)
                bar.advance(len(block))
    return total is None or done == total


def unpack(file: Path, folder: Path, bar: Bar) -> None:
    """Unpack an archive into `folder`, or copy a plain file; members outside the folder are refused."""
    try:
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as zipped:
                for name in zipped.namelist():
                    _check_member(file, name)
                for member in zipped.infolist():
                    zipped.extract(member, folder)
                    bar.advance(member.compress_size)
        elif tarfile.is_tarfile(file):
            with file.open("rb") as raw, tarfile.open(fileobj=raw) as tarred:
                for entry in tarred:
                    # The "data" filter refuses absolute names, "..", links that leave the folder and devices.
                    tarred.extract(entry, folder, filter="data")
                    bar.done = raw.tell()
        else:
            shutil.copyfile(file, folder / file.name)
    except tarfile.FilterError as error:
        raise CampError(
            f"{file.name} holds a member that leaves the folder ({error}); it is not unpacked."
        ) from error
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise CampError(f"{file.name} is damaged ({error}); delete it and download it again.") from error


def _check_member(file: Path, name: str) -> None:
    """Raise an error if a zip member has a path outside the folder."""
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in name.split("/")[0]:
        raise CampError(f"{file.name} holds a member that leaves the folder ({name}); it is not unpacked.")

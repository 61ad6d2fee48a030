"""Getting a data set: checked, resumable, and never half there under its real name."""

import http.client
import shutil
import tarfile
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import Any

from camp.core.errors import CampError
from camp.core.progress import Bar, Progress
from camp.data.datasets import data_folder, dataset_info, present
from camp.data.datasets.info import Archive

TIMEOUT = 30.0
"""Seconds without a byte after which a connection counts as lost."""
BLOCK = 1 << 18
ATTEMPTS = 5
"""Connections in a row that may bring nothing before the download gives up."""
PAUSE = 1.0
"""Seconds to wait after a connection that brought nothing."""


def get(name: str, directory: Path | None = None, progress: Progress | None = None) -> Path:
    """Download data set `name` into `directory` (by default its usual place) and return that folder.

    Files are gathered under a hidden name beside it and continued where an earlier attempt broke off; the
    folder gets its name in one step once every checksum agrees and everything is unpacked.
    """
    info = dataset_info(name)
    target = data_folder(name) if directory is None else Path(directory).expanduser()
    progress = progress or Progress()
    if info.embedded or not info.archives:
        raise CampError(f"{info.title} cannot be downloaded here. {info.how_to_get}")
    if present(name, target):
        return target
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise CampError(f"{target} exists but is no {info.title}; name an empty or new folder.")
    staging = target.with_name(f".{target.name}.partial")
    try:
        with _only_one(staging):
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
            f"Could not get {name} into {target} ({error}); run it again to go on where it stopped."
        ) from error
    return target


def _only_one(staging: Path) -> Any:
    """A lock on the staging folder, so that two downloads do not write into the same file."""
    from filelock import FileLock

    staging.mkdir(parents=True, exist_ok=True)
    lock = FileLock(staging / "lock", timeout=0)
    try:
        return lock.acquire()
    except TimeoutError:
        raise CampError(f"Another process is downloading into {staging}; wait for it.") from None


def _download(archive: Archive, folder: Path, progress: Progress) -> Path:
    """The file of `archive`, checked by pooch."""
    import pooch

    pooch.get_logger().setLevel("ERROR")
    if archive.checksum is None:
        progress.note(f"{archive.file_name}: {archive.note}")

    def resuming(url: str, output_file: str, _: Any) -> None:
        part = folder / f"{archive.file_name}.part"
        fetch(url, part, progress)
        part.replace(output_file)

    try:
        path = pooch.retrieve(
            archive.url,
            known_hash=archive.checksum,
            fname=archive.file_name,
            path=folder,
            downloader=resuming,
        )
    except ValueError as error:
        # Pooch has removed the file: the next attempt begins anew.
        raise CampError(
            f"{archive.url} does not have the checksum {archive.checksum}: it is damaged or was replaced; "
            "try again, and if it stays so get the data by hand."
        ) from error
    return Path(path)


def fetch(url: str, part: Path, progress: Progress) -> None:
    """Download `url` into `part`, behind what is there already; lost connections are taken up again."""
    part.parent.mkdir(parents=True, exist_ok=True)
    fruitless = 0
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
            fruitless = 0 if have > before else fruitless + 1
            # Without a single byte there is no reason to think that the server can be reached at all.
            if fruitless and (not have or fruitless >= ATTEMPTS):
                raise CampError(
                    f"Could not download {url} ({reason}); check the network and run it again: "
                    f"the {have:,} bytes that came are kept."
                )
            if fruitless:
                time.sleep(PAUSE)


def _one_connection(url: str, part: Path, bar: Bar) -> bool:
    """Append to `part` what one connection brings; whether the file is whole now."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != 416 or not have:
            raise
        # Nothing lies behind what is there: either it is whole, or it is not from this file.
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
        # What an earlier run brought says nothing about the speed of this one.
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
    """Unpack an archive into `folder`, or copy a plain file; members that leave the folder are refused."""
    try:
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as zipped:
                for name in zipped.namelist():
                    _inside(file, name)
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


def _inside(file: Path, name: str) -> None:
    """Refuse a zip member that names a place outside."""
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in name.split("/")[0]:
        raise CampError(f"{file.name} holds a member that leaves the folder ({name}); it is not unpacked.")

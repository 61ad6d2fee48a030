"""Files at URLs of any kind that fsspec knows: s3://, gs://, hf://, https://, file://, memory://, and paths."""

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from camp.app.inputs.folders import folder_labels
from camp.app.inputs.listed import Access, SourceImages, SourceReader
from camp.core.errors import CampError
from camp.core.extras import import_extra
from camp.data.images import IMAGE_SUFFIXES, UnreadableImageError

_RANGE = re.compile(r"\{(?:(?P<first>\d+)\.\.(?P<last>\d+)|(?P<words>[^{}]*,[^{}]*))\}")


def is_url(word: str) -> bool:
    """Return whether a word is a URL and not a path.

    >>> is_url("s3://birds/january"), is_url("C:/birds"), is_url("january")
    (True, False, False)
    """
    return re.match(r"[a-zA-Z][a-zA-Z0-9+.-]+(://|::)", word) is not None


@functools.lru_cache(maxsize=64)
def open_url(url: str) -> tuple[Any, str]:
    """Return the file system of a URL or path, and the path in it; a missing package is a `CampError` with its name."""
    fsspec = import_extra("fsspec", "formats", "Reading a URL")
    try:
        system, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise CampError(f"{url} cannot be opened: {error}.") from None
    except ValueError as error:
        raise CampError(
            f"{url} cannot be opened ({error}); give a URL that fsspec knows, or a path."
        ) from None
    except Exception as error:  # each package raises errors of its own
        raise CampError(f"{url} cannot be opened ({reason_of(error)}).") from error
    return system, path


def reason_of(error: Exception) -> str:
    """Return what an error of a file system says, in one line."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def local_file(url: str) -> Path | None:
    """Return the path of a file of this machine; None for one elsewhere."""
    system, path = open_url(url)
    return Path(path) if "file" in _protocols(system) else None


def access_to(url: str) -> Access:
    """Return how the files at a URL are read."""
    return "local" if "file" in _protocols(open_url(url)[0]) else "remote"


def _protocols(system: Any) -> tuple[str, ...]:
    protocol = system.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)


def read_range(url: str, start: int | None = None, end: int | None = None) -> bytes:
    """Return the bytes of a file from `start` to `end`; raise `UnreadableImageError` if that fails."""
    try:
        system, path = open_url(url)
        data: bytes = system.cat_file(path, start=start, end=end)
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        raise UnreadableImageError(f"the file cannot be read ({reason})") from error
    except Exception as error:  # each package raises errors of its own
        raise UnreadableImageError(f"the file cannot be read ({reason_of(error)})") from error
    return data


def find_files(url: str, suffixes: Iterable[str]) -> list[str]:
    """Return the paths, relative to `url` and sorted, of the files below it with these suffixes; hidden ones are ignored."""
    system, path = open_url(url)
    wanted, base = frozenset(suffixes), path.rstrip("/")
    try:
        found = system.find(path)
    except Exception as error:  # each package raises errors of its own
        raise CampError(f"{url} cannot be listed ({reason_of(error)}).") from error
    keys = (file[len(base) :].lstrip("/") for file in found)
    return sorted(
        key
        for key in keys
        if PurePosixPath(key).suffix.lower() in wanted and not any(p.startswith(".") for p in key.split("/"))
    )


def expand(word: str) -> list[str]:
    """Return the URLs or paths of the files that a pattern names, sorted.

    `{000..003}` stands for four numbers and `{a,b}` for two words, whether the files exist or not; `*`, `?` and `[...]`
    for the files that exist.

    >>> expand("birds-{08..10}.tar")
    ['birds-08.tar', 'birds-09.tar', 'birds-10.tar']
    """
    braces = _RANGE.search(word)
    if braces:
        if braces["words"] is not None:
            choices = braces["words"].split(",")
        else:
            width = len(braces["first"])
            choices = [f"{n:0{width}d}" for n in range(int(braces["first"]), int(braces["last"]) + 1)]
        return [
            file
            for choice in choices
            for file in expand(word[: braces.start()] + choice + word[braces.end() :])
        ]
    if not any(sign in word for sign in "*?["):
        return [word]
    system, path = open_url(word)
    try:
        found = sorted(system.glob(path))
    except Exception as error:  # each package raises errors of its own
        raise CampError(f"{word} cannot be listed ({reason_of(error)}).") from error
    if not found:
        raise CampError(f"There are no files {word}.")
    return [system.unstrip_protocol(file) if is_url(word) else file for file in found]


def short_names(files: Sequence[str]) -> list[str]:
    """Return the names of files without the folders that they have in common.

    >>> short_names(["s3://birds/a/1.tar", "s3://birds/b/1.tar"]), short_names(["january/1.tar"])
    (['a/1.tar', 'b/1.tar'], ['1.tar'])
    """
    parts = [file.split("/") for file in files]
    common = 0
    while all(len(p) > common + 1 and p[common] == parts[0][common] for p in parts):
        common += 1
    return ["/".join(p[common:]) for p in parts]


@dataclass(frozen=True)
class UrlReader(SourceReader):
    """Reader of image files below a URL; a key is a path relative to it."""

    url: str

    def read(self, key: str) -> bytes:
        """Read the whole file."""
        return read_range(f"{self.url.rstrip('/')}/{key}")


def read_url(url: str, keys: Sequence[str], labelled: bool) -> SourceImages:
    """Return the images `keys` below a URL, if `labelled` by the first folder they are in, or the image at the URL."""
    name, suffix = url.rstrip("/").rpartition("/")[2], PurePosixPath(url).suffix.lower()
    if not keys and suffix in IMAGE_SUFFIXES and _is_file(url):
        above = url.rpartition("/")[0]
        return SourceImages(above, name, UrlReader(above), (name,), (None,), access_to(url))
    if not keys:
        raise CampError(f"{url} holds no pictures; expected files such as 1.jpg or heron/1.png in it.")
    labels = folder_labels(url, keys) if labelled else dict[str, str | None].fromkeys(keys)
    folder = local_file(url)
    return SourceImages(
        url,
        name,
        UrlReader(url),
        tuple(keys),
        tuple(labels.values()),
        access_to(url),
        () if folder is None else (folder,),
    )


def _is_file(url: str) -> bool:
    system, path = open_url(url)
    try:
        return bool(system.isfile(path))
    except Exception as error:  # each package raises errors of its own
        raise CampError(f"{url} cannot be read ({reason_of(error)}).") from error

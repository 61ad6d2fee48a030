"""Images in tar files as WebDataset writes them: members of one base name belong together, as in `7.jpg` and `7.cls`."""

import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import PurePosixPath
from typing import BinaryIO

from camp.app.inputs.listed import SourceImages, SourceReader, label_of
from camp.app.inputs.urls import access_to, local_file, open_url, read_range, reason_of, short_names
from camp.core.errors import CampError
from camp.data.datasets.base import MAX_FILE_BYTES
from camp.data.images import IMAGE_SUFFIXES, UnreadableImageError

LABEL_MEMBERS = ("cls", "txt", "json")
"""Extensions of the members that hold a label; the first that there is counts."""
JSON_LABEL = "label"
"""Key of the label in a JSON member."""
_MAX_LABEL_BYTES = 1 << 20


@dataclass(frozen=True)
class Member:
    """Where an image is in a tar file."""

    tar: str
    """URL or path of the tar file."""
    offset: int
    size: int


@dataclass(frozen=True)
class TarReader(SourceReader):
    """Reader of members of tar files; a key is the name of the tar file, a slash, and the name of the member."""

    members: Mapping[str, Member]

    def read(self, key: str) -> bytes:
        """Read the bytes of a member, and nothing else of the tar file."""
        member = self.members[key]
        if member.size > MAX_FILE_BYTES:
            raise UnreadableImageError(f"the file is larger than {MAX_FILE_BYTES:,} bytes")
        data = read_range(member.tar, member.offset, member.offset + member.size) if member.size else b""
        if len(data) != member.size:
            raise UnreadableImageError("the tar file ends within it")
        return data

    def part(self, keys: Sequence[str]) -> "TarReader":
        """Return a reader of only these images."""
        return TarReader({key: self.members[key] for key in keys})


def read_tars(source: str, files: Sequence[str], label_field: str | None, labelled: bool) -> SourceImages:
    """List the images in tar files, by reading the headers of their members.

    Args:
        source: The source as it was given.
        files: URLs or paths of the tar files.
        label_field: Extension of the member that holds the label of an image; None looks for `LABEL_MEMBERS`.
        labelled: Whether labels are read.
    """
    extensions = () if not labelled else LABEL_MEMBERS if label_field is None else (label_field,)
    members: dict[str, Member] = {}
    labels: list[str | None] = []
    for file, name in zip(files, short_names(files)):
        for key, member, label in _images_of(file, name, extensions):
            if key in members:
                raise CampError(
                    f"{file} holds two members called {key.removeprefix(name + '/')}; rename one."
                )
            members[key] = member
            labels.append(label)
    if not members:
        raise CampError(f"{source} holds no pictures; expected members such as 1.jpg in the tar files.")
    local = [path for file in files if (path := local_file(file)) is not None]
    name = PurePosixPath(source.rstrip("/")).name
    return SourceImages(
        source, name, TarReader(members), tuple(members), tuple(labels), access_to(files[0]), tuple(local)
    )


def _images_of(file: str, name: str, extensions: Sequence[str]) -> Iterator[tuple[str, Member, str | None]]:
    """Yield key, place and label of each image of a tar file, in its order."""
    system, path = open_url(file)
    try:
        with system.open(path, "rb") as stream, tarfile.open(fileobj=stream, mode="r:") as archive:
            usable = (m for m in archive if m.isreg() and not m.issparse() and not _is_hidden(m.name))
            for _, sample in groupby(usable, lambda member: _split(member.name)[0]):
                yield from _images_of_sample(file, name, stream, list(sample), extensions)
    except tarfile.ReadError as error:
        advice = "; decompress it" if file.endswith(("gz", "bz2", "xz", "zst")) else ""
        raise CampError(f"{file} is damaged, or not an uncompressed tar file ({error}){advice}.") from None
    except CampError:
        raise
    except Exception as error:  # each package raises errors of its own
        raise CampError(f"{file} cannot be read ({reason_of(error)}).") from error


def _images_of_sample(
    file: str, name: str, stream: BinaryIO, sample: list[tarfile.TarInfo], extensions: Sequence[str]
) -> Iterator[tuple[str, Member, str | None]]:
    """Yield the images among members of one base name: that with a plain extension, or else all."""
    images = [m for m in sample if PurePosixPath(m.name).suffix.lower() in IMAGE_SUFFIXES]
    plain = [m for m in images if f".{_split(m.name)[1]}" in IMAGE_SUFFIXES]
    if not images:
        return
    label = _label(file, stream, sample, extensions)
    for member in plain or images:
        yield f"{name}/{member.name}", Member(file, member.offset_data, member.size), label


def _label(
    file: str, stream: BinaryIO, sample: list[tarfile.TarInfo], extensions: Sequence[str]
) -> str | None:
    """Return the label among the members of one base name."""
    by_extension = {_split(member.name)[1]: member for member in sample}
    for extension in extensions:
        member = by_extension.get(extension)
        if member is None:
            continue
        if member.size > _MAX_LABEL_BYTES:
            raise CampError(f"{member.name} of {file} is too large for a label.")
        position = stream.tell()
        stream.seek(member.offset_data)
        content = stream.read(member.size)
        stream.seek(position)
        where = f"{member.name} of {file}"
        if extension != "json":
            return label_of(content, where)
        try:
            values = json.loads(content)
        except (ValueError, RecursionError):
            raise CampError(f"{where} is not valid JSON.") from None
        if isinstance(values, dict) and JSON_LABEL in values:
            return label_of(values[JSON_LABEL], where)
    return None


def _split(name: str) -> tuple[str, str]:
    """Split the name of a member into its base name and its extension, at the first dot of the file name.

    >>> _split("birds.v1/7.seg.png")
    ('birds.v1/7', 'seg.png')
    """
    folder, slash, file = name.rpartition("/")
    base, _, extension = file.partition(".")
    return folder + slash + base, extension.lower()


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") and part not in (".", "..") for part in name.split("/"))

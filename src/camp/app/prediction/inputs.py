"""Inputs of `camp predict`: a folder of images, one image, another source of images, or a file of vectors."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from camp.app.inputs.listed import ListedImages, SourceImages
from camp.app.inputs.sources import Fields, is_folder_of_images, list_source
from camp.app.workspace.workspace import Workspace
from camp.core.errors import CampError
from camp.core.files import checksum
from camp.core.progress import Progress
from camp.data.datasets.base import FileReader, Reader
from camp.data.datasets.folders import image_files
from camp.data.vector_files import RowNames, VectorReader, is_vector_file, open_vectors


@dataclass(frozen=True)
class PredictionInput:
    """Images or vectors to predict, in order."""

    reader: Reader
    keys: Sequence[str]
    identity: str
    """Differs from that of another input."""
    mark: Callable[[str], str]
    """Returns what differs once the content of a key has changed."""
    files: Callable[[Path], Iterator[Path]]
    """Lists the files that are read, at least those that may be the same file as an existing path."""

    @classmethod
    def open(
        cls, source: str, workspace: Workspace, progress: Progress, fields: Fields | None = None
    ) -> Self:
        """List the images of `source`, or open the vectors in it, whichever the workspace has learned."""
        settings, path = workspace.settings.backbone, Path(source)
        if settings.backbone == "embeddings":
            if not is_vector_file(path):
                raise CampError(
                    f"{workspace.name} has learned vectors; give an .npy or .npz file, not {path}."
                )
            return cls.of_vectors(path, settings.dim)
        if is_vector_file(path) and path.is_file():
            raise CampError(
                f"{workspace.name} has learned pictures; give a folder of pictures or a picture, not {path}."
            )
        if is_folder_of_images(source):
            return cls.of_images(path, progress)
        with progress.track("Listing pictures", 1):
            return cls.of_listed(list_source(source, fields))

    @classmethod
    def of_listed(cls, images: ListedImages) -> Self:
        """Take images that were listed; a change of the files of this machine that hold them makes another input."""
        return cls(
            images.reader,
            images.keys,
            listing_identity(images),
            lambda key: "",
            lambda output: images.files_read(),
        )

    @classmethod
    def of_images(cls, path: Path, progress: Progress) -> Self:
        """List the images of a folder, or take one image."""
        try:
            if not path.exists():
                raise CampError(f"There is no {path}; give a folder of pictures, or a picture.")
            is_folder = path.is_dir()
            if is_folder:
                with progress.track("Listing pictures", 1):
                    root, keys = path, image_files(path)
            else:
                root, keys = path.parent, [path.name]
        except OSError as error:
            raise CampError(f"{error.filename or path}: {error.strerror or error}.") from error
        if not keys:
            raise CampError(f"{path} contains no pictures.")

        def files(output: Path) -> Iterator[Path]:
            outside = not Path(os.path.realpath(output)).is_relative_to(os.path.realpath(root))
            if not (is_folder and outside and output.stat().st_nlink == 1):
                yield from (root / key for key in keys)  # among which no link leads out of a folder

        return cls(FileReader(root), keys, os.path.realpath(root), lambda key: file_mark(root / key), files)

    @classmethod
    def of_vectors(cls, path: Path, dim: int | None) -> Self:
        """Open a file of vectors, which have length `dim`."""
        vectors = open_vectors(path)
        if dim is not None and vectors.shape[1] != dim:
            raise CampError(
                f"The vectors of {path} have {vectors.shape[1]} numbers, and those of the workspace have {dim}."
            )
        identity = f"{os.path.realpath(path)} {file_mark(path)}"
        return cls(
            VectorReader(vectors),
            RowNames(len(vectors)),
            identity,
            lambda key: "",
            lambda output: iter([path]),
        )


def listing_identity(images: ListedImages) -> str:
    """Return what differs for another source, and once the files that hold many images have changed."""
    if not isinstance(images, SourceImages):
        return images.source
    return f"{images.source} {checksum(' '.join(map(file_mark, images.files)).encode())}"


def file_mark(path: Path) -> str:
    """Return size and times of a file, which differ once it was changed or replaced."""
    try:
        about = path.stat()
    except OSError as error:
        return f"error {error.errno}"
    return f"{about.st_size} {about.st_mtime_ns} {about.st_ctime_ns}"

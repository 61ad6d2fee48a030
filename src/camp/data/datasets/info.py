"""Description of data sets: how to get and load them, and default settings."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from camp.data.datasets.base import Dataset


@dataclass(frozen=True)
class Archive:
    """One downloadable file of a data set."""

    url: str
    checksum: str | None
    """`md5:...` or `sha256:...`; None only with a `note`."""
    note: str = ""
    """Warning that is shown before the download."""

    def __post_init__(self) -> None:
        if self.checksum is None and not self.note:
            raise ValueError(f"{self.url} has no checksum: explain that in its note")

    @property
    def file_name(self) -> str:
        """Last part of the URL."""
        return self.url.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class DatasetInfo:
    """Entry of the registry: what the data set is, how to get it, and the paper's settings for it."""

    name: str
    title: str
    loader: Callable[..., Dataset]
    """`loader(data, **options)`, where `data` is the folder (or file) of the data set."""
    n_classes: int | None
    """Number of classes C, or None if it depends on the user's data."""
    images: str
    size: str
    licence: str
    how_to_get: str
    """One sentence that says how to get the data."""
    layouts: str
    """Supported folder layouts, in a few words."""
    markers: tuple[str, ...] = ()
    """Paths of which at least one exists in the folder of the data set."""
    archives: tuple[Archive, ...] = ()
    """Files that `camp datasets get` downloads; empty if it cannot be downloaded."""
    embedded: bool = False
    """Whether the data set comes with an installed library and needs no folder."""
    tasks: int = 5
    """Default number of tasks N; for the paper's data sets the paper's."""
    novel_fraction: float = 0.2
    order: str = "seed"
    """Default class order: `paper` if there is a published one."""
    crop_scale: float = 0.3
    """Minimum area of a random crop, as a fraction of the image."""
    cil_padding: float | None = None
    """Class-incremental learning: padding before a crop at the image's own size, as a fraction of its side; None:
    crops are resized there too."""
    flip: bool = True
    """Whether a mirrored image has the same class."""
    saturation: float = 0.2
    """Strength of the saturation jitter."""
    colour: bool = True
    """Whether the images have colours, so that colour jitter is applied."""
    backbone: str | None = None
    """Default backbone, if it differs from the general default."""

    def is_present(self, data: Path) -> bool:
        """Return whether `data` looks like this data set, judging by file names only."""
        return self.embedded or any((data / marker).exists() for marker in self.markers)

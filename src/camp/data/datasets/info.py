"""What is known about a data set before any of it is read."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from camp.data.datasets.base import Dataset


@dataclass(frozen=True)
class Archive:
    """One file of a data set as its publisher offers it."""

    url: str
    checksum: str | None
    """`md5:...` or `sha256:...`, as published or as other projects have it; None only with a `note`."""
    note: str = ""
    """What a person should know before trusting the file."""

    def __post_init__(self) -> None:
        if self.checksum is None and not self.note:
            raise ValueError(f"{self.url} has no checksum: say so in its note")

    @property
    def file_name(self) -> str:
        """The name at the end of the address."""
        return self.url.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class DatasetInfo:
    """A data set's entry in the registry: what it is, how to get it, and how the paper uses it."""

    name: str
    title: str
    loader: Callable[..., Dataset]
    """`loader(data, **options)`, with `data` the folder (or file) that holds it."""
    n_classes: int | None
    """C, or None where the user's data decide."""
    images: str
    size: str
    licence: str
    how_to_get: str
    """One sentence for a person who has to fetch it by hand."""
    layouts: str
    """What the folder is expected to hold, in a few words."""
    markers: tuple[str, ...] = ()
    """Paths of which one is there when the data set is."""
    archives: tuple[Archive, ...] = ()
    """What `camp datasets get` downloads; empty where that cannot be done."""
    embedded: bool = False
    """Whether it comes with an installed library and needs no folder."""
    tasks: int = 5
    """N of the paper's table of splits, or a sensible number for the others."""
    novel_fraction: float = 0.2
    order: str = "seed"
    """The class order by default: `paper` where the benchmark has one."""
    crop_scale: float = 0.3
    """Smallest share of the area a random crop keeps."""
    flip: bool = True
    """Whether a mirrored picture is still one of the same class."""
    saturation: float = 0.2
    """Strength of the saturation jitter."""
    colour: bool = True
    """Whether pictures have colours to jitter."""
    backbone: str | None = None
    """The backbone made for it, where it is not the general default."""

    def present(self, data: Path) -> bool:
        """Whether `data` looks like this data set; nothing but names is read."""
        return self.embedded or any((data / marker).exists() for marker in self.markers)

"""What the commands over a workspace have in common."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from camp.core.errors import CampError
from camp.core.progress import Bar, Progress

if TYPE_CHECKING:
    from camp.core.ray_cluster import RayCluster, Resources

WorkspaceFolder = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="WORKSPACE")]
FalseAlarms = Annotated[float, tyro.conf.arg(metavar="RATE")]
Pictures = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PICTURES")]

EngineName = Literal["local", "ray"]


@dataclass(frozen=True)
class ClusterOptions:
    """The options of --engine ray."""

    address: str | None
    cpus: float
    gpus: float | None

    def connect(self, default_gpus: float) -> "tuple[RayCluster, Resources]":
        """Connect to the cluster, and return what each process on it needs.

        Args:
            default_gpus: GPUs of each process, if the cluster has any and the options do not say.
        """
        from camp.core.ray_cluster import RayCluster, Resources

        need = Resources(self.cpus, self.gpus or 0.0)
        cluster = RayCluster("--engine ray", self.address)
        if self.gpus is None and cluster.total("GPU"):
            need = Resources(self.cpus, default_gpus)
        return cluster, need


def cluster_options(
    engine: EngineName, address: str | None, cpus: float | None, gpus: float | None
) -> ClusterOptions | None:
    """Return the options of a cluster, or None for this machine, where they are refused."""
    if engine == "ray":
        return ClusterOptions(address, 1.0 if cpus is None else cpus, gpus)
    for name, value in (("--address", address), ("--cpus", cpus), ("--gpus", gpus)):
        if value is not None:
            raise CampError(f"{name} is about a Ray cluster: add --engine ray.")
    return None


def given_path(word: str, name: str) -> Path:
    """Return the path that the option or argument `name` gives; an empty word would mean the present folder.

    >>> given_path("runs/first", "--out").as_posix()
    'runs/first'
    """
    if not word.strip():
        raise CampError(f"{name} is empty; give the name of a file or folder.")
    return Path(word)


def starting(quiet: bool = False) -> AbstractContextManager[Bar]:
    """Show progress during imports that take seconds."""
    return Progress(quiet).track("Starting", 1)

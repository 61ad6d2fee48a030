"""The interface of a batch of images as it is given, before the files are read."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from camp.core.errors import CampError
from camp.data.datasets.base import Reader


class InputError(CampError, ValueError):
    """A `CampError` that is the `ValueError` that scikit-learn expects for wrong arguments."""


@dataclass(frozen=True)
class ReadableImages:
    """The n images of a batch that are learned."""

    keys: Sequence[str]
    files: Sequence[str]
    """What the workspace calls each image."""
    digests: np.ndarray
    """(n, 16) uint8 hashes that identify the images in the workspace."""
    labels: Sequence[str | None]
    """Names, None where unlabelled."""
    remarks: Sequence[str] = ()
    """Sentences for the report."""


class BatchInput(Protocol):
    """A batch of images with labels."""

    @property
    def name(self) -> str:
        """What the batch is called."""

    @property
    def reader(self) -> Reader:
        """Reads the images by key."""

    @property
    def keys(self) -> Sequence[str]:
        """All images."""

    @property
    def labels(self) -> Sequence[str | None]:
        """The name that each image is labelled with, None where it has no label."""

    @property
    def numeric_labels(self) -> bool:
        """Whether the labels were given as integers."""

    def warnings(self, names: Sequence[str]) -> list[str]:
        """Return sentences about labels that look like misspelled `names` of known categories."""

    def readable(
        self, contents: Mapping[str, bytes], faults: Mapping[str, str], learned: Collection[bytes], step: int
    ) -> ReadableImages:
        """Select the images that are learned.

        Args:
            contents: Hash of the content of each readable image, by key.
            faults: Why each other image could not be read, by key.
            learned: Digests of the images that were learned before.
            step: Number of learning steps so far.
        """

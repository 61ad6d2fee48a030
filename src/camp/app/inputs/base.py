"""The interface of a batch of images or vectors as it is given, before it is read."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from camp.core.errors import CampError
from camp.data.datasets.base import Reader

MAX_UNREADABLE = 0.5
"""A batch of files of which more than this share cannot be read is a mistake."""


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
    remarks: Sequence[str] = ()
    """Sentences for the report."""


class BatchInput(ABC):
    """A batch of images or vectors with labels."""

    name: str
    """What the batch is called."""
    keys: Sequence[str]
    labels: Sequence[str | None]
    """The name that each image is labelled with, None where it has no label."""
    numeric_labels: bool = False
    """Whether the labels were given as integers."""

    def warnings(self, names: Sequence[str]) -> list[str]:
        """Return sentences about labels that look like misspelled `names` of known categories."""
        return []


class ImageInput(BatchInput):
    """A batch of image files or images in memory."""

    reader: Reader

    @abstractmethod
    def readable(
        self, contents: Mapping[str, bytes], faults: Mapping[str, str], learned: np.ndarray, step: int
    ) -> ReadableImages:
        """Select the images that are learned.

        Args:
            contents: Hash of the content of each readable image, by key.
            faults: Why each other image could not be read, by key.
            learned: (m, 16) digests of the images that were learned before.
            step: Number of learning steps so far.
        """

"""Small pictures of some kinds, which even random features tell apart, and the folders they arrive in."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image

KINDS = ("heron", "robin", "wren", "crow", "owl")

SMALL = ("--backbone", "conv-tiny", "--thumbnails", "3")
"""Options of a new workspace that learns in a second."""


def picture(kind: str, number: int) -> Image.Image:
    """12 x 12 pixels: the coloured squares of the kind, and noise."""
    squares = np.random.default_rng(KINDS.index(kind)).integers(0, 256, (3, 3, 3)).repeat(4, 0).repeat(4, 1)
    noise = np.random.default_rng((KINDS.index(kind), number)).normal(0, 12, squares.shape)
    return Image.fromarray((squares + noise).clip(0, 255).astype(np.uint8))


def batch(
    folder: Path,
    labelled: Mapping[str, int] | None = None,
    unlabelled: Mapping[str, int] | None = None,
    first: int = 0,
) -> Path:
    """A folder with so many pictures of each kind, in a folder of its name and in `unlabelled`, counted from `first`."""
    folder.mkdir(parents=True, exist_ok=True)
    for number_of, place in ((labelled or {}, None), (unlabelled or {}, "unlabelled")):
        for kind, count in number_of.items():
            (folder / (place or kind)).mkdir(exist_ok=True)
            for number in range(first, first + count):
                # Labelled and unlabelled pictures of a kind are different ones.
                drawn = number + (500 if place else 0)
                picture(kind, drawn).save(folder / (place or kind) / f"{kind}-{number:03d}.png")
    return folder


def tree(root: Path) -> dict[str, str]:
    """Everything below `root` with a fingerprint of its content; locks come and go."""
    return {
        str(path.relative_to(root)): hashlib.blake2b(path.read_bytes()).hexdigest()
        if path.is_file()
        else "folder"
        for path in sorted(root.rglob("*"))
        if path.name != ".lock"
    }

"""Settings of backbones; imported by the command line, hence without torch."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Self

import numpy as np

from camp.core.errors import CampError
from camp.core.settings import DOES_NOT_CHANGE_RESULT

DEFAULT_NAME = "efficientnet-lite0"
"""Default backbone; its weights are installed with pip, so no download is needed."""

DEFAULT_TIP = "mlp"
"""Default tip of efficientnet-lite0."""

VIT_WEIGHTS = {
    "vit-s16": "facebook/dino-vits16",
    "vit-s8": "facebook/dino-vits8",
    "vit-b16": "facebook/dino-vitb16",
    "vit-s14": "facebook/dinov2-small",
    "vit-b14": "facebook/dinov2-base",
}
"""Names of the ViTs and their default weights on the Hugging Face hub."""

FROM_SCRATCH = ("resnet18", "resnet18-slim", "conv-tiny", "embeddings")
"""Backbones without pretrained weights and without a trunk."""

MAX_RESOLUTION = 2048
"""Largest side of the resized images: more would need more memory than machines have."""

_BLOCK = 100_000
"""Number of vectors whose scale is computed at a time."""

NAMES = (DEFAULT_NAME, *VIT_WEIGHTS, *FROM_SCRATCH)


@dataclass(frozen=True)
class BackboneSettings:
    """Choice of a backbone by its name or by its weights."""

    backbone: str | None = None
    """Name of the backbone: efficientnet-lite0, vit-s16, vit-s8, vit-b16, vit-s14, vit-b14, resnet18,
    resnet18-slim, conv-tiny or embeddings. None: the backbone of the weights, or efficientnet-lite0
    without weights."""
    weights: str | None = None
    """Weights: a .pth, .pt or .safetensors file, a Hugging Face folder or name, or "random" (an
    untrained ViT). None: the default weights of the backbone; networks trained from scratch have none."""
    resolution: int | None = None
    """Image side in pixels. None: 224, or 32 for the ResNets and 16 for conv-tiny."""
    trained_blocks: int = 1
    """Number of trained blocks at the end of a ViT, or of efficientnet-lite0 with the tip mbconv."""
    depth: int | None = None
    """Number of blocks of a ViT that are used, followed by the final norm. None: all of them."""
    tip: Literal["mbconv", "mlp"] | None = None
    """Trained part of efficientnet-lite0: mbconv is its last block and head, mlp a residual MLP on its pooled
    features. None: mlp."""
    dim: int | None = None
    """Length of the vectors for the backbone embeddings. None: that of the data set's vectors."""
    vector_rms: float | None = None
    """Root mean square of the vectors' entries for the backbone embeddings, by which they are divided. None: that
    of the data set's vectors."""
    engine: Literal["auto", "torch", "onnxruntime"] = field(default="auto", metadata=DOES_NOT_CHANGE_RESULT)
    """Engine that runs the trunk; auto selects the faster one on the device."""
    device: str = field(default="cpu", metadata=DOES_NOT_CHANGE_RESULT)
    """Device of trunk and tip, in torch's notation: cpu, cuda, cuda:1, mps."""

    def __post_init__(self) -> None:
        name = self.backbone or (DEFAULT_NAME if self.weights is None else None)
        scratch, efficientnet = name in FROM_SCRATCH, name == DEFAULT_NAME
        if name is not None and name not in NAMES:
            raise CampError(f'There is no backbone "{name}"; the names are {", ".join(NAMES)}.')
        if self.resolution is not None and self.resolution < 8:
            raise CampError(f"A resolution of {self.resolution} pixels is too small; give 8 or more.")
        if self.resolution is not None and self.resolution > MAX_RESOLUTION:
            raise CampError(
                f"A resolution of {self.resolution} pixels is too large; give at most {MAX_RESOLUTION}."
            )
        if self.trained_blocks < 1:
            raise CampError(f"trained_blocks is {self.trained_blocks}; at least one block has to be trained.")
        if self.dim is not None and (name != "embeddings" or self.dim < 1):
            raise CampError(
                f"dim is {self.dim} with {name or self.weights}; it is the length, 1 or more, of embeddings' vectors."
            )
        if self.vector_rms is not None and (name != "embeddings" or not self.vector_rms > 0):
            raise CampError(
                f"vector_rms is {self.vector_rms} with {name or self.weights}; it is the root mean square, above 0, "
                f"of embeddings' vectors."
            )
        if scratch and self.weights is not None:
            raise CampError(f"{name} is trained from scratch and takes no weights; omit them.")
        if self.tip is not None and name is not None and not efficientnet:
            raise CampError(f"{name} has one tip; only {DEFAULT_NAME} has a choice of tips.")
        if self.depth is not None and (scratch or efficientnet):
            raise CampError(f"Only a ViT can be truncated to a depth; omit it for {name}.")
        if self.trained_blocks > 1 and (scratch or (efficientnet and (self.tip or DEFAULT_TIP) != "mbconv")):
            raise CampError(
                f"{name} with these settings has no trainable blocks; trained_blocks is for a ViT, "
                f"or for {DEFAULT_NAME} with the tip mbconv."
            )
        if scratch and self.engine == "onnxruntime":
            raise CampError(f"{name} has no frozen trunk for onnxruntime to run; leave the engine at auto.")

    def with_name(self, name: str) -> Self:
        """Return the settings with the backbone name `name`."""
        return dataclasses.replace(self, backbone=name)

    def files(self) -> list[Path]:
        """Return the files of the weights on this machine, if a path was given."""
        path = Path(self.weights) if self.weights is not None else None
        if path is None or not path.exists():
            return []
        return sorted(path.iterdir()) if path.is_dir() else [path]

    def with_vectors(self, vectors: np.ndarray) -> Self:
        """Return the settings for vectors like `vectors` (n, D): their length, and their scale unless it is set.

        Vectors that are not finite do not count.
        """
        means, sizes = [], []
        for start in range(0, len(vectors), _BLOCK):
            squares = np.square(vectors[start : start + _BLOCK], dtype=np.float64)
            squares = squares[np.isfinite(squares).all(axis=1)]
            means.append(squares.mean() if len(squares) else 0.0)
            sizes.append(len(squares))
        rms = float(np.sqrt(np.dot(means, np.divide(sizes, max(sum(sizes), 1)))))
        return dataclasses.replace(self, dim=vectors.shape[1], vector_rms=self.vector_rms or rms or None)


def check_resolution(resolution: int, step: int, name: str) -> int:
    """Return `resolution`; raise an error with the nearest two if it is not a multiple of `step` pixels.

    >>> check_resolution(224, 14, "vit-s14")
    224
    """
    if resolution % step:
        below = max(resolution // step, 1) * step
        raise CampError(
            f"{name} takes a resolution that is a multiple of {step} pixels, not {resolution}; "
            f"the nearest are {below} and {below + step}."
        )
    return resolution

"""Which backbone a user asks for; free of torch, since the command line reads it."""

import dataclasses
from dataclasses import dataclass, field
from typing import Literal, Self

from camp.core.errors import CampError
from camp.core.settings import DOES_NOT_CHANGE_RESULT

DEFAULT_NAME = "efficientnet-lite0"
"""Its weights come with pip, so that a fresh machine has a pretrained backbone without a download."""

DEFAULT_TIP = "mlp"
"""Of efficientnet-lite0."""

VIT_WEIGHTS = {
    "vit-s16": "facebook/dino-vits16",
    "vit-s8": "facebook/dino-vits8",
    "vit-b16": "facebook/dino-vitb16",
    "vit-s14": "facebook/dinov2-small",
    "vit-b14": "facebook/dinov2-base",
}
"""The ViTs, and the weights each has when none are named."""

FROM_SCRATCH = ("resnet18", "resnet18-slim", "conv-tiny", "embeddings")
"""Backbones without pretrained weights and without a trunk."""

NAMES = (DEFAULT_NAME, *VIT_WEIGHTS, *FROM_SCRATCH)


@dataclass(frozen=True)
class BackboneSettings:
    """A backbone by name, or by the file of its weights."""

    backbone: str | None = None
    """efficientnet-lite0, vit-s16, vit-s8, vit-b16, vit-s14, vit-b14, resnet18, resnet18-slim, conv-tiny or
    embeddings. None: what the weights are of, and efficientnet-lite0 without weights."""
    weights: str | None = None
    """A .pth, .pt or .safetensors file, a Hugging Face folder or name, or "random" (a ViT drawn from the seed).
    None: the pretrained weights that belong to the backbone; nets trained from scratch have none."""
    resolution: int | None = None
    """Side of the pictures in pixels. None: 224, or 32 for the ResNets and 16 for conv-tiny."""
    trained_blocks: int = 1
    """How many blocks at the end of a ViT, or of efficientnet-lite0 with the tip mbconv, are trained."""
    depth: int | None = None
    """Cut a ViT after this many blocks; the final norm follows. None: all of them."""
    tip: Literal["mbconv", "mlp"] | None = None
    """Of efficientnet-lite0: mbconv trains its last block and head, mlp a residual MLP on its pooled features.
    None: mlp."""
    dim: int | None = None
    """Length of the vectors that `embeddings` takes. None: that of the data set's vectors."""
    engine: Literal["auto", "torch", "onnxruntime"] = field(default="auto", metadata=DOES_NOT_CHANGE_RESULT)
    """What runs the trunk; auto is the faster one on the device."""
    device: str = field(default="cpu", metadata=DOES_NOT_CHANGE_RESULT)
    """Where trunk and tip run, as torch names it: cpu, cuda, cuda:1, mps."""

    def __post_init__(self) -> None:
        name = self.backbone or (DEFAULT_NAME if self.weights is None else None)
        scratch, efficientnet = name in FROM_SCRATCH, name == DEFAULT_NAME
        if name is not None and name not in NAMES:
            raise CampError(f'There is no backbone "{name}"; the names are {", ".join(NAMES)}.')
        if self.resolution is not None and self.resolution < 8:
            raise CampError(f"A resolution of {self.resolution} pixels is too small; give 8 or more.")
        if self.trained_blocks < 1:
            raise CampError(f"trained_blocks is {self.trained_blocks}; at least one block has to be trained.")
        if self.dim is not None and (name != "embeddings" or self.dim < 1):
            raise CampError(
                f"dim is {self.dim} with {name or self.weights}; it is the length, 1 or more, of embeddings' vectors."
            )
        if scratch and self.weights is not None:
            raise CampError(f"{name} is trained from scratch and takes no weights; leave them out.")
        if self.tip is not None and name is not None and not efficientnet:
            raise CampError(f"{name} has one tip; the choice of a tip is for {DEFAULT_NAME}.")
        if self.depth is not None and (scratch or efficientnet):
            raise CampError(f"Only a ViT can be cut at a depth; leave it out for {name}.")
        if self.trained_blocks > 1 and (scratch or (efficientnet and (self.tip or DEFAULT_TIP) != "mbconv")):
            raise CampError(
                f"{name} as asked for has no blocks to count; trained_blocks is for a ViT, "
                f"or for {DEFAULT_NAME} with the tip mbconv."
            )
        if scratch and self.engine == "onnxruntime":
            raise CampError(f"{name} has no frozen trunk for onnxruntime to run; leave the engine at auto.")

    def with_name(self, name: str) -> Self:
        """The same, of the backbone called `name`."""
        return dataclasses.replace(self, backbone=name)

    def with_dim(self, dim: int) -> Self:
        """The same, for vectors of length `dim`."""
        return dataclasses.replace(self, dim=dim)


def check_resolution(resolution: int, step: int, name: str) -> int:
    """`resolution` if it is a multiple of `step` pixels, else a sentence with the nearest two.

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

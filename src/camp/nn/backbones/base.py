"""What a backbone is to the rest: a frozen trunk, run once per view, and a tip, the part that is trained."""

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from camp.data.views import Batch, Field, Trunk
from camp.nn.backbones.engine import OnnxEngine


@dataclass
class Backbone:
    """A network cut in two: pictures -> trunk -> fields, which can be kept -> tip -> features."""

    name: str
    dim: int
    """D, the length of a feature."""
    resolution: int
    """R, side of the square pictures in pixels; 0 where there are no pictures."""
    mean: tuple[float, float, float]
    """Of the normalisation the network expects, for pixels in 0..1."""
    std: tuple[float, float, float]
    fields: tuple[Field, ...]
    """What the tip takes."""
    trunk: Trunk | None
    """Normalised float32 pixels (B, 3, R, R) -> the fields. None: the tip takes the only field as it is,
    "pixels" (B, 3, R, R) or the user's "vector" (B, D)."""
    tip: nn.Module
    """forward(batch) -> features (B, D); only what is trained requires a gradient."""
    fingerprint: str
    """Of the trunk's weights, cut and resolution: equal fingerprints give equal fields."""
    note: str
    """What a reader of its results has to know, or ""."""

    @property
    def device(self) -> torch.device:
        """Device of the tip, and of the trunk unless onnxruntime runs it."""
        return next(self.tip.parameters()).device

    def single_threaded_trunk(self) -> Trunk | None:
        """The trunk for callers that run it in one thread per core."""
        return self.trunk.on_one_core() if isinstance(self.trunk, OnnxEngine) else self.trunk


def fingerprint_of(cut: str, trunk: nn.Module | None = None) -> str:
    """Hash of the words that describe the cut, and of every weight of the trunk."""
    digest = hashlib.blake2b(cut.encode(), digest_size=16)
    if trunk is not None:
        for name, tensor in sorted(trunk.state_dict().items()):
            digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
            digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def restored(batch: Batch, name: str, dtype: torch.dtype = torch.float32) -> Tensor:
    """The field `name` as numbers to compute with, whether it was kept in float32, half precision or int8."""
    values = batch[name].to(dtype)
    scale = batch.get(f"{name}_scale")
    return values if scale is None else values * scale

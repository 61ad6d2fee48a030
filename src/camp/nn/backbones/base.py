"""Backbones: a frozen trunk, which is run once per view, and a trained tip."""

import copy
import hashlib
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from camp.data.views import Batch, Field, Trunk
from camp.nn.backbones.engine import OnnxEngine, TorchEngine


@dataclass
class Backbone:
    """A network in two parts: images -> trunk -> fields, which can be stored -> tip -> features."""

    name: str
    dim: int
    """Feature dimension D."""
    resolution: int
    """Image side R in pixels; 0 if the input is not images."""
    mean: tuple[float, float, float]
    """Mean of the pixel normalisation, for pixels in 0..1."""
    std: tuple[float, float, float]
    """Standard deviation of the pixel normalisation."""
    fields: tuple[Field, ...]
    """Fields that the tip takes."""
    trunk: Trunk | None
    """Function from normalised float32 pixels (B, 3, R, R) to the fields. None: the tip takes
    "pixels" (B, 3, R, R) or the user's "vector" (B, D) directly."""
    tip: nn.Module
    """Module with forward(batch) -> features (B, D); only trained parameters require a gradient."""
    fingerprint: str
    """Hash of the trunk's weights and resolution: equal fingerprints give equal fields."""
    note: str = ""
    """Remark for the reader of results, or ""."""

    @property
    def device(self) -> torch.device:
        """Device of the tip, and of the trunk unless onnxruntime runs it."""
        return next(self.tip.parameters()).device

    def on(self, device: torch.device) -> "Backbone":
        """Return a copy on another device; a trunk that onnxruntime runs stays on the CPU."""
        trunk = self.trunk
        if isinstance(trunk, TorchEngine):
            trunk = TorchEngine(copy.deepcopy(trunk.trunk), device)
        return replace(self, trunk=trunk, tip=copy.deepcopy(self.tip).to(device))

    def single_threaded_trunk(self) -> Trunk | None:
        """Return the trunk for callers that run one thread per core."""
        return self.trunk.single_threaded() if isinstance(self.trunk, OnnxEngine) else self.trunk


def fingerprint_of(description: str, trunk: nn.Module | None = None) -> str:
    """Return a hash of the description and of every weight of the trunk."""
    digest = hashlib.blake2b(description.encode(), digest_size=16)
    if trunk is not None:
        for name, tensor in sorted(trunk.state_dict().items()):
            digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
            digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def dequantize(batch: Batch, name: str, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return the field `name`, stored in float32, half precision or int8 with a scale, as `dtype`."""
    values = batch[name].to(dtype)
    scale = batch.get(f"{name}_scale")
    return values if scale is None else values * scale

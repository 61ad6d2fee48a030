"""Networks on the fake CUDA device: memory format, bfloat16 and export."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from camp.core.errors import CampError
from camp.core.seeds import generator
from camp.data.bank.pipeline import run_trunk
from camp.data.views import Batch
from camp.methods.settings import Training
from camp.methods.trainer import Objective, StepBatch, Trainer, TrainingData, TrainingStep
from camp.nn.backbones import BackboneSettings, make_backbone
from camp.nn.backbones.base import Backbone
from camp.nn.backbones.engine import TorchEngine
from camp.nn.backbones.onnx_trunk import trunk_graph
from fake_cuda import CUDA, FakeCuda, fake_cuda, register_guard

SETTINGS = {
    "vit": BackboneSettings(backbone="vit-s16", weights="random", resolution=32, depth=2),
    "vit-2-blocks": BackboneSettings(
        backbone="vit-s14", weights="random", resolution=28, depth=3, trained_blocks=2
    ),
    "mbconv": BackboneSettings(backbone="efficientnet-lite0", tip="mbconv", resolution=32),
    "mlp": BackboneSettings(backbone="efficientnet-lite0", tip="mlp", resolution=32),
    "embeddings": BackboneSettings(backbone="embeddings", dim=12),
    "resnet18-slim": BackboneSettings(backbone="resnet18-slim", resolution=16),
    "conv-tiny": BackboneSettings(backbone="conv-tiny", resolution=8),
}


@pytest.fixture
def cuda() -> Iterator[FakeCuda]:
    with fake_cuda() as device:
        yield device


def network(name: str, device: str) -> Backbone:
    values = {**vars(SETTINGS[name]), "device": device, "engine": "torch"}
    if SETTINGS[name].backbone in ("embeddings", "resnet18-slim", "conv-tiny"):
        del values["engine"]
    return make_backbone(BackboneSettings(**values), generator(0, "backbone"))


def fields_of(backbone: Backbone, images: int = 4) -> Batch:
    """The input of the tip for some random images or vectors."""
    draw = torch.Generator().manual_seed(1)
    if not backbone.resolution:
        return {"vector": torch.randn(images, backbone.dim, generator=draw).to(backbone.device)}
    pixels = torch.randn(images, 3, backbone.resolution, backbone.resolution, generator=draw)
    return run_trunk(backbone.trunk, pixels.to(backbone.device), batch_size=3)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_network_on_a_gpu_is_the_same_function(name: str, cuda: FakeCuda) -> None:
    here, there = network(name, "cpu"), network(name, "cuda")
    assert there.device == CUDA
    assert there.fingerprint == here.fingerprint
    z = there.tip(fields_of(there))
    assert z.device == CUDA
    torch.testing.assert_close(z.detach().cpu(), here.tip(fields_of(here)), rtol=1e-3, atol=1e-3)


def filters(module: nn.Module) -> list[Tensor]:
    """Weights of convolutions for which the order in memory makes a difference."""
    return [p for p in module.parameters() if p.ndim == 4 and p.shape[1] > 1 and p.shape[2] > 1]


def channels_last(x: Tensor) -> bool:
    return x.is_contiguous(memory_format=torch.channels_last)


def test_convolutions_have_the_format_of_tensor_cores_on_a_gpu(cuda: FakeCuda) -> None:
    for name in ("mbconv", "mlp"):
        backbone = network(name, "cuda")
        assert isinstance(backbone.trunk, TorchEngine)
        weights = [*filters(backbone.trunk.trunk), *filters(backbone.tip)]
        assert weights
        assert all(channels_last(weight) for weight in weights)
        assert not any(channels_last(weight) for weight in filters(network(name, "cpu").trunk.trunk))
        x = torch.zeros(2, 3, 32, 32, device=CUDA)
        assert channels_last(backbone.trunk.trunk.stem(x))
    assert all(channels_last(weight) for weight in filters(network("resnet18-slim", "cuda").tip))


@pytest.mark.parametrize("name", ["vit", "vit-2-blocks", "mbconv", "mlp"])
def test_a_trunk_on_a_gpu_is_written_as_onnx(name: str, cuda: FakeCuda, tmp_path: Path) -> None:
    backbone = network(name, "cuda")
    assert isinstance(backbone.trunk, TorchEngine)
    pixels = torch.randn(2, 3, backbone.resolution, backbone.resolution, generator=torch.Generator())
    expected = backbone.trunk(pixels)
    session = onnxruntime.InferenceSession(trunk_graph(backbone.trunk.trunk, backbone.resolution))
    values = session.run([field.name for field in backbone.fields], {"pixels": pixels.numpy()})
    for field, value in zip(backbone.fields, values):
        torch.testing.assert_close(torch.from_numpy(value), expected[field.name].cpu(), rtol=1e-3, atol=1e-3)


class Nothing(Objective):
    """Heads without parameters."""


class NoStep(TrainingStep):
    """A step that draws nothing."""

    def batches(self, data: TrainingData, batch_size: int, draw: torch.Generator) -> Iterator[StepBatch]:
        yield from ()

    def terms(self, trainer: Trainer, batch: StepBatch, epoch: int) -> dict[str, Tensor]:
        return {}


def trainer_of(tip: nn.Module, arithmetic: str) -> Trainer:
    data = TrainingData(views=None, labels=torch.zeros(4, dtype=torch.long), num_task_images=4)
    settings = Training(arithmetic=arithmetic)
    return Trainer(tip=tip, step=NoStep(Nothing()), data=data, settings=settings, device=CUDA, seeds=(0, 0))


@pytest.mark.parametrize(("supported", "arithmetic"), [(True, "auto"), (False, "full"), (True, "mixed")])
def test_the_tip_trains_in_bfloat16_where_the_gpu_has_it(
    supported: bool, arithmetic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: supported)
    assert trainer_of(nn.Linear(2, 2), arithmetic).mixed == (arithmetic != "full")


class Products(TorchDispatchMode):
    """Notes the types of matrix products and convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.dtypes: list[torch.dtype] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func._schema.name.removeprefix("aten::") in ("mm", "addmm", "bmm", "convolution"):
            self.dtypes.append(result.dtype)
        return result


@pytest.mark.parametrize("name", SETTINGS)
def test_a_tip_runs_under_the_autocast_of_cuda(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward alone: torch without CUDA has no autograd for tensors on `cuda`. The backward pass runs on a CPU in
    `test_mixed_arithmetic_is_near_the_full_one`.
    """
    backbone = network(name, "cpu")
    fields = {key: (x.half() if key == "tokens" else x) for key, x in fields_of(backbone).items()}
    register_guard()
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: True)
    monkeypatch.setattr(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)
    trainer = trainer_of(backbone.tip, "auto")
    with FakeTensorMode(allow_non_fake_inputs=True), Products() as products, torch.no_grad():
        z = trainer.forward(backbone.tip.to(CUDA), {key: x.to(CUDA) for key, x in fields.items()})
        assert (z.device, z.dtype, z.shape) == (CUDA, torch.float32, (4, backbone.dim))
    # Torch's plain attention multiplies in float32; a GPU has a kernel for it.
    plain_attention = {torch.float32} if name == "vit-2-blocks" else set()
    assert set(products.dtypes) == {torch.bfloat16} | plain_attention


def test_onnxruntime_is_refused_on_a_gpu(cuda: FakeCuda) -> None:
    settings = BackboneSettings(
        backbone="vit-s16", weights="random", resolution=32, depth=2, device="cuda", engine="onnxruntime"
    )
    with pytest.raises(CampError, match="on the CPU only"):
        make_backbone(settings, generator(0, "backbone"))

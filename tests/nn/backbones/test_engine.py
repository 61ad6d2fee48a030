"""Both engines give the same fields, at any batch size and from any thread."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from camp.core.errors import CampError
from camp.nn.backbones import efficientnet, vit
from camp.nn.backbones.engine import OnnxEngine, TorchEngine
from camp.nn.backbones.onnx_trunk import trunk_graph
from camp.nn.backbones.registry import run_on
from camp.nn.backbones.weights import load_weights

CPU = torch.device("cpu")
Made = dict[str, tuple[nn.Module, tuple[str, ...]]]


@pytest.fixture(scope="module")
def made() -> Made:
    generator = torch.Generator().manual_seed(0)
    made: Made = {}
    for scaled in (False, True):
        shape = vit.VitShape(dim=128, patch=8, blocks=3, layer_scale=scaled, grid=5)
        state = {
            name: tensor + 0.1 * torch.randn(tensor.shape, generator=generator)
            for name, tensor in vit.random_state(shape, generator).items()
        }
        made[f"vit scaled={scaled}"] = vit.split(state, shape, 64, 3, 1)[0], ("tokens", "cls")
        made[f"vit raw scaled={scaled}"] = vit.split(state, shape, 64, 3, 2)[0], ("tokens", "cls")
    weights = efficientnet.convert_names(load_weights(efficientnet.packaged_weights()), "package")
    made["efficientnet pooled"] = efficientnet.split_pooled(weights), ("vector",)
    made["efficientnet tokens"] = efficientnet.split_last(weights, 64, 1)[0], ("tokens",)
    return made


@pytest.mark.parametrize(
    "name",
    [
        "vit scaled=False",
        "vit scaled=True",
        "vit raw scaled=False",
        "vit raw scaled=True",
        "efficientnet pooled",
        "efficientnet tokens",
    ],
)
def test_engines_agree(made: Made, name: str) -> None:
    trunk, fields = made[name]
    ours, theirs = TorchEngine(trunk, CPU), OnnxEngine(trunk_graph(trunk, 64), fields, threads=2)
    for count in (1, 5):
        pixels = torch.randn(count, 3, 64, 64, generator=torch.Generator().manual_seed(count))
        expected, found = ours(pixels), theirs(pixels)
        assert tuple(found) == tuple(expected) == fields
        for field in fields:
            assert found[field].shape == expected[field].shape
            assert found[field].dtype == torch.float32
            assert (found[field] - expected[field]).norm() < 1e-4 * expected[field].norm()


def test_engines_may_be_called_from_threads(made: Made) -> None:
    trunk, fields = made["vit scaled=True"]
    onnx = OnnxEngine(trunk_graph(trunk, 64), fields, threads=2)
    pixels = torch.randn(6, 1, 3, 64, 64, generator=torch.Generator().manual_seed(3))
    expected = [TorchEngine(trunk, CPU)(one)["tokens"] for one in pixels]
    for engine in (TorchEngine(trunk, CPU), onnx, onnx.single_threaded()):
        with ThreadPoolExecutor(3) as pool:
            found = [batch["tokens"] for batch in pool.map(engine, pixels)]
        for one, other in zip(found, expected):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("engine", ["torch", "onnxruntime"])
def test_fields_can_be_trained_on(made: Made, engine: str) -> None:
    trunk, fields = made["efficientnet pooled"]
    vector = run_on(trunk, 64, fields, engine, CPU)(torch.zeros(2, 3, 64, 64))["vector"]  # type: ignore[arg-type]
    layer = nn.Linear(1280, 1)
    layer(vector).sum().backward()
    assert not vector.requires_grad
    assert layer.weight.grad is not None


def test_auto_is_onnxruntime_on_a_cpu(made: Made) -> None:
    trunk, fields = made["efficientnet pooled"]
    assert isinstance(run_on(trunk, 64, fields, "auto", CPU), OnnxEngine)
    assert isinstance(run_on(trunk, 64, fields, "auto", torch.device("meta")), TorchEngine)


def test_onnxruntime_runs_on_cpus_only(made: Made) -> None:
    trunk, fields = made["efficientnet pooled"]
    with pytest.raises(CampError, match="on the CPU only"):
        run_on(trunk, 64, fields, "onnxruntime", torch.device("cuda"))

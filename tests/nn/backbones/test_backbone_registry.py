"""Every backbone by its settings."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from camp.core.errors import CampError
from camp.nn.backbones import make_backbone
from camp.nn.backbones.base import Backbone
from camp.nn.backbones.efficientnet import packaged_weights
from camp.nn.backbones.settings import BackboneSettings
from camp.nn.backbones.vit import VitShape, random_state

TINY = VitShape(dim=64, patch=8, blocks=3, grid=4)


@pytest.fixture(scope="module")
def tiny_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("weights") / "tiny.safetensors"
    save_file(random_state(TINY, torch.Generator().manual_seed(0)), path)
    return str(path)


def made(seed: int = 0, **settings: object) -> Backbone:
    return make_backbone(BackboneSettings(**settings), torch.Generator().manual_seed(seed))  # type: ignore[arg-type]


def features(backbone: Backbone) -> torch.Tensor:
    generator = torch.Generator().manual_seed(9)
    side = backbone.resolution
    if backbone.trunk is not None:
        batch = backbone.trunk(torch.randn(3, 3, side, side, generator=generator))
    else:
        batch = {field.name: torch.randn(3, *field.shape, generator=generator) for field in backbone.fields}
    for field in backbone.fields:
        assert batch[field.name].shape == (3, *field.shape)
    return backbone.tip(batch)


@pytest.mark.parametrize(
    ("settings", "dim"),
    [
        ({"resolution": 64}, 1280),
        ({"backbone": "efficientnet-lite0", "tip": "mbconv", "resolution": 64}, 1280),
        ({"backbone": "efficientnet-lite0", "tip": "mbconv", "trained_blocks": 6, "resolution": 64}, 1280),
        ({"weights": "TINY", "resolution": 48}, 64),
        ({"weights": "TINY", "resolution": 32, "depth": 2, "trained_blocks": 2}, 64),
        ({"backbone": "resnet18"}, 512),
        ({"backbone": "resnet18", "resolution": 96}, 512),
        ({"backbone": "conv-tiny"}, 128),
        ({"backbone": "conv-tiny", "resolution": 28}, 128),
        ({"backbone": "embeddings", "dim": 7}, 7),
    ],
)
def test_every_backbone(settings: dict[str, object], dim: int, tiny_file: str) -> None:
    settings = {name: tiny_file if value == "TINY" else value for name, value in settings.items()}
    torch.manual_seed(123)
    backbone = made(0, **settings)
    z = features(backbone)
    assert z.shape == (3, dim)
    assert backbone.dim == dim
    assert torch.isfinite(z).all()
    z.square().sum().backward()
    trained = [parameter for parameter in backbone.tip.parameters() if parameter.requires_grad]
    assert trained
    assert all(parameter.grad is not None for parameter in trained)

    torch.manual_seed(321)  # of which nothing may depend
    again = made(0, **settings)
    assert again.fingerprint == backbone.fingerprint
    torch.testing.assert_close(features(again), z)


@pytest.mark.parametrize("name", ["resnet18", "conv-tiny"])
def test_seeds_differ(name: str) -> None:
    assert not torch.equal(features(made(0, backbone=name)), features(made(1, backbone=name)))


@pytest.mark.parametrize("settings", [{"resolution": 64}, {"backbone": "embeddings", "dim": 9}])
def test_the_residual_mlp_starts_as_the_identity_at_the_scale_of_dino(settings: dict[str, object]) -> None:
    backbone = made(0, **settings)
    vector = torch.randn(4, backbone.dim, generator=torch.Generator().manual_seed(1))
    normed = torch.nn.functional.layer_norm(
        vector, vector.shape[1:]
    )  # EfficientNet's features are normalised
    expected = 4.8 * (vector if settings.get("backbone") == "embeddings" else normed)
    torch.testing.assert_close(backbone.tip({"vector": vector}), expected)
    (backbone.tip({"vector": vector}) * torch.linspace(-1, 1, backbone.dim)).sum().backward()
    gradients = {name: parameter.grad for name, parameter in backbone.tip.named_parameters()}
    assert gradients["fc2.weight"] is not None
    assert gradients["fc2.weight"].abs().sum() > 0


def test_features_have_the_scale_of_dino_whatever_that_of_the_vectors() -> None:
    vectors = 0.01 * torch.randn(50, 16, generator=torch.Generator().manual_seed(1))
    settings = BackboneSettings(backbone="embeddings").with_vectors(vectors.numpy())
    backbone = make_backbone(settings, torch.Generator().manual_seed(0))
    rms = backbone.tip({"vector": vectors}).square().mean().sqrt()
    torch.testing.assert_close(rms, torch.tensor(4.8))
    assert settings.vector_rms is not None
    assert settings.with_vectors(vectors.numpy() * 7).vector_rms == settings.vector_rms  # once set it stays


@pytest.mark.parametrize("settings", [{"resolution": 64}, {"resolution": 64, "tip": "mbconv"}])
def test_weights_of_version_0_1_0_have_features_without_a_gain(settings: dict[str, object]) -> None:
    backbone = made(0, **settings)
    z = features(backbone)
    older = {n: v for n, v in backbone.tip.state_dict().items() if n not in ("gain", "input_rms")}
    backbone.tip.load_state_dict(older)
    torch.testing.assert_close(features(backbone), z / 4.8)


def test_efficientnet_is_the_default_and_notes_its_training_data() -> None:
    backbone = made(resolution=64)
    assert backbone.name == "efficientnet-lite0"
    assert backbone.note == "EfficientNet-Lite0 was trained with ImageNet's labels."
    black, white = torch.zeros(3), torch.ones(3)
    mean, std = torch.tensor(backbone.mean), torch.tensor(backbone.std)
    torch.testing.assert_close((black - mean) / std, torch.full((3,), -127 / 128))
    torch.testing.assert_close((white - mean) / std, torch.full((3,), 1.0))


def test_a_named_efficientnet_file() -> None:
    assert made(weights=packaged_weights(), resolution=64).fingerprint == made(resolution=64).fingerprint


def test_fingerprints_tell_trunks_apart(tiny_file: str, tmp_path: Path) -> None:
    other = str(tmp_path / "other.safetensors")
    save_file(random_state(TINY, torch.Generator().manual_seed(1)), other)
    backbones = [
        made(weights=tiny_file, resolution=32),
        made(weights=other, resolution=32),
        made(weights=tiny_file, resolution=48),
        made(weights=tiny_file, resolution=32, depth=2),
        made(weights=tiny_file, resolution=32, trained_blocks=2),
        made(resolution=64),
        made(resolution=96),
        made(resolution=64, tip="mbconv"),
        made(backbone="resnet18"),
        made(backbone="conv-tiny"),
    ]
    assert len({backbone.fingerprint for backbone in backbones}) == len(backbones)


def test_the_engine_is_no_part_of_the_fingerprint(tiny_file: str) -> None:
    prints = {
        made(weights=tiny_file, resolution=32, engine=engine).fingerprint
        for engine in ("torch", "onnxruntime")
    }
    assert len(prints) == 1


def test_a_truncated_vit_is_noted(tiny_file: str) -> None:
    assert made(weights=tiny_file, resolution=32, depth=2).note == "vit-64d8 was cut after block 2 of 3."
    assert made(weights=tiny_file, resolution=32).note == ""


@pytest.mark.slow
def test_random_vit_small() -> None:
    backbone = made(backbone="vit-s16", weights="random", resolution=64)
    assert features(backbone).shape == (3, 384)
    assert backbone.note == "vit-s16 had random weights."


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"backbone": "vgg"}, 'There is no backbone "vgg"'),
        ({"trained_blocks": 0}, "at least one block"),
        ({"resolution": 4}, "too small"),
        ({"resolution": 100}, "multiple of 32 pixels, not 100; the nearest are 96 and 128"),
        ({"resolution": 20}, "the nearest are 32 and 64"),
        ({"weights": "TINY", "resolution": 50}, "multiple of 8 pixels, not 50; the nearest are 48 and 56"),
        ({"weights": "TINY", "depth": 4}, "has 3 blocks and cannot be cut after block 4"),
        ({"weights": "TINY", "depth": 0}, "cannot be cut after block 0"),
        ({"weights": "TINY", "depth": 2, "trained_blocks": 3}, "3 trained blocks are more than the 2"),
        ({"weights": "TINY", "tip": "mlp"}, "vit-64d8 has one tip"),
        ({"weights": "TINY", "backbone": "vit-s16"}, "are of vit-64d8, not of vit-s16"),
        ({"weights": "TINY", "backbone": "efficientnet-lite0"}, "are of vit-64d8, not of efficientnet-lite0"),
        ({"weights": "LITE0", "backbone": "vit-s16"}, "are of efficientnet-lite0, not of vit-s16"),
        ({"weights": "LITE0", "depth": 11}, "Only a ViT can be truncated"),
        ({"depth": 11}, "Only a ViT can be truncated"),
        ({"trained_blocks": 2}, "no trainable blocks"),
        ({"tip": "mbconv", "trained_blocks": 17}, "has 16 blocks"),
        ({"weights": "random"}, "Only a ViT"),
        ({"backbone": "resnet18", "weights": "x.pth"}, "takes no weights"),
        ({"backbone": "resnet18", "tip": "mlp"}, "resnet18 has one tip"),
        ({"backbone": "conv-tiny", "engine": "onnxruntime"}, "no frozen trunk"),
        ({"backbone": "embeddings"}, "needs dim"),
        ({"backbone": "embeddings", "dim": 0}, "1 or more"),
        ({"backbone": "resnet18", "dim": 5}, "length"),
        ({"backbone": "conv-tiny", "device": "toaster"}, 'no device "toaster"'),
    ],
)
def test_contradictions_get_sentences(settings: dict[str, object], sentence: str, tiny_file: str) -> None:
    files = {"TINY": tiny_file, "LITE0": packaged_weights()}
    with pytest.raises(CampError, match=sentence):
        made(**{name: files.get(str(value), value) for name, value in settings.items()})


@pytest.mark.parametrize("engine", ["torch", "onnxruntime"])
def test_a_backbone_that_is_sent_or_copied_computes_the_same(engine: str, tiny_file: str) -> None:
    backbone = made(weights=tiny_file, resolution=32, engine=engine)
    pixels = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    expected = backbone.tip(backbone.trunk(pixels))
    copied = backbone.on(torch.device("cpu"))
    sent = pickle.loads(pickle.dumps(backbone))  # as Ray does it between its processes
    for other in (copied, sent):
        assert torch.equal(other.tip(other.trunk(pixels)), expected)
        assert other.fingerprint == backbone.fingerprint
    for tensor in copied.tip.state_dict().values():
        tensor.zero_()
    if engine == "torch":
        for tensor in copied.trunk.trunk.state_dict().values():
            tensor.zero_()
    assert torch.equal(backbone.tip(backbone.trunk(pixels)), expected)


def test_settings_are_imported_without_torch() -> None:
    code = "import sys, camp.nn.backbones.settings; sys.exit('torch' in sys.modules or 'onnxruntime' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

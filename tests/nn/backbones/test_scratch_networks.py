"""Networks without a trunk."""

import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits

from camp.nn.backbones import BackboneSettings, make_backbone
from camp.nn.backbones.conv_tiny import ConvTiny
from camp.nn.backbones.resnet import ResNet18


def weights_of(network: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def test_resnet18_has_the_known_number_of_weights() -> None:
    generator = torch.Generator().manual_seed(0)
    # 11,689,512 with the classifier of 1000 classes; the small stem has 3 x 3 instead of 7 x 7 kernels.
    assert weights_of(ResNet18(224, 64, generator)) == 11_689_512 - 513_000
    assert weights_of(ResNet18(32, 64, generator)) == 11_689_512 - 513_000 - 64 * 3 * (49 - 9)


def test_slim_resnet18_has_the_weights_of_its_widths() -> None:
    """Counted by hand: w^2 (9 k) a convolution, 1 x 1 shortcuts between stages, two numbers a channel of a norm."""
    w = 20
    convolutions = 27 * w + 9 * w * w * (4 + (2 + 3 * 4) + (8 + 3 * 16) + (32 + 3 * 64))
    shortcuts = w * w * (2 + 8 + 32)
    norms = 2 * w * (1 + 4 + 5 * 2 + 5 * 4 + 5 * 8)
    slim = make_backbone(BackboneSettings(backbone="resnet18-slim"), torch.Generator().manual_seed(0))
    assert weights_of(slim.tip) == convolutions + shortcuts + norms
    assert slim.dim == 160
    assert slim.tip({"pixels": torch.zeros(2, 3, 32, 32)}).shape == (2, 160)


def test_the_layout_in_memory_changes_nothing() -> None:
    network = ResNet18(16, 8, torch.Generator().manual_seed(0)).eval()
    pixels = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    plain = {name: value.contiguous() for name, value in network.state_dict().items()}
    channels_last = network({"pixels": pixels})
    network.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    network.load_state_dict(plain)
    torch.testing.assert_close(network({"pixels": pixels}), channels_last)


@pytest.mark.parametrize(("resolution", "side"), [(32, 4), (64, 8), (96, 3), (224, 7)])
def test_resnet18_picks_its_stem(resolution: int, side: int) -> None:
    network = ResNet18(resolution, 64, torch.Generator().manual_seed(0)).eval()
    with torch.no_grad():
        maps = network.blocks(network.stem(torch.zeros(1, 3, resolution, resolution)))
    assert maps.shape == (1, 512, side, side)


def test_conv_tiny_is_small() -> None:
    assert 50_000 < weights_of(ConvTiny(torch.Generator().manual_seed(0))) < 100_000


def test_conv_tiny_does_not_depend_on_the_batch() -> None:
    network = ConvTiny(torch.Generator().manual_seed(0))
    pixels = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(
        network.train()({"pixels": pixels})[:1], network.eval()({"pixels": pixels[:1]})
    )


def test_conv_tiny_learns_digits() -> None:
    digits = load_digits()
    images = torch.from_numpy(digits.images).float()[:, None] / 8 - 1
    pixels = F.interpolate(images, size=(16, 16), mode="bilinear").expand(-1, 3, -1, -1)
    classes = torch.from_numpy(digits.target)
    generator = torch.Generator().manual_seed(0)
    network = ConvTiny(generator)
    head = torch.zeros(10, 128, requires_grad=True)
    optimizer = torch.optim.AdamW([*network.parameters(), head], lr=2e-3)
    order = torch.randperm(len(pixels), generator=generator)
    train, test = order[:300], order[300:]
    for _ in range(8):
        for rows in train[torch.randperm(300, generator=generator)].split(60):
            loss = F.cross_entropy(network({"pixels": pixels[rows]}) @ head.T, classes[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        features = network({"pixels": pixels})
    means = torch.stack([features[train][classes[train] == c].mean(dim=0) for c in range(10)])
    found = torch.cdist(features[test], means).argmin(dim=1)
    assert (found == classes[test]).float().mean() > 0.9

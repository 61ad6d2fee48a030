"""Distillers: architectures as in the authors' code, and initialization from the generator."""

import pytest
import torch
import torch.nn.functional as F

from camp.core.errors import CampError
from camp.nn.distillers import DISTILLERS, make_distiller
from camp.nn.init import init_default_, trunc_normal_


def draw(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def count(network: torch.nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


def test_none_and_fd() -> None:
    assert make_distiller("none", 8, draw()) is None
    fd = make_distiller("fd", 8, draw())
    z = torch.randn(5, 8)
    assert fd is not None
    assert torch.equal(fd(z), z)
    assert count(fd) == 0


def test_sizes_at_the_papers_width() -> None:
    sizes = {name: count(make_distiller(name, 384, draw())) for name in ("linear", "mlp", "trex")}  # type: ignore[arg-type]
    assert sizes["linear"] == 384 * 384 + 384
    assert sizes["mlp"] == 296_448 == 2 * (384 * 384 + 384) + 2 * 384
    assert sizes["trex"] == 384 * 768 + 768 + 2 * 768 + 768 * 384 + 384


def test_mlp_is_linear_norm_relu_linear() -> None:
    network = make_distiller("mlp", 6, draw())
    assert network is not None
    p = dict(network.named_parameters())
    w1, b1, gain, shift, w2, b2 = p.values()
    z = torch.randn(9, 6, generator=draw(1))
    hidden = z @ w1.T + b1
    normed = (hidden - hidden.mean(0)) / (hidden.var(0, unbiased=False) + 1e-5).sqrt() * gain + shift
    assert torch.allclose(network.train()(z), normed.clamp(min=0) @ w2.T + b2, atol=1e-5)


def test_trex_has_normalised_outputs() -> None:
    network = make_distiller("trex", 6, draw())
    assert network is not None
    w1, b1, gain, shift, w2, b2 = network.parameters()
    assert w1.shape == (12, 6)
    z = 10 * torch.randn(9, 6, generator=draw(1))
    hidden = F.normalize(z, dim=1) @ w1.T + b1
    normed = (hidden - hidden.mean(0)) / (hidden.var(0, unbiased=False) + 1e-5).sqrt() * gain + shift
    out = F.gelu(normed) @ w2.T + b2
    assert torch.allclose(network.train()(z), out / out.norm(dim=1, keepdim=True), atol=1e-5)


@pytest.mark.parametrize("name", ["linear", "mlp", "trex"])
def test_weights_come_from_the_generator_alone(name: str) -> None:
    states = []
    for global_seed, seed in ((1, 5), (2, 5), (2, 6)):
        torch.manual_seed(global_seed)
        network = make_distiller(name, 7, draw(seed))
        assert network is not None
        states.append(torch.cat([p.detach().flatten() for p in network.parameters()]))
    assert torch.equal(states[0], states[1])
    assert not torch.equal(states[1], states[2])


def test_default_initialisation_has_torchs_distribution() -> None:
    layer = init_default_(torch.nn.Linear(400, 300), draw())
    bound = 400**-0.5
    for value in (layer.weight, layer.bias):
        assert value.abs().max() <= bound
        assert value.abs().max() > 0.98 * bound
        assert value.mean().abs() < 0.1 * bound
    assert layer.weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.01)
    conv = init_default_(torch.nn.Conv2d(3, 64, 5, bias=False), draw())
    assert conv.weight.std().item() == pytest.approx((3 * 25) ** -0.5 / 3**0.5, rel=0.02)


def test_trunc_normal() -> None:
    weight = trunc_normal_(torch.empty(300, 300), 0.02, draw())
    assert weight.std().item() == pytest.approx(0.02, rel=0.02)
    assert torch.equal(weight, trunc_normal_(torch.empty(300, 300), 0.02, draw()))


def test_unknown_name() -> None:
    with pytest.raises(CampError, match=r"none, fd, linear, mlp, trex"):
        make_distiller("resnet", 8, draw())
    assert list(DISTILLERS) == ["none", "fd", "linear", "mlp", "trex"]

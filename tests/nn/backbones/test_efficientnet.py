"""EfficientNet-Lite0 with its real weights: trunk and tip equal the whole network."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from camp.core.errors import CampError
from camp.nn.backbones import efficientnet
from camp.nn.backbones.efficientnet import convert_names, packaged_weights, split_last, split_pooled
from camp.nn.backbones.weights import State, load_weights

STAGES = ((1, 1, 3), (2, 2, 3), (2, 2, 5), (3, 2, 3), (3, 1, 5), (4, 2, 5), (1, 1, 3))
"""Blocks, stride of the first, kernel."""


@pytest.fixture(scope="module")
def published() -> State:
    return load_weights(packaged_weights())


@pytest.fixture(scope="module")
def pixels() -> Tensor:
    return torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def plain_network(x: Tensor, state: State) -> Tensor:
    """The uncut network over the published names: convolution, then batch norm, then ReLU6, at (B, 3, R, R)."""

    def layer(x: Tensor, conv: str, norm: str, stride: int = 1) -> Tensor:
        weight = state[f"{conv}.weight"]
        kernel = weight.shape[-1]
        groups = x.shape[1] // weight.shape[1]
        extra = kernel - stride if x.shape[-1] % stride == 0 else kernel - x.shape[-1] % stride
        x = F.pad(x, (extra // 2, extra - extra // 2) * 2)
        x = F.conv2d(x, weight, None, stride, groups=groups)
        running = [state[f"{norm}.{part}"] for part in ("running_mean", "running_var", "weight", "bias")]
        return F.batch_norm(x, *running, training=False, eps=1e-3)

    x = layer(x, "_conv_stem", "_bn0", 2).clamp(0, 6)
    index = 0
    for blocks, first_stride, _ in STAGES:
        for position in range(blocks):
            name, stride, before = f"_blocks.{index}.", 1 if position else first_stride, x
            if index:
                x = layer(x, f"{name}_expand_conv", f"{name}_bn0").clamp(0, 6)
            x = layer(x, f"{name}_depthwise_conv", f"{name}_bn1", stride).clamp(0, 6)
            x = layer(x, f"{name}_project_conv", f"{name}_bn2")
            x = x + before if x.shape == before.shape else x
            index += 1
    return layer(x, "_conv_head", "_bn1").clamp(0, 6).mean(dim=(2, 3))


def doubled(state: State) -> State:
    return {name: tensor.double() for name, tensor in state.items()}


def test_kernels_are_those_of_the_paper(published: State) -> None:
    kernels = [kernel for blocks, _, kernel in STAGES for _ in range(blocks)]
    found = [published[f"_blocks.{index}._depthwise_conv.weight"].shape[-1] for index in range(16)]
    assert kernels == found == [shape.kernel for shape in efficientnet.block_shapes()]


def test_pooled_trunk_is_the_uncut_network(published: State, pixels: Tensor) -> None:
    state = doubled(published)
    trunk = split_pooled(convert_names(state, "file"))
    torch.testing.assert_close(trunk(pixels)["vector"], plain_network(pixels, state))
    assert not any(parameter.requires_grad for parameter in trunk.parameters())


@pytest.mark.parametrize("trained", [1, 3])
def test_trunk_and_tip_are_the_uncut_network(published: State, pixels: Tensor, trained: int) -> None:
    state = doubled(published)
    trunk, tip, field = split_last(convert_names(state, "file"), 64, trained)
    batch = trunk(pixels)
    assert batch["tokens"].shape[1:] == field.shape == (4, 192)
    features = tip(batch)
    uneven = torch.linspace(-1, 1, features.shape[1], dtype=features.dtype)  # a norm fixes the sum of squares
    (features * uneven).sum().backward()

    places = ("_conv_head.", "_bn1.", *(f"_blocks.{index}." for index in range(16 - trained, 16)))
    learned = [name for name in state if name.startswith(places) and name.endswith(("weight", "bias"))]
    for name in learned:
        state[name].requires_grad_(True)
    expected = tip.gain * torch.nn.functional.layer_norm(plain_network(pixels, state), (1280,))
    (expected * uneven).sum().backward()
    torch.testing.assert_close(features, expected)
    gradients = {name: parameter.grad for name, parameter in tip.named_parameters()}
    assert len(gradients) == len(learned)
    last = "_blocks.15."
    pairs = {
        "head.weight": "_conv_head.weight",
        "head.gain": "_bn1.weight",
        "head.bias": "_bn1.bias",
        f"blocks.{trained - 1}.expand.weight": f"{last}_expand_conv.weight",
        f"blocks.{trained - 1}.expand.gain": f"{last}_bn0.weight",
        f"blocks.{trained - 1}.depthwise.weight": f"{last}_depthwise_conv.weight",
        f"blocks.{trained - 1}.depthwise.bias": f"{last}_bn1.bias",
        f"blocks.{trained - 1}.project.weight": f"{last}_project_conv.weight",
        "blocks.0.expand.weight": f"_blocks.{16 - trained}._expand_conv.weight",
        "blocks.0.project.gain": f"_blocks.{16 - trained}._bn2.weight",
    }
    for ours, theirs in pairs.items():
        torch.testing.assert_close(gradients[ours], state[theirs].grad)


def test_norms_do_not_use_batch_statistics(published: State) -> None:
    _, tip, field = split_last(convert_names(published, "file"), 64, 1)
    tokens = torch.rand(4, *field.shape, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(tip.train()({"tokens": tokens})[:2], tip.eval()({"tokens": tokens[:2]}))


def test_kept_tokens_give_nearly_the_same_features(published: State) -> None:
    _, tip, field = split_last(convert_names(published, "file"), 64, 1)
    tokens = torch.randn(4, *field.shape, generator=torch.Generator().manual_seed(2))
    scale = tokens.abs().amax(dim=-1, keepdim=True) / 127
    exact = tip({"tokens": tokens})
    for kept in (
        {"tokens": tokens.half()},
        {"tokens": (tokens / scale).round().to(torch.int8), "tokens_scale": scale},
    ):
        assert 0 < (tip(kept) - exact).norm() < 0.05 * exact.norm()


def test_a_file_that_lacks_a_tensor_is_refused(published: State) -> None:
    partial = {name: tensor for name, tensor in published.items() if name != "_conv_head.weight"}
    with pytest.raises(CampError, match=r"my\.pth does not fit efficientnet-lite0: it lacks head\.weight\."):
        convert_names(partial, "my.pth")

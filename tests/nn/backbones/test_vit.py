"""Trunk and tip of the ViT against an independent implementation of the whole network."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from camp.nn.backbones import vit
from camp.nn.backbones.vit import VitShape, attended_mean, split

SMALL = VitShape(dim=128, patch=4, blocks=4, grid=3)
SCALED = VitShape(dim=128, patch=4, blocks=4, layer_scale=True, grid=3)


def weights(shape: VitShape, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    """Weights in which nothing is zero or one, so that no gain, bias or scale can be forgotten unseen."""
    generator = torch.Generator().manual_seed(0)
    state = vit.random_state(shape, generator)
    return {
        name: (tensor + 0.2 * torch.randn(tensor.shape, generator=generator)).to(dtype)
        for name, tensor in state.items()
    }


def layer_norm(x: Tensor, state: dict[str, Tensor], name: str) -> Tensor:
    centred = x - x.mean(dim=-1, keepdim=True)
    spread = torch.sqrt(centred.square().mean(dim=-1, keepdim=True) + 1e-6)
    return centred / spread * state[f"{name}.weight"] + state[f"{name}.bias"]


def plain_block(x: Tensor, state: dict[str, Tensor], prefix: str) -> Tensor:
    """softmax(Q K^T / sqrt(d)) V over all tokens, head by head."""
    dim = x.shape[-1]
    qkv = (
        layer_norm(x, state, f"{prefix}norm1") @ state[f"{prefix}attn.qkv.weight"].T
        + state[f"{prefix}attn.qkv.bias"]
    )
    heads = []
    for first in range(0, dim, 64):
        q, k, v = (qkv[..., part + first : part + first + 64] for part in (0, dim, 2 * dim))
        heads.append(torch.softmax(q @ k.transpose(1, 2) / math.sqrt(64), dim=-1) @ v)
    y = torch.cat(heads, dim=-1) @ state[f"{prefix}attn.proj.weight"].T + state[f"{prefix}attn.proj.bias"]
    x = x + y * state.get(f"{prefix}ls1.gamma", 1.0)
    y = (
        layer_norm(x, state, f"{prefix}norm2") @ state[f"{prefix}mlp.fc1.weight"].T
        + state[f"{prefix}mlp.fc1.bias"]
    )
    y = y * 0.5 * (1 + torch.erf(y / math.sqrt(2)))
    y = y @ state[f"{prefix}mlp.fc2.weight"].T + state[f"{prefix}mlp.fc2.bias"]
    return x + y * state.get(f"{prefix}ls2.gamma", 1.0)


def plain_vit(pixels: Tensor, state: dict[str, Tensor], depth: int) -> Tensor:
    """The whole network at the resolution its position embeddings were made for."""
    kernel = state["patch_embed.proj.weight"]
    dim, _, patch, _ = kernel.shape
    rows = [
        (pixels[:, :, top : top + patch, left : left + patch].flatten(1) @ kernel.flatten(1).T)
        for top in range(0, pixels.shape[2], patch)
        for left in range(0, pixels.shape[3], patch)
    ]
    patches = torch.stack(rows, dim=1) + state["patch_embed.proj.bias"]
    x = torch.cat([state["cls_token"].expand(len(pixels), 1, dim), patches], dim=1) + state["pos_embed"]
    for index in range(depth):
        x = plain_block(x, state, f"blocks.{index}.")
    return layer_norm(x[:, 0], state, "norm")


@pytest.mark.parametrize("shape", [SMALL, SCALED])
@pytest.mark.parametrize(("depth", "trained"), [(4, 1), (3, 1), (4, 2), (3, 3)])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 2e-4)])
def test_trunk_and_tip_are_the_plain_network(
    shape: VitShape, depth: int, trained: int, dtype: torch.dtype, tolerance: float
) -> None:
    state = weights(shape, dtype)
    generator = torch.Generator().manual_seed(1)
    pixels = torch.randn(5, 3, 12, 12, generator=generator, dtype=dtype)
    target = torch.randn(5, shape.dim, generator=generator, dtype=dtype)

    trunk, tip = split(state, shape, 12, depth, trained)
    features = tip(trunk(pixels))
    ((features - target) ** 2).sum().backward()

    learned = {
        name
        for name in state
        if name.startswith("blocks.") and int(name.split(".")[1]) in range(depth - trained, depth)
    }
    for name in learned:
        state[name].requires_grad_(True)
    expected = plain_vit(pixels, state, depth)
    ((expected - target) ** 2).sum().backward()

    def close(ours: Tensor, theirs: Tensor) -> None:
        torch.testing.assert_close(
            ours, theirs, rtol=tolerance, atol=tolerance * float(theirs.detach().abs().max() + 1)
        )

    close(features, expected)
    ours = {name: parameter for name, parameter in tip.named_parameters() if parameter.requires_grad}
    assert len(ours) == len(learned)
    for name, parameter in ours.items():
        _, index, rest = name.split(".", 2)
        assert parameter.grad is not None
        gradient = state[f"blocks.{int(index) + depth - trained}.{rest}"].grad
        assert gradient is not None
        close(parameter.grad, gradient)


def test_only_the_last_block_is_trained() -> None:
    trunk, tip = split(weights(SCALED), SCALED, 12, 4, 1)
    assert not any(parameter.requires_grad for parameter in trunk.parameters())
    frozen = {name for name, parameter in tip.named_parameters() if not parameter.requires_grad}
    assert frozen == {"norm.weight", "norm.bias"}


def test_vit_small_trains_as_many_weights_as_the_reference() -> None:
    shape = vit.SHAPES["vit-s16"]
    with torch.device("meta"):
        tip = vit.VitTip(shape, 1)
    assert sum(parameter.numel() for parameter in tip.blocks.parameters()) == 1_774_464


def test_training_does_not_change_the_checkpoint() -> None:
    state = weights(SMALL)
    before = {name: tensor.clone() for name, tensor in state.items()}
    _, tip = split(state, SMALL, 12, 4, 1)
    with torch.no_grad():
        for parameter in tip.parameters():
            parameter.add_(1.0)
    assert all(torch.equal(state[name], before[name]) for name in state)


def test_tokens_are_normalised_for_one_trained_block_and_raw_for_more() -> None:
    state = weights(SMALL)
    pixels = torch.randn(2, 3, 12, 12, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    one, _ = split(state, SMALL, 12, 3, 1)
    more, _ = split(state, SMALL, 12, 4, 2)
    raw = more(pixels)["tokens"]
    torch.testing.assert_close(one(pixels)["tokens"], F.layer_norm(raw, (128,), eps=1e-6))
    torch.testing.assert_close(one(pixels)["cls"], raw[:, 0])


@pytest.mark.parametrize("trained", [1, 2])
@pytest.mark.parametrize(("kept", "tolerance"), [("float16", 5e-3), ("int8", 1e-1)])
def test_kept_tokens_give_nearly_the_same_features(trained: int, kept: str, tolerance: float) -> None:
    trunk, tip = split(weights(SMALL, torch.float32), SMALL, 12, 4, trained)
    batch = trunk(torch.randn(6, 3, 12, 12, generator=torch.Generator().manual_seed(3)))
    compact = dict(batch)
    if kept == "float16":
        compact["tokens"] = batch["tokens"].half()
    else:
        compact["tokens_scale"] = batch["tokens"].abs().amax(dim=-1, keepdim=True) / 127
        compact["tokens"] = (batch["tokens"] / compact["tokens_scale"]).round().to(torch.int8)
    exact, near = tip(batch), tip(compact)
    assert near.dtype == torch.float32
    error = (near - exact).norm() / exact.norm()
    assert 0 < error < tolerance


def attended_mean_oracle(u: Tensor, x: Tensor) -> Tensor:
    out = torch.zeros_like(u)
    for view in range(u.shape[0]):
        for head in range(u.shape[1]):
            weight = torch.exp(x[view] @ u[view, head])
            out[view, head] = (weight[:, None] * x[view]).sum(dim=0) / weight.sum()
    return out


@pytest.mark.parametrize("views", [0, 1, 7])
@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_attended_mean_in_chunks(views: int, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vit, "CHUNK_BYTES", chunk * 4 * 5 * 8)
    generator = torch.Generator().manual_seed(4)
    u = torch.randn(views, 2, 8, generator=generator, dtype=torch.float64)
    x = torch.randn(views, 5, 8, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(attended_mean(u, x), attended_mean_oracle(u, x))


@pytest.mark.parametrize("kept", [torch.float64, torch.float16, torch.int8])
def test_attended_mean_has_the_right_gradient(kept: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vit, "CHUNK_BYTES", 2 * 4 * 5 * 8)
    generator = torch.Generator().manual_seed(5)
    u = torch.randn(3, 2, 8, generator=generator, dtype=torch.float64, requires_grad=True)
    x = torch.randn(3, 5, 8, generator=generator, dtype=torch.float64)
    scale = None
    if kept == torch.int8:
        x, scale = (x * 30).round(), torch.rand(3, 5, 1, generator=generator, dtype=torch.float64) / 20
    x = x.to(kept)
    assert torch.autograd.gradcheck(lambda u: attended_mean(u, x, scale), (u,))
    assert torch.autograd.gradgradcheck(lambda u: attended_mean(u, x, scale), (u,))
    whole = x.double() if scale is None else x.double() * scale
    torch.testing.assert_close(attended_mean(u, x, scale), attended_mean_oracle(u, whole))


def test_attended_mean_gives_tokens_a_gradient_if_required() -> None:
    generator = torch.Generator().manual_seed(6)
    u = torch.randn(2, 2, 8, generator=generator, dtype=torch.float64, requires_grad=True)
    x = torch.randn(2, 5, 8, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(attended_mean, (u, x))


def cubic_weights(given: int, side: int) -> Tensor:
    """(side, given): cubic convolution (Keys 1981) with a = -0.75, its border repeated."""
    a = -0.75
    weights = torch.zeros(side, given, dtype=torch.float64)
    for position in range(side):
        source = (position + 0.5) * given / side - 0.5
        for tap in range(math.floor(source) - 1, math.floor(source) + 3):
            x = abs(source - tap)
            near = (a + 2) * x**3 - (a + 3) * x**2 + 1
            far = a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a
            weights[position, min(max(tap, 0), given - 1)] += near if x <= 1 else far
    return weights


@pytest.mark.parametrize("side", [3, 8, 12])
def test_position_embeddings_are_interpolated(side: int) -> None:
    given = torch.randn(1, 1 + 6 * 6, 2, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    assert torch.equal(vit.interpolate_positions(given, 6), given)
    found = vit.interpolate_positions(given, side)
    assert torch.equal(found[:, 0], given[:, 0])
    weights = cubic_weights(6, side)
    expected = torch.einsum("pi,qj,ijd->pqd", weights, weights, given[0, 1:].unflatten(0, (6, 6)))
    torch.testing.assert_close(found[0, 1:], expected.flatten(0, 1))


def test_other_resolution_has_its_own_number_of_tokens() -> None:
    trunk, tip = split(weights(SMALL, torch.float32), SMALL, 20, 4, 1)
    batch = trunk(torch.zeros(2, 3, 20, 20))
    fields = vit.fields_of(SMALL, 20)
    assert [tuple(batch[field.name].shape[1:]) for field in fields] == [field.shape for field in fields]
    assert batch["tokens"].shape == (2, 26, 128)
    assert tip(batch).shape == (2, 128)

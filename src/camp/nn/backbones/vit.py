"""Vision transformers, divided into a frozen trunk and a trained tip.

Only the class token leaves the last block, so for one trained block the tip needs no attention
between the other tokens. With x̂ the tokens normalised without the affine, g and b the gain and
bias of the first norm:

    q_h = W_q,h (g * x̂_cls + b) + b_q,h         the query of the class token alone
    u_h = g * (W_k,h^T q_h) / sqrt(d)            the key matrix moved to the query
    a_h = softmax_j(u_h . x̂_j)                   b and b_k shift all scores alike: they cancel
    m_h = g * sum_j a_h,j x̂_j + b
    o_h = W_v,h m_h + b_v,h                      the value matrix moved behind the sum

the same function with the same gradients as the plain block. Names of parameters are those of the
official DINO and DINOv2 checkpoints.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from camp.data.views import Batch, Field
from camp.nn.backbones.base import dequantize
from camp.nn.init import trunc_normal_

EPS = 1e-6
"""Epsilon of every LayerNorm of DINO and DINOv2."""
HEAD_DIM = 64
"""Dimension d of a head; ViT-S has 6 heads, ViT-B 12."""
CHUNK_BYTES = 4 << 20
"""Size of the tokens that are processed at once, so that they stay in the cache."""

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
LETTERS = {192: "t", 384: "s", 768: "b", 1024: "l"}


@dataclass(frozen=True)
class VitShape:
    """Architecture of a ViT."""

    dim: int
    patch: int
    blocks: int = 12
    layer_scale: bool = False
    """Whether residual branches are scaled (DINOv2), or not (DINO)."""
    grid: int = 14
    """Side of the patch grid of the position embeddings."""

    @property
    def name(self) -> str:
        """Usual name.

        >>> VitShape(384, 16).name
        'vit-s16'
        """
        return f"vit-{LETTERS.get(self.dim, f'{self.dim}d')}{self.patch}"

    def sizes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every tensor of the whole network by its official name."""
        dim = self.dim
        sizes: dict[str, tuple[int, ...]] = {
            "cls_token": (1, 1, dim),
            "pos_embed": (1, 1 + self.grid**2, dim),
            "patch_embed.proj.weight": (dim, 3, self.patch, self.patch),
            "patch_embed.proj.bias": (dim,),
            "norm.weight": (dim,),
            "norm.bias": (dim,),
        }
        with torch.device("meta"):
            block = Block(dim, self.layer_scale).state_dict()
        for index in range(self.blocks):
            sizes |= {f"blocks.{index}.{name}": tuple(tensor.shape) for name, tensor in block.items()}
        return sizes


SHAPES = {
    shape.name: shape
    for shape in (
        VitShape(384, 16),
        VitShape(384, 8, grid=28),
        VitShape(768, 16),
        VitShape(384, 14, layer_scale=True, grid=37),
        VitShape(768, 14, layer_scale=True, grid=37),
    )
}


class Attention(nn.Module):
    """Self-attention with one matrix for queries, keys and values."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.heads = dim // HEAD_DIM
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, D) -> (B, N, D)."""
        batch, tokens, dim = x.shape
        q, k, v = self.qkv(x).view(batch, tokens, 3, self.heads, HEAD_DIM).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v)
        out: Tensor = self.proj(mixed.transpose(1, 2).reshape(batch, tokens, dim))
        return out

    def of_class_token(self, y: Tensor, norm: nn.LayerNorm, tokens: Tensor, scale: Tensor | None) -> Tensor:
        """Attention of the class token alone: normalised y (B, D), x̂ `tokens` (B, N, D) -> (B, D)."""
        batch, dim = y.shape
        w_q, w_k, w_v = self.qkv.weight.view(3, dim, dim)
        b_q, _, b_v = self.qkv.bias.view(3, dim)
        # Apply gain and bias to the small matrices rather than to B x H vectors of length D.
        keys = (w_k * (norm.weight / math.sqrt(HEAD_DIM))).view(self.heads, HEAD_DIM, dim)
        values = (w_v * norm.weight).view(self.heads, HEAD_DIM, dim)
        q = F.linear(y, w_q, b_q).view(batch, self.heads, HEAD_DIM)
        u = torch.einsum("bhd,hdD->bhD", q, keys)
        m = attended_mean(u, tokens, scale)
        o = torch.einsum("bhD,hdD->bhd", m, values).reshape(batch, dim) + (b_v + w_v @ norm.bias)
        out: Tensor = self.proj(o)
        return out


class Mlp(nn.Module):
    """Two linear layers with a GELU between them."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, 4 * dim)
        self.fc2 = nn.Linear(4 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) -> (..., D)."""
        out: Tensor = self.fc2(F.gelu(self.fc1(x)))
        return out


class LayerScale(nn.Module):
    """Learned factor per channel of a residual branch."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) -> (..., D)."""
        return x * self.gamma


class Block(nn.Module):
    """Transformer block."""

    def __init__(self, dim: int, layer_scale: bool) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, EPS)
        self.attn = Attention(dim)
        self.ls1 = LayerScale(dim) if layer_scale else nn.Identity()
        self.norm2 = nn.LayerNorm(dim, EPS)
        self.mlp = Mlp(dim)
        self.ls2 = LayerScale(dim) if layer_scale else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Apply the plain block, (B, N, D) -> (B, N, D)."""
        x = x + self.ls1(self.attn(self.norm1(x)))
        x = x + self.ls2(self.mlp(self.norm2(x)))
        return x

    def of_class_token(self, cls: Tensor, tokens: Tensor, scale: Tensor | None = None) -> Tensor:
        """Apply the block to the class token alone: raw `cls` (B, D), x̂ `tokens` (B, N, D) -> (B, D)."""
        x: Tensor = cls + self.ls1(self.attn.of_class_token(self.norm1(cls), self.norm1, tokens, scale))
        x = x + self.ls2(self.mlp(self.norm2(x)))
        return x


class PatchEmbed(nn.Module):
    """Embedding of images (B, 3, R, R) as one token per patch (B, (R / patch)^2, D)."""

    def __init__(self, shape: VitShape) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, shape.dim, shape.patch, shape.patch)

    def forward(self, pixels: Tensor) -> Tensor:
        """Embed the patches, row by row."""
        patches: Tensor = self.proj(pixels)
        return patches.flatten(2).transpose(1, 2)


class VitTrunk(nn.Module):
    """Patch embedding and frozen blocks: pixels (B, 3, R, R) -> "tokens" (B, N, D), "cls" (B, D).

    With one trained block the tokens are normalised without the affine (x̂), otherwise raw.
    """

    def __init__(self, shape: VitShape, blocks: int, resolution: int, normalised: bool) -> None:
        super().__init__()
        self.normalised = normalised
        self.patch_embed = PatchEmbed(shape)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, shape.dim))
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + (resolution // shape.patch) ** 2, shape.dim))
        self.blocks = nn.ModuleList(Block(shape.dim, shape.layer_scale) for _ in range(blocks))

    def forward(self, pixels: Tensor) -> Batch:
        """Compute the fields."""
        patches = self.patch_embed(pixels)
        x = torch.cat([self.cls_token.expand(len(pixels), -1, -1), patches], dim=1) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return {"tokens": normalised(x) if self.normalised else x, "cls": x[:, 0]}


class VitTip(nn.Module):
    """Trained blocks and the frozen final norm: the fields of `VitTrunk` -> features (B, D)."""

    def __init__(self, shape: VitShape, blocks: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(shape.dim, shape.layer_scale) for _ in range(blocks))
        self.norm = nn.LayerNorm(shape.dim, EPS)

    def forward(self, batch: Batch) -> Tensor:
        """Compute features (B, D): the class token after the final norm."""
        cls, tokens, scale = batch["cls"], batch["tokens"], batch.get("tokens_scale")
        *before, last = self.blocks
        if before:
            x = torch.cat([cls[:, None], dequantize(batch, "tokens", cls.dtype)[:, 1:]], dim=1)
            for block in before:
                x = block(x)
            cls, tokens, scale = x[:, 0], normalised(x), None
        assert isinstance(last, Block)
        features: Tensor = self.norm(last.of_class_token(cls, tokens, scale))
        return features


def normalised(x: Tensor) -> Tensor:
    """Apply LayerNorm without its affine."""
    return F.layer_norm(x, x.shape[-1:], eps=EPS)


def fields_of(shape: VitShape, resolution: int) -> tuple[Field, ...]:
    """Return the fields that `VitTrunk` computes for a view."""
    count = 1 + (resolution // shape.patch) ** 2
    return Field("tokens", (count, shape.dim), "tokens"), Field("cls", (shape.dim,), "exact")


def split(
    state: dict[str, Tensor], shape: VitShape, resolution: int, depth: int, trained: int
) -> tuple[VitTrunk, VitTip]:
    """Divide the first `depth` blocks of a network with weights `state` before the last `trained` of them."""
    first = depth - trained
    with torch.device("meta"):  # without initializing weights, since they are replaced
        trunk = VitTrunk(shape, first, resolution, normalised=trained == 1)
        tip = VitTip(shape, trained)
    names = ("cls_token", "patch_embed.proj.weight", "patch_embed.proj.bias")
    embedding = {name: state[name] for name in names}
    embedding["pos_embed"] = interpolate_positions(state["pos_embed"], resolution // shape.patch)
    trunk.load_state_dict(embedding | _select_blocks(state, 0, first), assign=True)
    final = {name: state[name] for name in ("norm.weight", "norm.bias")} | _select_blocks(state, first, depth)
    # Copied, since training changes them in place.
    tip.load_state_dict({name: tensor.clone() for name, tensor in final.items()}, assign=True)
    trunk.eval().requires_grad_(False)
    tip.requires_grad_(True)
    tip.norm.requires_grad_(False)
    return trunk, tip


def _select_blocks(state: dict[str, Tensor], first: int, end: int) -> dict[str, Tensor]:
    """Return the weights of blocks `first`..`end` - 1, renumbered from 0."""
    return {
        f"blocks.{index - first}.{name.split('.', 2)[2]}": tensor
        for index in range(first, end)
        for name, tensor in state.items()
        if name.startswith(f"blocks.{index}.")
    }


def interpolate_positions(pos_embed: Tensor, side: int) -> Tensor:
    """Interpolate position embeddings (1, 1 + n * n, D) to a patch grid of `side` x `side`, bicubically."""
    cls, grid = pos_embed[:, :1], pos_embed[:, 1:]
    old_side = math.isqrt(grid.shape[1])
    if old_side == side:
        return pos_embed
    image = grid.transpose(1, 2).reshape(1, -1, old_side, old_side)
    image = F.interpolate(image, size=(side, side), mode="bicubic", align_corners=False)
    return torch.cat([cls, image.flatten(2).transpose(1, 2)], dim=1)


def random_state(shape: VitShape, generator: torch.Generator) -> dict[str, Tensor]:
    """Draw the weights of an untrained ViT: truncated normal of 0.02, biases 0, norms and layer scales 1."""
    state = {}
    for name, size in shape.sizes().items():
        if name.endswith("bias"):
            state[name] = torch.zeros(size)
        elif "norm" in name or name.endswith("gamma"):
            state[name] = torch.ones(size)
        else:
            state[name] = trunc_normal_(torch.empty(size), 0.02, generator)
    return state


def attended_mean(u: Tensor, tokens: Tensor, scale: Tensor | None = None) -> Tensor:
    """sum_j softmax_j(u_h . x_j) x_j for each head: u (B, H, D), tokens (B, N, D) -> (B, H, D).

    Tokens may be float32, float16, or int8 with a `scale` (B, N, 1). They get a gradient only if
    they require one, which stored tokens do not.
    """
    if tokens.requires_grad:
        return torch.softmax(u @ tokens.transpose(1, 2), dim=-1) @ tokens
    apply: Callable[[Tensor, Tensor, Tensor | None], Tensor] = _AttendedMean.apply
    return apply(u, tokens, scale)


class _AttendedMean(torch.autograd.Function):
    """`attended_mean` over chunks of views that fit into the cache: each pass reads the tokens once.

    Automatic differentiation would store a float32 copy of all tokens and read it four times. If
    the gradient itself is differentiated (create_graph=True), it is computed by plain operations.
    """

    @staticmethod
    def forward(ctx: Any, u: Tensor, tokens: Tensor, scale: Tensor | None) -> Tensor:
        m = torch.empty_like(u)
        a = u.new_empty(*u.shape[:2], tokens.shape[1])
        for part, x, row_scale in _chunks(tokens, scale, u.dtype):
            scores = torch.bmm(u[part], x.transpose(1, 2))
            if row_scale is not None:  # cheaper on N scores than on N x D tokens
                scores *= row_scale
            torch.softmax(scores, dim=-1, out=a[part])
            torch.bmm(a[part] if row_scale is None else a[part] * row_scale, x, out=m[part])
        ctx.save_for_backward(u, a, m, tokens, scale)
        return m

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        u, a, m, tokens, scale = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True
            return _gradient(u, grads[0], tokens, scale), None, None
        grad_m = grads[0].contiguous()
        grad_u = torch.empty_like(grad_m)
        # The mean of d loss / d a under a is known without the tokens: sum_j a_j (grad_m . x_j) = grad_m . m.
        mean = (grad_m * m).sum(dim=-1, keepdim=True)
        for part, x, row_scale in _chunks(tokens, scale, grad_m.dtype):
            grad_a = torch.bmm(grad_m[part], x.transpose(1, 2))
            if row_scale is not None:
                grad_a *= row_scale
            grad_scores = grad_a.sub_(mean[part]).mul_(a[part])
            if row_scale is not None:
                grad_scores *= row_scale
            torch.bmm(grad_scores, x, out=grad_u[part])
        return grad_u, None, None


def _gradient(u: Tensor, grad_m: Tensor, tokens: Tensor, scale: Tensor | None) -> Tensor:
    """Compute d loss / d u (B, H, D) from d loss / d m by differentiable operations."""
    x = tokens.to(u.dtype) if scale is None else tokens.to(u.dtype) * scale.to(u.dtype)
    a = torch.softmax(u @ x.transpose(1, 2), dim=-1)
    grad_a = grad_m @ x.transpose(1, 2)
    return (a * (grad_a - (a * grad_a).sum(dim=-1, keepdim=True))) @ x


def _chunks(
    tokens: Tensor, scale: Tensor | None, dtype: torch.dtype
) -> Iterator[tuple[slice, Tensor, Tensor | None]]:
    """Yield slices of the batch with their tokens in `dtype` and their scales (b, 1, N), or None."""
    count = len(tokens)
    size = max(count, 1)
    if count and tokens.device.type == "cpu":
        size = max(1, CHUNK_BYTES // (4 * tokens[0].numel()))
    buffer = None
    if tokens.dtype != dtype:
        buffer = tokens.new_empty((min(size, count), *tokens.shape[1:]), dtype=dtype)
    for start in range(0, count, size):
        part = slice(start, min(start + size, count))
        x = tokens[part] if buffer is None else buffer[: part.stop - start].copy_(tokens[part])
        yield part, x, None if scale is None else scale[part].transpose(1, 2).to(dtype)

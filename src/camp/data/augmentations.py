"""Augmentations, batched in torch: the reference's self-supervised view for pictures, noise for vectors.

Every view has a seed of its own and its random numbers are a hash of that seed, so a view does not depend on
the batch it is made in, and a bank built in two goes holds the same views as one built in one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from camp.data.view_settings import Augmentation

_CROP_ATTEMPTS = 10
_CHUNK_BYTES = 4 << 20
"""Views worked on at once stay near the cache: the eight of one picture at 224 pixels, hundreds at 16."""


@dataclass(frozen=True)
class Parameters:
    """What is done to each of n views, drawn from their seeds."""

    top: Tensor
    """(n,) crop box in pixels, as `left`, `height`, `width`."""
    left: Tensor
    height: Tensor
    width: Tensor
    flip: Tensor
    """(n,) bool."""
    jitter: Tensor
    """(n,) bool: is the colour changed at all."""
    factors: Tensor
    """(n, 4): brightness, contrast and saturation as factors, hue as a shift of the colour circle."""
    order: Tensor
    """(n, 4): the order in which the four are applied."""
    grey: Tensor
    """(n,) bool."""


def uniforms(seeds: np.ndarray, count: int) -> np.ndarray:
    """(n, count) numbers in [0, 1) that depend on the seed (n,) of their row alone (SplitMix64).

    >>> rows = uniforms(np.array([3, 4]), 2)
    >>> bool((rows[1] == uniforms(np.array([4]), 2)[0]).all())
    True
    """
    with np.errstate(over="ignore"):
        step = np.uint64(0x9E3779B97F4A7C15) * np.arange(1, count + 1, dtype=np.uint64)
        x = seeds.astype(np.uint64)[:, None] * np.uint64(0xD1342543DE82EF95) + step
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    return (x >> np.uint64(11)).astype(np.float64) * 2.0**-53


def draw_parameters(seeds: np.ndarray, size: int, settings: Augmentation) -> Parameters:
    """The parameters of views with `seeds` (n,) of pictures of `size` x `size` pixels."""
    n = len(seeds)
    u = uniforms(seeds, 2 * _CROP_ATTEMPTS + 13)
    # Random area and aspect ratio until a box fits; ten tries, as is the custom.
    area = size * size * (settings.crop_scale + u[:, :_CROP_ATTEMPTS] * (1 - settings.crop_scale))
    low, high = np.log(3 / 4), np.log(4 / 3)
    ratio = np.exp(low + u[:, _CROP_ATTEMPTS : 2 * _CROP_ATTEMPTS] * (high - low))
    width, height = np.rint(np.sqrt(area * ratio)), np.rint(np.sqrt(area / ratio))
    fits = (width <= size) & (height <= size) & (width >= 1) & (height >= 1)
    chosen = (np.arange(n), fits.argmax(axis=1))
    width = np.where(fits.any(axis=1), width[chosen], size)
    height = np.where(fits.any(axis=1), height[chosen], size)
    rest = u[:, 2 * _CROP_ATTEMPTS :]
    strength = np.array([settings.brightness, settings.contrast, settings.saturation])
    factors = np.empty((n, 4))
    factors[:, :3] = 1 + strength * (2 * rest[:, 2:5] - 1)
    factors[:, 3] = settings.hue * (2 * rest[:, 5] - 1)
    return Parameters(
        top=torch.from_numpy(np.floor(rest[:, 0] * (size - height + 1))),
        left=torch.from_numpy(np.floor(rest[:, 1] * (size - width + 1))),
        height=torch.from_numpy(height),
        width=torch.from_numpy(width),
        flip=torch.from_numpy(rest[:, 6] < settings.flip),
        jitter=torch.from_numpy(rest[:, 7] < settings.jitter),
        factors=torch.from_numpy(factors).float(),
        order=torch.from_numpy(rest[:, 9:13].argsort(axis=1)),
        grey=torch.from_numpy(rest[:, 8] < settings.grey),
    )


def augment_pictures(pictures: Tensor, seeds: np.ndarray, settings: Augmentation) -> Tensor:
    """Views (n, V, 3, R, R) in 0..1 of pictures (n, R, R, 3) uint8, one for each seed (n, V)."""
    n, count = seeds.shape
    size = pictures.shape[1]
    views = torch.empty(n, count, 3, size, size, device=pictures.device)
    at_once = max(1, _CHUNK_BYTES // (count * 3 * size * size * 4))
    for start in range(0, n, at_once):
        part = slice(start, start + at_once)
        parameters = draw_parameters(seeds[part].reshape(-1), size, settings)
        _crop(to_unit(pictures[part]), parameters, views[part])
        _colour_(views[part].flatten(0, 1), parameters)
    return views


def to_unit(pictures: Tensor) -> Tensor:
    """(n, 3, R, R) floats in 0..1 of pictures (n, R, R, 3) uint8."""
    return pictures.permute(0, 3, 1, 2).to(torch.float32, memory_format=torch.contiguous_format).div_(255)


def normalise_(x: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """(x - mean) / std a channel, in place, for x (n, 3, R, R)."""
    for channel in range(3):
        x[:, channel].sub_(mean[channel]).div_(std[channel])
    return x


def _crop(pictures: Tensor, p: Parameters, out: Tensor) -> None:
    """Bicubic crops of pictures (n, 3, S, S), resized to S x S, into `out` (n, V, 3, S, S).

    Every row of a view is a weighted sum of rows of the picture, and so for columns; a view's box and flip
    only change the weights. So all views of a picture share one matrix product a channel and axis.
    """
    n, count, _, size, _ = out.shape
    rows = _bicubic_weights(p.top, p.height, size).to(pictures.device)
    columns = _bicubic_weights(p.left, p.width, size)
    columns = torch.where(p.flip[:, None, None], columns.flip(1), columns).to(pictures.device)
    for channel in range(3):
        stretched = torch.bmm(rows.view(n, count * size, size), pictures[:, channel])
        view = torch.bmm(stretched.view(n * count, size, size), columns.transpose(1, 2))
        out[:, :, channel] = view.view(n, count, size, size)
    out.clamp_(0, 1)


def _bicubic_weights(start: Tensor, length: Tensor, size: int) -> Tensor:
    """(n, size, size) weights that stretch pixels start .. start + length to `size`; Pillow's bicubic, a = -1/2."""
    n = len(start)
    centre = start[:, None] + (torch.arange(size) + 0.5) * (length / size)[:, None]  # (n, size)
    first = (centre - 0.5).floor().long() - 1
    tap = first[:, :, None] + torch.arange(4)  # (n, size, 4): a crop is never shrunk, so four pixels matter
    x = (tap + 0.5 - centre[:, :, None]).abs_()
    weight = torch.where(x < 1, (1.5 * x - 2.5) * x * x + 1, ((-0.5 * x + 2.5) * x - 4) * x + 2)
    low, high = start.long()[:, None, None], (start + length).long()[:, None, None]
    weight = weight * ((tap >= low) & (tap < high))
    weight = (weight / weight.sum(dim=2, keepdim=True)).float()
    return torch.zeros(n, size, size).scatter_add_(2, tap.clamp_(0, size - 1), weight)


def _colour_(x: Tensor, p: Parameters) -> None:
    """Change the colours of views (n, 3, R, R), each in its own order, then make some grey; in place."""
    for position in range(4):
        for operation in range(4):
            rows = (p.jitter & (p.order[:, position] == operation)).nonzero()[:, 0]
            _in_place(x, rows, partial(_jitter_, operation=operation, factors=p.factors[rows, operation]))
    _in_place(x, p.grey.nonzero()[:, 0], lambda some: some.copy_(_grey(some)))


def _in_place(x: Tensor, rows: Tensor, change: Callable[[Tensor], object]) -> None:
    """Apply `change` to the views `rows` of x (n, 3, R, R)."""
    if len(rows):
        some = x[rows]
        change(some)
        x[rows] = some


def _grey(x: Tensor) -> Tensor:
    """(n, 1, R, R) luma of x (n, 3, R, R)."""
    return (0.299 * x[:, :1]).add_(x[:, 1:2], alpha=0.587).add_(x[:, 2:], alpha=0.114)


def _jitter_(x: Tensor, operation: int, factors: Tensor) -> None:
    """One of the four changes of colour, brightness, contrast, saturation or hue, of x (n, 3, R, R), in place."""
    factor = factors.to(x.device)[:, None, None, None]
    if operation == 3:
        _shift_hue_(x, factor)
        return
    if operation == 0:
        x.mul_(factor)
    elif operation == 1:
        x.lerp_(_grey(x).mean(dim=(1, 2, 3), keepdim=True), 1 - factor)
    else:
        x.lerp_(_grey(x), 1 - factor)
    x.clamp_(0, 1)


def _shift_hue_(x: Tensor, shift: Tensor) -> None:
    """Turn the colour circle by `shift` (n, 1, 1, 1) of a full turn: RGB -> HSV -> RGB.

    Value is the greatest channel, and value less chroma the least one; neither changes.
    """
    r, g, b = x.unbind(1)
    value = torch.maximum(torch.maximum(r, g), b)
    chroma = value - torch.minimum(torch.minimum(r, g), b)
    safe = chroma.clamp_min(1e-8)
    # Hue in sixths of a turn, from whichever channel is the greatest.
    from_green_or_blue = torch.where(value == g, (b - r).div_(safe).add_(2), (r - g).div_(safe).add_(4))
    hue = torch.where(value == r, (g - b).div_(safe), from_green_or_blue).add_(6 * shift[:, 0])
    for channel, offset in enumerate((5, 3, 1)):
        k = (hue + offset).remainder_(6)
        share = torch.minimum(k, 4 - k).clamp_(0, 1)
        torch.addcmul(value, share, chroma, value=-1, out=x[:, channel])


def augment_vectors(vectors: Tensor, seeds: np.ndarray, settings: Augmentation) -> Tensor:
    """Noisy copies (n, D) of vectors (n, D): Gaussian noise relative to their length, and dropped entries."""
    dim = vectors.shape[1]
    u = torch.from_numpy(uniforms(seeds, 3 * dim)).float().to(vectors.device)
    # Box-Muller: a Gaussian from two uniforms.
    gauss = (-2 * torch.log1p(-u[:, :dim])).sqrt() * torch.cos(2 * torch.pi * u[:, dim : 2 * dim])
    scale = settings.vector_noise * vectors.norm(dim=1, keepdim=True) / dim**0.5
    kept = u[:, 2 * dim :] >= settings.vector_dropout
    return (vectors + scale * gauss) * kept / (1 - settings.vector_dropout)

"""Batched augmentations: random crop, flip and colour jitter for images, noise for vectors.

The random numbers of a view are a hash of its own seed, so a view does not depend on its batch, and
an interrupted bank ends up with the same views as an uninterrupted one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from camp.core.devices import to_device
from camp.data.view_settings import Augmentation

_CROP_ATTEMPTS = 10
_CHUNK_BYTES = 4 << 20
"""Size of the views that are processed at once, so that they stay in the cache."""


@dataclass(frozen=True)
class Parameters:
    """Augmentation parameters of n views, drawn from their seeds."""

    top: Tensor
    """Crop box in pixels (n,), with `left`, `height` and `width`; what is outside of the image is black."""
    left: Tensor
    height: Tensor
    width: Tensor
    flip: Tensor
    """Whether to flip horizontally (n,)."""
    jitter: Tensor
    """Whether to apply colour jitter (n,)."""
    factors: Tensor
    """Factors of brightness, contrast and saturation, and shift of the hue in turns (n, 4)."""
    order: Tensor
    """Order in which the four are applied (n, 4)."""
    grey: Tensor
    """Whether to convert to greyscale (n,)."""


def uniforms(seeds: np.ndarray, count: int) -> np.ndarray:
    """Return numbers (n, count) in [0, 1); each row depends only on its seed (n,) (SplitMix64).

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
    uniform: np.ndarray = (x >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return uniform


def draw_parameters(seeds: np.ndarray, size: int, settings: Augmentation) -> Parameters:
    """Draw the parameters of n views of images of `size` x `size` pixels from `seeds` (n,)."""
    n = len(seeds)
    u = uniforms(seeds, 2 * _CROP_ATTEMPTS + 13)
    rest = u[:, 2 * _CROP_ATTEMPTS :]
    if settings.padding is None:
        height, width = _crop_sizes(u, size, settings.crop_scale)
        top, left = np.floor(rest[:, 0] * (size - height + 1)), np.floor(rest[:, 1] * (size - width + 1))
    else:
        height = width = np.full(n, float(size))
        margin = round(settings.padding * size)
        top, left = np.floor(rest[:, :2] * (2 * margin + 1)).T - margin
    strength = np.array([settings.brightness, settings.contrast, settings.saturation])
    factors = np.empty((n, 4))
    factors[:, :3] = 1 + strength * (2 * rest[:, 2:5] - 1)
    factors[:, 3] = settings.hue * (2 * rest[:, 5] - 1)
    return Parameters(
        top=torch.from_numpy(top),
        left=torch.from_numpy(left),
        height=torch.from_numpy(height),
        width=torch.from_numpy(width),
        flip=torch.from_numpy(rest[:, 6] < settings.flip),
        jitter=torch.from_numpy(rest[:, 7] < settings.jitter),
        factors=torch.from_numpy(factors).float(),
        order=torch.from_numpy(rest[:, 9:13].argsort(axis=1)),
        grey=torch.from_numpy(rest[:, 8] < settings.grey),
    )


def _crop_sizes(u: np.ndarray, size: int, least: float) -> tuple[np.ndarray, np.ndarray]:
    """Return heights and widths (n,) of crops of at least the share `least` of the area, from numbers in [0, 1)."""
    # Random area and aspect ratio until a box fits; ten attempts, as in torchvision.
    area = size * size * (least + u[:, :_CROP_ATTEMPTS] * (1 - least))
    low, high = np.log(3 / 4), np.log(4 / 3)
    ratio = np.exp(low + u[:, _CROP_ATTEMPTS : 2 * _CROP_ATTEMPTS] * (high - low))
    width, height = np.rint(np.sqrt(area * ratio)), np.rint(np.sqrt(area / ratio))
    fits = (width <= size) & (height <= size) & (width >= 1) & (height >= 1)
    chosen = (np.arange(len(u)), fits.argmax(axis=1))
    some = fits.any(axis=1)
    return np.where(some, height[chosen], size), np.where(some, width[chosen], size)


def augment_images(images: Tensor, seeds: np.ndarray, settings: Augmentation) -> Tensor:
    """Compute views (n, V, 3, R, R) in 0..1 of images (n, R, R, 3) uint8, one for each seed (n, V)."""
    n, count = seeds.shape
    size = images.shape[1]
    views = torch.empty(n, count, 3, size, size, device=images.device)
    at_once = max(1, _CHUNK_BYTES // (count * 3 * size * size * 4))
    for start in range(0, n, at_once):
        part = slice(start, start + at_once)
        parameters = draw_parameters(seeds[part].reshape(-1), size, settings)
        _crop(to_unit(images[part]), parameters, views[part])
        _colour_(views[part].flatten(0, 1), parameters)
    return views


def to_unit(images: Tensor) -> Tensor:
    """Convert images (n, R, R, 3) uint8 to floats (n, 3, R, R) in 0..1."""
    return images.permute(0, 3, 1, 2).to(torch.float32, memory_format=torch.contiguous_format).div_(255)


def normalise_(x: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """Normalise the channels of x (n, 3, R, R) in place: (x - mean) / std."""
    for channel in range(3):
        x[:, channel].sub_(mean[channel]).div_(std[channel])
    return x


def _crop(images: Tensor, p: Parameters, out: Tensor) -> None:
    """Write bicubic crops of images (n, 3, S, S), resized to S x S, into `out` (n, V, 3, S, S).

    Each row of a view is a weighted sum of rows of the image, and likewise for columns; crop box
    and flip only change the weights. So all views of an image share one matrix product per channel
    and axis.
    """
    n, count, _, size, _ = out.shape
    rows = to_device(_bicubic_weights(p.top, p.height, size), images.device)
    columns = _bicubic_weights(p.left, p.width, size)
    columns = torch.where(p.flip[:, None, None], columns.flip(1), columns)
    columns = to_device(columns, images.device)
    for channel in range(3):
        stretched = torch.bmm(rows.view(n, count * size, size), images[:, channel])
        view = torch.bmm(stretched.view(n * count, size, size), columns.transpose(1, 2))
        out[:, :, channel] = view.view(n, count, size, size)
    out.clamp_(0, 1)


def _bicubic_weights(start: Tensor, length: Tensor, size: int) -> Tensor:
    """Return bicubic weights (n, size, size), as Pillow's, of pixels start .. start + length."""
    n = len(start)
    centre = start[:, None] + (torch.arange(size) + 0.5) * (length / size)[:, None]  # (n, size)
    first = (centre - 0.5).floor().long() - 1
    tap = first[:, :, None] + torch.arange(4)  # (n, size, 4): a crop is only enlarged, so four taps suffice
    x = (tap + 0.5 - centre[:, :, None]).abs_()
    weight = torch.where(x < 1, (1.5 * x - 2.5) * x * x + 1, ((-0.5 * x + 2.5) * x - 4) * x + 2)
    low, high = start.long()[:, None, None], (start + length).long()[:, None, None]
    weight = weight * ((tap >= low) & (tap < high))
    weight = weight / weight.sum(dim=2, keepdim=True)
    weight = (weight * ((tap >= 0) & (tap < size))).float()  # black outside of the image
    return torch.zeros(n, size, size).scatter_add_(2, tap.clamp_(0, size - 1), weight)


def _colour_(x: Tensor, p: Parameters) -> None:
    """Apply colour jitter to views (n, 3, R, R), each in its own order, then greyscale; in place."""
    for position in range(4):
        for operation in range(4):
            rows = (p.jitter & (p.order[:, position] == operation)).nonzero()[:, 0]
            change = partial(_jitter_, operation=operation, factors=p.factors[rows, operation])
            _apply_to_rows(x, rows, change)
    _apply_to_rows(x, p.grey.nonzero()[:, 0], lambda selected: selected.copy_(_luma(selected)))


def _apply_to_rows(x: Tensor, rows: Tensor, change: Callable[[Tensor], object]) -> None:
    """Apply the in-place function `change` to the views `rows` of x (n, 3, R, R)."""
    if len(rows):
        rows = to_device(rows, x.device)
        selected = x[rows]
        change(selected)
        x[rows] = selected


def _luma(x: Tensor) -> Tensor:
    """Return the luma (n, 1, R, R) of x (n, 3, R, R)."""
    return (0.299 * x[:, :1]).add_(x[:, 1:2], alpha=0.587).add_(x[:, 2:], alpha=0.114)


def _jitter_(x: Tensor, operation: int, factors: Tensor) -> None:
    """Change brightness (0), contrast (1), saturation (2) or hue (3) of x (n, 3, R, R) in place."""
    factor = to_device(factors, x.device)[:, None, None, None]
    if operation == 3:
        _shift_hue_(x, factor)
        return
    if operation == 0:
        x.mul_(factor)
    elif operation == 1:
        x.lerp_(_luma(x).mean(dim=(1, 2, 3), keepdim=True), 1 - factor)
    else:
        x.lerp_(_luma(x), 1 - factor)
    x.clamp_(0, 1)


def _shift_hue_(x: Tensor, shift: Tensor) -> None:
    """Shift the hue of x (n, 3, R, R) by `shift` (n, 1, 1, 1) turns in place: RGB -> HSV -> RGB."""
    r, g, b = x.unbind(1)
    value = torch.maximum(torch.maximum(r, g), b)
    chroma = value - torch.minimum(torch.minimum(r, g), b)
    safe = chroma.clamp_min(1e-8)
    # Hue in sixths of a turn, computed from the largest channel.
    from_green_or_blue = torch.where(value == g, (b - r).div_(safe).add_(2), (r - g).div_(safe).add_(4))
    hue = torch.where(value == r, (g - b).div_(safe), from_green_or_blue).add_(6 * shift[:, 0])
    for channel, offset in enumerate((5, 3, 1)):
        k = (hue + offset).remainder_(6)
        weight = torch.minimum(k, 4 - k).clamp_(0, 1)
        torch.addcmul(value, weight, chroma, value=-1, out=x[:, channel])


def augment_vectors(vectors: Tensor, seeds: np.ndarray, settings: Augmentation) -> Tensor:
    """Add Gaussian noise relative to their length to vectors (n, D), and drop entries."""
    dim = vectors.shape[1]
    u = to_device(torch.from_numpy(uniforms(seeds, 3 * dim)).float(), vectors.device)
    # Box-Muller transform of two uniform numbers.
    gauss = (-2 * torch.log1p(-u[:, :dim])).sqrt() * torch.cos(2 * torch.pi * u[:, dim : 2 * dim])
    scale = settings.vector_noise * vectors.norm(dim=1, keepdim=True) / dim**0.5
    kept = u[:, 2 * dim :] >= settings.vector_dropout
    noisy: Tensor = (vectors + scale * gauss) * kept / (1 - settings.vector_dropout)
    return noisy

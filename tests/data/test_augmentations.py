"""Augmentations against Pillow and colorsys, and their independence of the batch."""

import colorsys

import numpy as np
import pytest
import torch
from PIL import Image

from camp.data import augmentations as augment
from camp.data.augmentations import augment_images, augment_vectors, draw_parameters, normalise_, to_unit
from camp.data.view_settings import Augmentation

QUIET = Augmentation(crop_scale=1.0, flip=0.0, jitter=0.0, grey=0.0)


@pytest.fixture
def images() -> torch.Tensor:
    noise = np.random.default_rng(0).integers(0, 256, (3, 9, 9, 3), dtype=np.uint8)
    smooth = [np.asarray(Image.fromarray(n).resize((40, 40), Image.Resampling.BICUBIC)) for n in noise]
    return torch.from_numpy(np.stack(smooth))


def test_crops_equal_those_of_pillow(images: torch.Tensor) -> None:
    seeds = np.arange(16)
    p = draw_parameters(seeds, 40, Augmentation(crop_scale=0.1, jitter=0, grey=0))
    views = torch.empty(1, 16, 3, 40, 40)
    augment._crop(to_unit(images[:1]), p, views)
    ours = views[0]
    image = Image.fromarray(images[0].numpy())
    assert p.flip.any()
    assert not p.flip.all()
    for i in range(16):
        left, top = int(p.left[i]), int(p.top[i])
        box = (left, top, left + int(p.width[i]), top + int(p.height[i]))
        view = image.crop(box).resize((40, 40), Image.Resampling.BICUBIC)
        if p.flip[i]:
            view = view.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        expected = np.asarray(view, dtype=np.float32)
        # Pillow rounds to whole grey levels after each of its two passes.
        assert np.abs(255 * ours[i].permute(1, 2, 0).numpy() - expected).max() < 1.6


def test_padded_crops_are_shifted_images_with_black_margins(images: torch.Tensor) -> None:
    seeds = np.arange(300).reshape(1, -1)
    settings = Augmentation(padding=0.125, flip=0.5, jitter=0, grey=0)
    p = draw_parameters(seeds[0], 40, settings)
    views = augment_images(images[:1], seeds, settings)[0]
    padded = torch.nn.functional.pad(to_unit(images[:1])[0], (5, 5, 5, 5))
    for view, top, left, flip in zip(views, p.top.int() + 5, p.left.int() + 5, p.flip, strict=True):
        crop = padded[:, top : top + 40, left : left + 40]
        torch.testing.assert_close(view, crop.flip(2) if flip else crop)
    assert {*p.top.tolist()} == {*p.left.tolist()} == {*range(-5, 6)}


def test_crop_boxes_have_the_given_distribution() -> None:
    p = draw_parameters(np.arange(4000), 224, Augmentation(crop_scale=0.3))
    area = (p.height * p.width / 224**2).numpy()
    ratio = (p.width / p.height).numpy()
    assert area.min() > 0.29
    assert area.max() <= 1.0
    assert 0.74 < ratio.min() < 0.78
    assert 1.30 < ratio.max() < 1.36
    assert ((p.top >= 0) & (p.top + p.height <= 224) & (p.left >= 0) & (p.left + p.width <= 224)).all()
    assert p.jitter.float().mean().item() == pytest.approx(0.8, abs=0.03)
    assert p.grey.float().mean().item() == pytest.approx(0.2, abs=0.03)


def test_hue_is_a_turn_of_the_colour_circle(images: torch.Tensor) -> None:
    x = to_unit(images[:1])[0]
    shifted = x.clone()
    augment._shift_hue_(shifted[None], torch.full((1, 1, 1, 1), 0.07))
    for i, j in [(0, 0), (3, 17), (20, 5), (39, 39), (11, 30)]:
        h, s, v = colorsys.rgb_to_hsv(*x[:, i, j].tolist())
        expected = colorsys.hsv_to_rgb((h + 0.07) % 1, s, v)
        assert shifted[:, i, j].tolist() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("operation", [0, 1, 2])
def test_jitter_against_the_definitions(images: torch.Tensor, operation: int) -> None:
    x = to_unit(images[:1])[0]
    grey = (x * torch.tensor([0.299, 0.587, 0.114])[:, None, None]).sum(0)
    towards = [torch.zeros_like(x), grey.mean().expand_as(x), grey.expand_as(x)][operation]
    expected = (1.3 * x + (1 - 1.3) * towards).clamp(0, 1)
    changed = x.clone()
    augment._jitter_(changed[None], operation, torch.tensor([1.3]))
    torch.testing.assert_close(changed, expected)


def test_a_view_does_not_depend_on_its_batch(images: torch.Tensor) -> None:
    seeds = np.arange(12).reshape(3, 4)
    together = augment_images(images, seeds, Augmentation())
    alone = augment_images(images[1:2], seeds[1:2, 2:3], Augmentation())
    torch.testing.assert_close(alone[0, 0], together[1, 2], rtol=0, atol=1e-6)
    assert not torch.allclose(together[1, 2], together[1, 3])


def test_doing_nothing_gives_the_image(images: torch.Tensor) -> None:
    views = augment_images(images, np.zeros((3, 1), dtype=np.int64), QUIET)
    torch.testing.assert_close(views[:, 0], to_unit(images), rtol=0, atol=1e-5)


def test_normalisation(images: torch.Tensor) -> None:
    x = to_unit(images)
    expected = (x - torch.tensor([0.1, 0.2, 0.3])[:, None, None]) / torch.tensor([1.0, 2.0, 4.0])[
        :, None, None
    ]
    torch.testing.assert_close(normalise_(x.clone(), (0.1, 0.2, 0.3), (1.0, 2.0, 4.0)), expected)


def test_vectors_are_disturbed_as_much_as_asked() -> None:
    vectors = torch.randn(50, 400, generator=torch.Generator().manual_seed(0))
    noisy = augment_vectors(vectors, np.arange(50), Augmentation(vector_noise=0.1, vector_dropout=0.0))
    relative = ((noisy - vectors).norm(dim=1) / vectors.norm(dim=1)).mean().item()
    assert relative == pytest.approx(0.1, abs=0.01)
    dropped = augment_vectors(vectors, np.arange(50), Augmentation(vector_noise=0.0, vector_dropout=0.25))
    assert (dropped == 0).float().mean().item() == pytest.approx(0.25, abs=0.02)

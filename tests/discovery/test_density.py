"""Densities, peaks and representatives against loops over their definitions."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from camp.discovery import density as module
from camp.discovery.density import Density, densest, density


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def slow_density(z: list[list[float]], k: int) -> tuple[list[float], list[bool]]:
    def cosine(a: list[float], b: list[float]) -> float:
        return sum(p * q for p, q in zip(a, b)) / math.hypot(*a) / math.hypot(*b)

    around = [
        sorted((j for j in range(len(z)) if j != i), key=lambda j, i=i: -cosine(z[i], z[j]))[:k]
        for i in range(len(z))
    ]
    values = [sum(cosine(z[i], z[j]) for j in near) / len(near) for i, near in enumerate(around)]
    return values, [all(values[i] > values[j] for j in near) for i, near in enumerate(around)]


@given(st.integers(3, 15), st.integers(2, 12), st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_density_is_its_definition(images: int, neighbours: int, seed: int) -> None:
    z = draw(images, 3, seed=seed)
    values, peaks = slow_density(z.tolist(), neighbours)
    found = density(z, neighbours)
    assert found.values.tolist() == pytest.approx(values, abs=1e-9)
    assert found.peaks.tolist() == peaks


def test_one_image_and_two() -> None:
    alone = density(draw(1, 3), 10)
    assert (alone.values.tolist(), alone.peaks.tolist()) == ([0.0], [True])
    z = torch.tensor([[3.0, 0.0], [0.6, 0.8]])
    assert density(z, 10).values.tolist() == pytest.approx([0.6, 0.6])


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    z = draw(50, 4)
    whole = density(z, 5)
    monkeypatch.setattr(module, "_CHUNK", 7)
    chunks = density(z, 5)
    torch.testing.assert_close(chunks.values, whole.values)
    assert torch.equal(chunks.peaks, whole.peaks)


def test_the_length_of_features_does_not_matter() -> None:
    z = draw(30, 4)
    torch.testing.assert_close(density(z * torch.arange(1.0, 31)[:, None], 5).values, density(z, 5).values)


def test_the_peak_lies_in_the_dense_cluster() -> None:
    cluster = torch.tensor([1.0, 0.0]) + 0.1 * draw(40, 2)
    scattered = torch.tensor([0.0, 1.0]) + 0.9 * draw(10, 2, seed=1)
    found = density(torch.cat([cluster, scattered]), 10)
    assert found.values[:40].min() > found.values[40:].median()
    assert found.peaks[:40].any()


@given(st.integers(1, 20), st.integers(1, 4), st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_densest_sorts_the_members_of_each_category(images: int, count: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    categories = torch.randint(-1, 3, (images,), generator=generator)
    peaks = torch.rand(images, generator=generator) < 0.3
    values = torch.rand(images, generator=generator)
    expected = []
    for category in range(3):
        members = [i for i in range(images) if categories[i] == category]
        expected += sorted(members, key=lambda i: (not peaks[i], -float(values[i])))[:count]
    assert densest(Density(values, peaks), categories, count).tolist() == expected

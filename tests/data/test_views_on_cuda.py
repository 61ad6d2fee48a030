"""Views for a network on a GPU: the copies are asynchronous, and the views are the CPU's."""

from pathlib import Path

import numpy as np
import pytest
import torch
from small_streams import CPU, stream

from camp.data.vector_views import VectorViews
from camp.data.view_settings import Augmentation
from fake_cuda import CUDA, fake_cuda


@pytest.mark.parametrize("kind", ["vectors", "images", pytest.param("tokens", marks=pytest.mark.slow)])
def test_views_are_copied_without_waiting(kind: str, tmp_path: Path) -> None:
    rows, draw = torch.tensor([3, 0, 4]), torch.Generator().manual_seed(0)
    here = stream(kind, tmp_path, device=CPU).tasks[0][0].views
    ids = here.draw(rows, 2, draw)
    expected = here.clean(rows), here.augmented(rows, ids)
    with fake_cuda() as cuda:
        views = stream(kind, tmp_path, device=CUDA).tasks[0][0].views
        cuda.forget()
        found = views.clean(rows), views.augmented(rows, ids)
        assert cuda.waits == []
        assert cuda.uploads
        for batch, other in zip(found, expected):
            assert set(batch) == set(other)
            for name, x in batch.items():
                assert x.device == CUDA
                torch.testing.assert_close(x.cpu(), other[name])


def test_vectors_are_copied_without_waiting() -> None:
    vectors = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    digests, rows, ids = np.zeros((6, 16), np.uint8), torch.tensor([3, 0]), torch.tensor([[1, 2], [3, 4]])

    def views(device: torch.device) -> VectorViews:
        return VectorViews(vectors, np.arange(6), digests, device, Augmentation())

    expected = views(CPU).clean(rows)["vector"], views(CPU).augmented(rows, ids)["vector"]
    with fake_cuda() as cuda:
        found = views(CUDA).clean(rows)["vector"], views(CUDA).augmented(rows, ids)["vector"]
        assert (cuda.waits, len(cuda.uploads)) == ([], 3)
        for x, other in zip(found, expected):
            torch.testing.assert_close(x.cpu(), other)

"""Views of a bank for a network on a GPU: the copies are asynchronous, and the views are the CPU's."""

from pathlib import Path

import pytest
import torch
from small_streams import CPU, stream

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

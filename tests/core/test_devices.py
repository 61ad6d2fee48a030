"""Copies to a device: page-locked and asynchronous to a GPU, none on the CPU."""

import pytest
import torch
from torch import Tensor

from camp.core.devices import to_device
from fake_cuda import CUDA, CudaTensor, fake_cuda

CPU = torch.device("cpu")


def test_nothing_is_copied_or_pinned_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(x: Tensor) -> Tensor:
        raise AssertionError("page-locked memory is for GPUs")

    monkeypatch.setattr(Tensor, "pin_memory", refused)
    x = torch.arange(3)
    assert to_device(x, CPU) is x


@pytest.mark.parametrize("shape", [(3,), (2, 3), (0, 3), ()])
def test_the_cpu_does_not_wait_for_a_copy_to_the_gpu(shape: tuple[int, ...]) -> None:
    x = torch.ones(shape)
    with fake_cuda() as cuda:
        there = to_device(x, CUDA)
        assert isinstance(there, CudaTensor)
        assert (cuda.waits, len(cuda.uploads)) == ([], 1)
        assert torch.equal(there.cpu(), x)


def test_what_is_on_the_gpu_stays_there() -> None:
    with fake_cuda() as cuda:
        x = torch.ones(3, device=CUDA)
        assert to_device(x, CUDA).tolist() == [1, 1, 1]
        assert cuda.uploads == []
        assert torch.equal(to_device(x, CPU), torch.ones(3))

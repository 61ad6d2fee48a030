"""The fake CUDA device raises what CUDA would raise, and knows when the CPU waits for it."""

import threading
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from camp.core.errors import CampError
from camp.nn.backbones.registry import get_device
from fake_cuda import CUDA, CudaTensor, FakeCuda, fake_cuda


def on_cuda(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float32).to(CUDA)


HERE = torch.tensor([1.0, 2.0, 3.0])
ROWS = torch.tensor([0, 2])
MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "sum of both devices": (lambda: on_cuda(1, 2, 3) + HERE, "same device"),
    "product of matrices": (lambda: torch.eye(3, device="cuda") @ HERE, "device"),
    "concatenation": (lambda: torch.cat([on_cuda(1), HERE]), "device"),
    "stack of a number of the CPU": (lambda: torch.stack([on_cuda(1)[0], torch.tensor(1.0)]), "device"),
    "arange without a device": (lambda: on_cuda(1, 2, 3) * torch.arange(3), "device"),
    "mask of the CPU": (lambda: on_cuda(1, 2, 3).masked_fill(HERE > 1, 0.0), "device"),
    "where with a mask of the CPU": (lambda: torch.where(HERE > 1, on_cuda(1, 2, 3), 0.0), "device"),
    "index of the GPU into the CPU": (lambda: HERE[ROWS.to(CUDA)], "indices should be either on cpu"),
    "index_select with rows of the CPU": (lambda: on_cuda(1, 2, 3).index_select(0, ROWS), "device"),
    "gather with rows of the CPU": (lambda: on_cuda(1, 2, 3).gather(0, ROWS), "device"),
    "assignment of values of the CPU": (lambda: on_cuda(1, 2, 3).index_put_((ROWS,), HERE[:2]), "device"),
    "result into a tensor of the CPU": (lambda: HERE.clone().add_(on_cuda(1)[0]), "device"),
    "out= on the CPU": (lambda: torch.add(on_cuda(1, 2, 3), 1.0, out=torch.empty(3)), "device"),
    "labels of the CPU": (lambda: F.cross_entropy(torch.eye(3, device="cuda"), torch.arange(3)), "device"),
    "generator of the CPU": (
        lambda: torch.rand(3, device="cuda", generator=torch.Generator()),
        "'cuda' device type for generator",
    ),
    "generator of the CPU in place": (
        lambda: on_cuda(1, 2).uniform_(generator=torch.Generator()),
        "'cuda' device type for generator",
    ),
    "numpy": (lambda: on_cuda(1).numpy(), "can't convert cuda:0 device type tensor to numpy"),
    "pinning what is on the GPU": (lambda: on_cuda(1).pin_memory(), "cannot pin"),
    "input of the CPU to a network": (lambda: nn.Linear(3, 2).to(CUDA)(HERE[None]), "device"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_refused(mistake: str) -> None:
    make, message = MISTAKES[mistake]
    with fake_cuda(), pytest.raises((RuntimeError, TypeError), match=message):
        make()


class HalfForgotten(torch.autograd.Function):
    """Twice x; the gradient is multiplied by a number on the CPU that has a dimension."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: object, *gradients: Tensor) -> Tensor:
        return gradients[0] * torch.full((1,), 2.0)


def test_a_mistake_in_the_backward_pass_is_refused() -> None:
    with fake_cuda():
        loss = HalfForgotten.apply(on_cuda(1, 2, 3).requires_grad_()).sum()
        with pytest.raises(RuntimeError, match="same device"):
            loss.backward()


def test_a_mistake_in_another_thread_is_refused() -> None:
    raised: list[str] = []

    def make() -> None:
        try:
            torch.zeros(3, device="cuda") + HERE
        except RuntimeError as error:
            raised.append(str(error))

    with fake_cuda():
        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
    assert len(raised) == 1
    assert "same device" in raised[0]


def test_what_cuda_allows_is_allowed() -> None:
    with fake_cuda():
        x = on_cuda(1, 2, 3)
        allowed = [
            x * torch.tensor(2.0),  # a number of the CPU
            x[ROWS],
            x[HERE > 1],
            torch.where(x > 1, x, torch.tensor(0.0)),
            torch.zeros(3, device="cuda").copy_(HERE),
        ]
        assert all(isinstance(y, CudaTensor) and y.device == CUDA for y in allowed)
        assert [y.tolist() for y in allowed] == [[2, 4, 6], [1, 3], [2, 3], [0, 2, 3], [1, 2, 3]]
        assert type(x.cpu()) is Tensor
        assert torch.equal(torch.zeros(3).copy_(x), HERE)


def test_numbers_and_gradients_are_those_of_the_cpu() -> None:
    def trained(device: torch.device) -> list[Tensor]:
        draw = torch.Generator().manual_seed(0)
        network = nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)
        )
        for parameter in network.parameters():
            nn.init.normal_(parameter, generator=draw)
        network.to(device)
        optimizer = torch.optim.AdamW(network.parameters(), lr=0.1, fused=True)
        images, labels = torch.randn(8, 3, 4, 4, generator=draw), torch.arange(8) % 3
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(network(images.to(device)), labels.to(device)).backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
        return [value.detach().cpu() for value in network.state_dict().values()]

    expected = trained(torch.device("cpu"))
    with fake_cuda():
        for value, other in zip(trained(CUDA), expected):
            torch.testing.assert_close(value, other)


WAITS: dict[str, Callable[[Tensor], object]] = {
    "one number": lambda x: x[0].item(),
    "truth": lambda x: bool(x[0]),
    "list": lambda x: x.tolist(),
    "copy back": lambda x: x.cpu(),
    "copy into a tensor of the CPU": lambda x: torch.empty(3).copy_(x),
    "rows of a mask": lambda x: (x > 1).nonzero(),
    "distinct values": lambda x: x.unique(),
    "selection by a mask": lambda x: x[x > 1],
    "rows from the CPU": lambda x: x[ROWS],
    "copy of pageable memory": lambda x: HERE.to(CUDA),
    "copy of pageable memory that is called asynchronous": lambda x: HERE.to(CUDA, non_blocking=True),
    "copy of page-locked memory that is not called asynchronous": lambda x: HERE.pin_memory().to(CUDA),
}


@pytest.fixture
def cuda() -> FakeCuda:
    with fake_cuda() as device:
        yield device


@pytest.mark.parametrize("reason", WAITS)
def test_the_cpu_waits_for(reason: str, cuda: FakeCuda) -> None:
    x = on_cuda(1, 2, 3)
    cuda.forget()
    WAITS[reason](x)
    assert len(cuda.waits) == 1
    assert not cuda.uploads


def test_the_cpu_does_not_wait_for_arithmetic_and_asynchronous_copies(cuda: FakeCuda) -> None:
    x = on_cuda(1, 2, 3)
    cuda.forget()
    y = HERE.pin_memory().to(CUDA, non_blocking=True)
    (x * y + 1).softmax(dim=0)[:2].sum()
    x[torch.zeros(2, dtype=torch.long, device="cuda")] = 4.0
    assert cuda.waits == []
    assert len(cuda.uploads) == 1


def test_there_is_no_device_afterwards() -> None:
    with fake_cuda():
        x = on_cuda(1)
    with pytest.raises(CampError, match='no device "cuda" here'):
        get_device("cuda")
    with pytest.raises(RuntimeError, match="is gone"):
        x + 1

"""The processes that train one model together, as `torchrun` starts them; a single one without it.

Every process holds the same model and draws the same random numbers. A step's pictures are dealt out, each process
runs the network on its share, and the features are put together again, so that every loss sees the whole batch: the
numbers are those of one process, up to rounding. Only the first process writes files.
"""

import datetime
import itertools
import json
import os
import signal
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from camp.core.errors import CampError, LostProcessError, ReportedError

_TIMEOUT = datetime.timedelta(hours=2)
"""How long a process waits for the others; the first may have a bank to fill."""


def rank() -> int:
    """The number of this process, from 0; the one numbered 0 writes files."""
    return int(os.environ["RANK"]) if launched_processes() > 1 else 0


def world_size() -> int:
    """How many processes train together."""
    return dist.get_world_size() if dist.is_initialized() else 1


def is_main_process() -> bool:
    """Whether this is the process that writes files and shows progress."""
    return rank() == 0


def launched_processes() -> int:
    """The number of processes that `torchrun` started, this one among them; 1 without it.

    >>> launched_processes()
    1
    """
    return int(os.environ.get("WORLD_SIZE", 1)) if "RANK" in os.environ else 1


def local_device(name: str) -> str:
    """The device called `name`; of several GPUs of a machine each process takes the one of its number there.

    >>> local_device("cpu")
    'cpu'
    """
    return f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if name == "cuda" and launched_processes() > 1 else name


@contextmanager
def process_group() -> Iterator[None]:
    """Meet the other processes that `torchrun` started, and part from them in the end."""
    if launched_processes() == 1 or dist.is_initialized():
        yield
        return
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    if torch.cuda.is_available():  # else every process would also open the first GPU
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
    try:
        dist.init_process_group(backend, timeout=_TIMEOUT)
    except (RuntimeError, ValueError) as error:
        raise CampError(
            f"The {launched_processes()} processes of torchrun could not meet ({_first_line(error)})."
        ) from error
    before = signal.signal(signal.SIGTERM, _stopped)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        dist.destroy_process_group()


def _stopped(number: int, frame: types.FrameType | None) -> None:
    """torchrun ends all processes as soon as one of them has failed."""
    raise LostProcessError(_lost(f"stopped by signal {number}"))


def _lost(reason: str) -> str:
    return (
        f"Another of the {world_size()} processes that train together has ended, so process {rank()} can not go on "
        f"({reason}); what the last checkpoint holds is kept, and `camp run --resume FOLDER` goes on."
    )


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


@contextmanager
def _exchange_errors() -> Iterator[None]:
    """A failed exchange as a sentence: torch says much, and not what to do."""
    try:
        yield
    except RuntimeError as error:
        raise LostProcessError(_lost(_first_line(error))) from error


def shard(n: int) -> slice:
    """The part of n things in a row that is this process's.

    >>> shard(5)
    slice(0, 5, None)
    """
    return _shards(n)[rank()]


def _shards(n: int) -> list[slice]:
    """The parts of all processes, as even as can be."""
    ends = [n * i // world_size() for i in range(world_size() + 1)]
    return [slice(a, b) for a, b in itertools.pairwise(ends)]


class _AllGather(torch.autograd.Function):
    """All shards of axis 0 in a row. The loss behind it is one and the same in every process, so the gradient
    of a share is the part of it that every process already has."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, n: int) -> Tensor:
        ctx.mine = shard(n)
        return _gather(x, n)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0][ctx.mine], None


def all_gather(x: Tensor, n: int) -> Tensor:
    """(n, ...) of all processes from the share x (m, ...) of this one; what follows must be the same in each."""
    return x if world_size() == 1 else _AllGather.apply(x, n)


def _gather(x: Tensor, n: int) -> Tensor:
    shards = _shards(n)
    most = max(s.stop - s.start for s in shards)
    padded = x.new_zeros(most, *x.shape[1:])
    padded[: len(x)] = x
    parts = [torch.empty_like(padded) for _ in shards]
    with _exchange_errors():
        dist.all_gather(parts, padded)
    return torch.cat([part[: s.stop - s.start] for part, s in zip(parts, shards)])


class _AllReduceSum(torch.autograd.Function):
    """The sum over processes, each of which goes on with it by itself: gradients add up too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return _all_reduce(x.clone())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return _all_reduce(gradients[0].contiguous().clone())


def all_reduce_sum(x: Tensor) -> Tensor:
    """The sum of x over all processes, for use inside the network, where each sees its own share."""
    return x if world_size() == 1 else _AllReduceSum.apply(x)


def _all_reduce(x: Tensor) -> Tensor:
    with _exchange_errors():
        dist.all_reduce(x)
    return x


@torch.no_grad()
def reduce_gradients(shared: Iterable[Tensor], whole: Iterable[Tensor]) -> None:
    """Give every process the same gradients: the sum for parameters that each ran on its share of the pictures
    (`shared`), the first process's for those that each ran on all of them (`whole`)."""
    if world_size() == 1:
        return
    summands, firsts = _gradients(shared), _gradients(whole)
    if not is_main_process():
        for gradient in firsts:
            gradient.zero_()
    gradients = [*summands, *firsts]
    flat = _all_reduce(torch.cat([g.flatten() for g in gradients]))
    for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients])):
        gradient.copy_(part.view_as(gradient))


def _gradients(parameters: Iterable[Tensor]) -> list[Tensor]:
    """Of all parameters; one that took no part in a share counts with zeros, so that all processes send alike."""
    gradients = []
    for p in parameters:
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        gradients.append(p.grad)
    return gradients


def map_sharded(n: int, compute: Callable[[Tensor], Tensor]) -> Tensor:
    """compute(rows) (m, ...) of the rows 0 .. n - 1, dealt out to the processes and put together, (n, ...).

    Every process must have at least one row to know the shape, so few rows are computed by everyone.
    """
    if n < world_size():
        return compute(torch.arange(n))
    return all_gather(compute(torch.arange(n)[shard(n)]), n)


def broadcast(value: Any) -> Any:
    """The first process's `value`, which JSON must be able to say, in every process."""
    if world_size() == 1:
        return value
    return json.loads(broadcast_bytes(json.dumps(value).encode() if is_main_process() else b""))


def broadcast_bytes(data: bytes) -> bytes:
    """The first process's `data` in every process."""
    if world_size() == 1:
        return data
    length = torch.tensor([len(data)])
    with _exchange_errors():
        dist.broadcast(length, src=0)
        box = _bytes(data, int(length))
        dist.broadcast(box, src=0)
    return box.numpy().tobytes()


def _bytes(data: bytes, length: int) -> Tensor:
    """(length,) uint8: `data` and zeros behind it."""
    box = torch.zeros(length, dtype=torch.uint8)
    mine = data[:length]
    if mine:
        box[: len(mine)] = torch.frombuffer(bytearray(mine), dtype=torch.uint8)
    return box


@contextmanager
def synchronized_errors() -> Iterator[None]:
    """If a process fails inside with a sentence, all of them end with it. Nothing may be exchanged inside."""
    failure = ""
    try:
        yield
    except CampError as error:
        if world_size() == 1:
            raise
        failure = str(error)
    if world_size() == 1:
        return
    failures = _texts(failure)
    for number, text in enumerate(failures):
        if text:
            alone = number and not failures[0]
            raise ReportedError(f"In process {number}: {text}" if alone else text)


def _texts(text: str) -> list[str]:
    """The `text` of each process, in all of them."""
    data = text.encode()
    lengths = [torch.zeros(1, dtype=torch.long) for _ in range(world_size())]
    with _exchange_errors():
        dist.all_gather(lengths, torch.tensor([len(data)]))
        most = max(int(length) for length in lengths)
        boxes = [torch.zeros(most, dtype=torch.uint8) for _ in lengths]
        dist.all_gather(boxes, _bytes(data, most))
    return [box.numpy().tobytes()[: int(n)].decode() for box, n in zip(boxes, lengths)]

"""Distributed training with `torchrun`; without it, every function works for a single process.

Every process holds the same model and draws the same random numbers. The images of a batch are
sharded, each process runs the network on its shard, and the features are gathered, so that every
loss sees the whole batch: the results are those of one process, up to rounding. Only the main
process (rank 0) writes files.
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

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from camp.core.errors import CampError, LostProcessError, ReportedError

_TIMEOUT = datetime.timedelta(hours=2)
"""Timeout of collective operations; long, because the main process may have to fill a view bank."""


def rank() -> int:
    """Return the rank of this process, 0 for the main process."""
    return int(os.environ["RANK"]) if launched_processes() > 1 else 0


def world_size() -> int:
    """Return the number of processes in the group."""
    return dist.get_world_size() if dist.is_initialized() else 1


def is_main_process() -> bool:
    """Return whether this process writes files and shows progress."""
    return rank() == 0


def launched_processes() -> int:
    """Return the number of processes that `torchrun` started, including this one; 1 without `torchrun`.

    >>> launched_processes()
    1
    """
    return int(os.environ.get("WORLD_SIZE", 1)) if "RANK" in os.environ else 1


def local_device(name: str) -> str:
    """Return the device for this process: "cuda" becomes the GPU with its local rank.

    >>> local_device("cpu")
    'cpu'
    """
    return f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if name == "cuda" and launched_processes() > 1 else name


@contextmanager
def process_group() -> Iterator[None]:
    """Initialize the process group of the processes that `torchrun` started, and destroy it at the end."""
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
            f"The {launched_processes()} processes of torchrun could not connect ({_first_line(error)})."
        ) from error
    after = signal.signal(signal.SIGTERM, _handle_sigterm)
    try:
        yield
    except LostProcessError:
        after = signal.SIG_IGN  # torchrun terminates this process too, which still has to print the error
        raise
    finally:
        signal.signal(signal.SIGTERM, after)
        dist.destroy_process_group()


def _handle_sigterm(number: int, frame: types.FrameType | None) -> None:
    """Report a lost process: torchrun terminates all processes as soon as one of them has failed."""
    raise LostProcessError(_lost_message(f"stopped by signal {number}"))


def _lost_message(reason: str) -> str:
    return (
        f"Another of the {world_size()} processes of this run has ended, so process {rank()} cannot continue "
        f"({reason}); the last checkpoint is kept, and `camp run --resume FOLDER` continues from it."
    )


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


@contextmanager
def _exchange_errors() -> Iterator[None]:
    """Turn an error of a collective operation into one sentence that says what to do."""
    try:
        yield
    except RuntimeError as error:
        raise LostProcessError(_lost_message(_first_line(error))) from error


def shard(n: int) -> slice:
    """Return the slice of n items that this process handles.

    >>> shard(5)
    slice(0, 5, None)
    """
    return _shards(n)[rank()]


def _shards(n: int) -> list[slice]:
    """Return the slices of all processes, as equal in size as possible."""
    ends = [n * i // world_size() for i in range(world_size() + 1)]
    return [slice(a, b) for a, b in itertools.pairwise(ends)]


class _AllGather(torch.autograd.Function):
    """Concatenate the shards of axis 0.

    Every process computes the same loss from the result, so the gradient of a shard is a slice of a
    gradient that the process already has: the backward pass needs no communication.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, n: int) -> Tensor:
        ctx.own_shard = shard(n)
        return _gather(x, n)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0][ctx.own_shard], None


def all_gather(x: Tensor, n: int) -> Tensor:
    """Concatenate the shards x (m, ...) of all processes to (n, ...).

    The gradient is correct only if all processes compute the same loss from the result.
    """
    apply: Callable[[Tensor, int], Tensor] = _AllGather.apply
    return x if world_size() == 1 else apply(x, n)


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
    """Sum over processes; each continues differently, so the backward pass sums the gradients as well."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return _all_reduce(x.clone())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return _all_reduce(gradients[0].contiguous().clone())


def all_reduce_sum(x: Tensor) -> Tensor:
    """Sum x over all processes, for use inside the network, where each process sees its own shard."""
    apply: Callable[[Tensor], Tensor] = _AllReduceSum.apply
    return x if world_size() == 1 else apply(x)


def _all_reduce(x: Tensor) -> Tensor:
    with _exchange_errors():
        dist.all_reduce(x)
    return x


@torch.no_grad()
def reduce_gradients(sharded: Iterable[Tensor], replicated: Iterable[Tensor]) -> None:
    """Give every process the same gradients.

    Args:
        sharded: Parameters applied to the shard of each process; their gradients are summed.
        replicated: Parameters applied to the whole batch in each process; the main process's
            gradients are used.
    """
    if world_size() == 1:
        return
    summed, copied = _gradients(sharded), _gradients(replicated)
    if not is_main_process():
        for gradient in copied:
            gradient.zero_()
    gradients = [*summed, *copied]
    flat = _all_reduce(torch.cat([g.flatten() for g in gradients]))
    for gradient, part in zip(gradients, torch.split(flat, [g.numel() for g in gradients])):
        gradient.copy_(part.view_as(gradient))


def _gradients(parameters: Iterable[Tensor]) -> list[Tensor]:
    """Return the gradients, with zeros for missing ones, so that all processes send the same sizes."""
    gradients = []
    for p in parameters:
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        gradients.append(p.grad)
    return gradients


def map_sharded(n: int, compute: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply `compute` to shards of the rows 0 .. n - 1 and concatenate the results to (n, ...).

    With fewer rows than processes every process computes all of them, since an empty shard has an
    unknown shape.
    """
    if n < world_size():
        return compute(torch.arange(n))
    return all_gather(compute(torch.arange(n)[shard(n)]), n)


def broadcast(value: Any) -> Any:
    """Return the main process's `value`, which must be serializable as JSON, in every process."""
    if world_size() == 1:
        return value
    return json.loads(broadcast_bytes(json.dumps(value).encode() if is_main_process() else b""))


def broadcast_bytes(data: bytes, source: int = 0) -> bytes:
    """Return the `data` of the process with rank `source`, by default the main process, in every process."""
    if world_size() == 1:
        return data
    length = torch.tensor([len(data)])
    with _exchange_errors():
        dist.broadcast(length, src=source)
        buffer = torch.zeros(int(length), dtype=torch.uint8)
        if rank() == source:
            buffer.numpy()[:] = np.frombuffer(data, dtype=np.uint8)
        dist.broadcast(buffer, src=source)
    return buffer.numpy().tobytes()


def on_main_process(compute: Callable[[], Any]) -> Any:
    """Return in every process what `compute` returns in the main process; a `CampError` is raised in all."""
    value = None
    with synchronized_errors():
        if is_main_process():
            value = compute()
    return broadcast(value)


@contextmanager
def synchronized_errors() -> Iterator[None]:
    """Raise a `CampError` of one process in all of them; no collective operation may run inside."""
    failure = ""
    try:
        yield
    except CampError as error:
        if world_size() == 1:
            raise
        failure = str(error)
    if world_size() == 1:
        return
    failures = [broadcast_bytes(failure.encode(), source).decode() for source in range(world_size())]
    for number, text in enumerate(failures):
        if text:
            alone = number and not failures[0]
            raise ReportedError(f"In process {number}: {text}" if alone else text)

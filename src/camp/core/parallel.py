"""Parallel work in threads that never wait for each other inside an operation.

Threads that share a small operation, such as a matrix product of a millisecond, wait for each other at its end. On a busy
machine one of them has no core at that moment, and the others wait for a time slice, again and again. So each thread here
does whole pieces of work with operations of one thread, and what is too small to be divided runs in one thread. Pillow,
torch, scipy and onnxruntime release the interpreter lock, so that threads do not block each other.
"""

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")

_workers: ContextVar[int | None] = ContextVar("workers", default=None)
"""Number of threads of `threaded_map` inside of `single_threaded`."""


def threaded_map(
    function: Callable[[Item], Result], items: Iterable[Item], lookahead: int = 64, threads: int | None = None
) -> Iterator[Result]:
    """Apply `function` like `map`, up to `lookahead` results in advance.

    By default there is one thread per core; more `threads` are for work that waits for a disk.
    """
    cores = torch.get_num_threads()
    workers = threads or _workers.get() or cores
    try:
        with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            waiting: deque[Future[Result]] = deque()
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > lookahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
    finally:
        torch.set_num_threads(cores)  # the threads' setting would become the default of new threads


@contextlib.contextmanager
def single_threaded() -> Iterator[None]:
    """Run operations in one thread; `threaded_map` has as many threads inside as it would have outside.

    Results do not depend on the number of cores then.
    """
    threads = torch.get_num_threads()
    token = _workers.set(_workers.get() or threads)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        _workers.reset(token)

"""A Ray cluster: connection, resources, and tasks whose results come in order.

The code must be installed on every node. Ray sends Python objects between its own processes by pickle; nothing on disk
is pickled.
"""

import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from camp.core.errors import CampError
from camp.core.extras import import_extra

RETRIES = 3
"""Number of times that work is started again after its worker was lost."""
CONNECT_SECONDS = 5.0
"""Time in which a cluster must answer."""


@dataclass(frozen=True)
class Resources:
    """What a worker needs."""

    cpus: float = 1.0
    gpus: float = 0.0
    """A fraction shares a GPU."""

    def __post_init__(self) -> None:
        if self.cpus < 0 or self.gpus < 0:
            raise CampError("The numbers of CPUs and GPUs cannot be negative.")

    @property
    def threads(self) -> int:
        """Number of threads of a worker."""
        return max(1, int(self.cpus))


class RayCluster:
    """A connection to a Ray cluster.

    Args:
        option: The option that asks for Ray, for messages: "--executor ray".
        address: Address of the cluster; by default one is started on this machine.
    """

    def __init__(self, option: str, address: str | None = None) -> None:
        self.ray: Any = import_extra("ray", "ray", option)
        _check_reachable(address)
        if address is None:  # Ray's own workers would hardly get a core beside other programs
            os.environ.setdefault("RAY_worker_niceness", "0")
        try:
            self.ray.init(
                address=address, log_to_driver=False, ignore_reinit_error=True, logging_level=logging.ERROR
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            where = f"at {address}" if address else "on this machine"
            raise CampError(f"There is no Ray cluster {where} ({str(error).splitlines()[0]}).") from error

    def close(self) -> None:
        """End the connection, and the cluster if it was started here."""
        self.ray.shutdown()

    def total(self, name: str) -> float:
        """Return how many "CPU" or "GPU" the cluster has."""
        return float(self.ray.cluster_resources().get(name, 0.0))

    def number_that_fit(self, need: Resources, what: str) -> int:
        """Return how many workers the cluster has room for; refuse more than it has.

        Args:
            need: What each worker needs.
            what: What a worker does, as the subject of a sentence: "A run".
        """
        fits = []
        for name, amount in (("CPU", need.cpus), ("GPU", need.gpus)):
            present = self.total(name)
            if amount > present:
                raise CampError(f"{what} needs {amount:g} {name}s, and the whole cluster has {present:g}.")
            if amount:
                fits.append(int(present / amount))
        return min(fits, default=1)

    def task(self, function: Callable[..., Any], need: Resources) -> Any:
        """Return `function` as a Ray task, which is started again if its worker is lost."""
        return self.ray.remote(function).options(
            num_cpus=need.cpus, num_gpus=need.gpus, max_retries=RETRIES, retry_exceptions=False
        )

    def map_ordered(
        self, task: Any, calls: Iterable[tuple[Any, ...]], window: int, what: str
    ) -> Iterator[Any]:
        """Call a Ray task with each tuple of arguments, `window` at a time, and yield the results in order.

        Args:
            task: What `task` has returned.
            calls: Arguments, which are made when they are needed.
            window: Number of calls under way.
            what: What is made, for the message of a failure: "A part of the view bank".
        """
        refs: deque[Any] = deque()
        try:
            for arguments in calls:
                refs.append(task.remote(*arguments))
                if len(refs) >= window:
                    yield self.result(refs.popleft(), what)
            while refs:
                yield self.result(refs.popleft(), what)
        finally:
            for ref in refs:
                self.ray.cancel(ref, force=True)

    def result(self, ref: Any, what: str) -> Any:
        """Return the result of a task; its failure is a `CampError` about `what`."""
        try:
            return self.ray.get(ref)
        except self.ray.exceptions.RayError as error:
            raise self.failure(error, what) from error

    def failure(self, error: Exception, what: str) -> CampError:
        """Return the sentence about a failure: that of a `CampError` in the worker, or one about `what`."""
        cause = getattr(error, "cause", None)
        if isinstance(cause, CampError):
            return cause
        reason = str(error).strip().splitlines()[-1].rstrip(".")
        return CampError(f"{what} could not be made on the cluster ({reason}).")


def _check_reachable(address: str | None) -> None:
    """Refuse an address where nothing answers; Ray itself would wait for minutes."""
    place = (address or "").removeprefix("ray://").rpartition(":")
    if not place[0]:  # no address, or a word such as auto
        return
    try:
        socket.create_connection((place[0], int(place[2])), CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        raise CampError(f"There is no Ray cluster at {address} ({error}).") from error

"""The trunk on a Ray cluster: digests and blocks of views for the view bank of a batch that is learned.

The results come in the order in which one machine computes them, in the same blocks, so that the bank is the same.
"""

import functools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from camp.app.engines.nodes import check_places
from camp.app.inputs.listed import ListedImages
from camp.core.errors import CampError
from camp.core.extras import import_extra
from camp.core.parallel import threaded_map
from camp.core.ray_cluster import RayCluster, Resources
from camp.data.bank.bank import BankSpec
from camp.data.bank.block_arrays import BlockArrays, from_arrays, to_arrays
from camp.data.bank.fill import Block, digest_or_fault, encode_blocks, images_per_block
from camp.data.datasets.base import Reader
from camp.nn.backbones.base import Backbone
from camp.nn.backbones.engine import OnnxEngine

IMAGES_PER_TASK = 256
"""About the number of images of a task."""
TASKS_PER_WORKER = 2
"""Tasks under way for each worker, so that none waits."""


class RayTrunk:
    """Computes digests and views of the images of a batch on a cluster.

    Args:
        cluster: The cluster.
        images: The batch; every node must see it, unless its images can only be read in order (`access`). Those are
            read here and sent.
        need: CPUs and GPUs of each task.
    """

    def __init__(self, cluster: RayCluster, images: ListedImages, need: Resources) -> None:
        self.cluster, self.images, self.need = cluster, images, need
        self.window = TASKS_PER_WORKER * cluster.number_that_fit(need, "A task")
        self.sent = images.access == "sequential"
        self.places = () if self.sent else tuple(images.places())

    def digests(self, keys: Sequence[str]) -> Iterator[bytes | str]:
        """Yield the digest of each image, or why it cannot be read, in order."""
        if self.sent:
            yield from threaded_map(functools.partial(digest_or_fault, self.images.reader), keys)
            return
        shards = [keys[i : i + IMAGES_PER_TASK] for i in range(0, len(keys), IMAGES_PER_TASK)]
        calls = ((self.images.reader_of(shard), list(shard), self.places) for shard in shards)
        task = self.cluster.task(_digests_of, self.need)
        for outcomes in self.cluster.map_ordered(task, calls, self.window, "The fingerprints"):
            yield from outcomes

    def blocks(
        self,
        spec: BankSpec,
        backbone: Backbone,
        digests: Mapping[str, bytes],
        keys: Sequence[str],
        with_augmented: Collection[str],
    ) -> Iterator[Block]:
        """Yield blocks as `encode_blocks` does, in its order; all images have augmented views, or none has."""
        if self.need.gpus and isinstance(backbone.trunk, OnnxEngine):
            raise CampError(
                "The trunk of this workspace runs on the CPU; leave out --gpus, or create a workspace with --device cuda."
            )
        size = images_per_block(spec, bool(with_augmented))
        step = size * max(1, IMAGES_PER_TASK // size)
        shared = self.cluster.ray.put(backbone.on(torch.device("cpu")))
        calls = (
            (
                [shared],  # in a list, as Ray would replace a bare reference by a copy for every task
                spec,
                self.images.reader_of(shard),
                {key: digests[key] for key in shard},
                bool(with_augmented),
                self.places,
                self.need,
            )
            for shard in (keys[i : i + step] for i in range(0, len(keys), step))
        )
        task = self.cluster.task(_blocks_of, self.need)
        for blocks in self.cluster.map_ordered(task, calls, self.window, "A part of the view bank"):
            yield from from_arrays(blocks)


def _digests_of(reader: Reader, keys: Sequence[str], places: Sequence[Path]) -> list[bytes | str]:
    """Compute digests in a worker."""
    check_places(places)
    return list(threaded_map(functools.partial(digest_or_fault, reader), keys))


@functools.lru_cache(maxsize=1)
def _backbone(reference: Any, need: Resources) -> Backbone:
    """Return the backbone, which comes to each worker once."""
    torch.set_num_threads(need.threads)
    backbone: Backbone = import_extra("ray", "ray", "--engine ray").get(reference)
    return backbone.on(torch.device("cuda")) if need.gpus else backbone


def _blocks_of(
    shared: list[Any],
    spec: BankSpec,
    reader: Reader,
    digests: Mapping[str, bytes],
    augmented: bool,
    places: Sequence[Path],
    need: Resources,
) -> BlockArrays:
    """Make blocks of views in a worker."""
    check_places(places)
    keys = list(digests)
    with_augmented: Iterable[str] = keys if augmented else ()
    return to_arrays(
        encode_blocks(spec, _backbone(shared[0], need), reader, digests, keys, frozenset(with_augmented))
    )

"""A real Ray cluster of two nodes on this machine, and pictures that keep it busy for some seconds."""

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from small_images import KINDS, picture

from camp.core.ray_cluster import RayCluster


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of two nodes of one CPU each."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 10**8})
    cluster.add_node(num_cpus=1, object_store_memory=10**8)
    yield cluster.address
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture
def cluster(address: str) -> RayCluster:
    """A connection to the cluster."""
    return RayCluster("--engine ray", address)


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """150 pictures that take some milliseconds to be decoded, of five kinds, and two files that are none."""
    folder = tmp_path_factory.mktemp("pictures")
    for kind in KINDS:
        small = picture(kind, 2000).resize((700, 700))
        noise = np.random.default_rng(KINDS.index(kind)).integers(-9, 9, (700, 700, 3))
        file = io.BytesIO()
        Image.fromarray((np.asarray(small) + noise).clip(0, 255).astype(np.uint8)).save(file, format="PNG")
        for number in range(
            KINDS.index(kind), 150, len(KINDS)
        ):  # bytes behind the end make another file of it
            (folder / f"{number:03d}.png").write_bytes(file.getvalue() + bytes([number]))
    (folder / "050-bad.png").write_bytes(b"?")
    (folder / "120-empty.jpg").write_bytes(b"")
    return folder

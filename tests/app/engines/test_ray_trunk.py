"""Learning with the trunk on a real Ray cluster of two nodes on this machine; workers are killed for real."""

from pathlib import Path

import pytest
import torch
from small_cluster import killed_once
from small_images import batch

from camp.app.engines import ray_trunk
from camp.app.engines.ray_trunk import RayTrunk
from camp.app.inputs.listed import ListedImages
from camp.app.inputs.sources import learning_source
from camp.app.workspace.pipeline import fill_bank
from camp.app.workspace.training_budget import TrainingBudget
from camp.cli import main
from camp.core.errors import CampError
from camp.core.progress import Progress
from camp.core.ray_cluster import RayCluster, Resources
from camp.data.bank.fill import FillResult
from camp.nn.backbones import make_backbone
from camp.nn.backbones.base import Backbone
from camp.nn.backbones.settings import BackboneSettings

pytestmark = pytest.mark.slow
QUIET = Progress(quiet=True)
NEED = Resources()
LITE0 = BackboneSettings(resolution=32)


def backbone_of(settings: BackboneSettings) -> Backbone:
    return make_backbone(settings, torch.Generator().manual_seed(0))


def bank(
    folder: Path,
    images: ListedImages,
    settings: BackboneSettings,
    views: int,
    cluster: RayCluster | None = None,
) -> tuple[FillResult, dict[str, bytes]]:
    """Fill a bank; its outcome, and the content of its files."""
    trunk = RayTrunk(cluster, images, NEED) if cluster is not None else None
    budget = TrainingBudget(epochs=1, views=views)
    filled, _ = fill_bank(backbone_of(settings), images.reader, images.keys, budget, folder, QUIET, trunk)
    return filled, {path.name: path.read_bytes() for path in sorted(folder.rglob("*.bin"))}


def test_a_worker_killed_in_the_middle_does_not_change_the_bank(
    cluster, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(ray_trunk, "IMAGES_PER_TASK", 16)
    images, begun = learning_source(str(pictures)), tmp_path / "there"
    with killed_once("_blocks_of", lambda: any(f.stat().st_size for f in begun.rglob("*.bin"))) as killed:
        there = bank(begun, images, LITE0, 4, cluster)
    assert killed
    assert there == bank(tmp_path / "here", images, LITE0, 4)
    assert set(there[0].bad) == {"050-bad.png", "120-empty.jpg"}
    assert there[1]


@pytest.mark.parametrize(("settings", "views"), [(LITE0, 0), (BackboneSettings(backbone="conv-tiny"), 4)])
def test_the_cluster_makes_the_bank_that_one_machine_makes(
    cluster, tmp_path: Path, settings: BackboneSettings, views: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(ray_trunk, "IMAGES_PER_TASK", 16)
    images = learning_source(str(batch(tmp_path / "birds", {"heron": 50}, {"wren": 50})))
    here = bank(tmp_path / "here", images, settings, views)
    assert here[1]
    assert bank(tmp_path / "there", images, settings, views, cluster) == here


def test_images_that_can_only_be_read_in_order_are_sent(cluster, tmp_path: Path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    folder = batch(tmp_path / "birds", {"heron": 20}, {"wren": 20})
    rows = [path.read_bytes() for path in sorted(folder.rglob("*.png"))]
    parquet.write_table(arrow.table({"image": [*rows, b"?"]}), tmp_path / "birds.parquet", row_group_size=7)
    images = learning_source(str(tmp_path / "birds.parquet"), on_cluster=True)
    (tmp_path / "hidden").mkdir()
    list(map(images.reader.read, images.keys))  # from now on the copy is read
    (tmp_path / "birds.parquet").rename(tmp_path / "hidden" / "birds.parquet")
    there = bank(tmp_path / "there", images, LITE0, 2, cluster)
    assert there == bank(tmp_path / "here", images, LITE0, 2)
    assert set(there[0].bad) == {"birds.parquet/000040"}


def test_learning_on_a_cluster_stores_what_one_machine_stores(address: str, tmp_path: Path, capfd):
    folder = batch(tmp_path / "birds", {"heron": 20, "robin": 20}, {"wren": 20})
    (folder / "bad.png").write_bytes(b"?")
    options = ["--resolution", "32", "--epochs", "2", "--views", "3", "--new", "1", "--quiet"]
    assert main(["learn", str(tmp_path / "here"), str(folder), *options]) == 0
    ray = ["--engine", "ray", "--address", address]
    assert main(["learn", str(tmp_path / "there"), str(folder), *options, *ray]) == 0
    for pattern in (
        "steps/0001/*.safetensors",
        "steps/0001/features.npy",
        "steps/0001/files.json",
        "thumbnails/*/*",
    ):
        here = {path.name: path.read_bytes() for path in (tmp_path / "here").glob(pattern)}
        assert here
        assert {path.name: path.read_bytes() for path in (tmp_path / "there").glob(pattern)} == here
    assert not (tmp_path / "there" / "bank").exists()


def test_what_the_nodes_do_not_see_is_refused(cluster, tmp_path: Path):
    images = learning_source(str(batch(tmp_path / "birds", {"heron": 3})))
    (tmp_path / "birds").rename(tmp_path / "gone")
    with pytest.raises(CampError, match=r"The node .* does not see .*birds; give a URL, or put the pictures"):
        bank(tmp_path / "bank", images, LITE0, 2, cluster)


def test_a_gpu_for_a_trunk_on_the_cpu_is_refused(cluster, tmp_path: Path):
    images = learning_source(str(batch(tmp_path / "birds", {"heron": 3})))
    trunk = RayTrunk(cluster, images, NEED)
    trunk.need = Resources(1, 1)  # this cluster has none
    with pytest.raises(CampError, match="runs on the CPU; leave out --gpus"):
        list(trunk.blocks(None, backbone_of(LITE0), {}, [], ()))

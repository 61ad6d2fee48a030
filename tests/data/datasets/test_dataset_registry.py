"""The list of data sets."""

import subprocess
import sys
from pathlib import Path

import pytest

from camp.core.errors import CampError
from camp.data.datasets import DATASETS, data_folder, is_present, load_dataset
from camp.data.datasets.info import Archive


def test_names_and_numbers():
    assert all(name == info.name for name, info in DATASETS.items())
    # N of the paper's table of splits
    table = {"cifar100": 5, "stanford_cars": 4, "cub200": 5, "fgvc_aircraft": 5, "domainnet": 6}
    assert {name: DATASETS[name].tasks for name in table} == table
    # The fewest of the paper's table of class-incremental learning; cifar100 and domainnet have the same in both.
    table["imagenet_subset"] = 5
    assert DATASETS["imagenet_subset"].tasks == 5
    assert all(DATASETS[name].order == "paper" for name in table)
    # s of the reference's random crops
    crops = {"cifar100": 0.08, "stanford_cars": 0.08, "cub200": 0.3, "fgvc_aircraft": 0.3, "domainnet": 0.3}
    assert {name: DATASETS[name].crop_scale for name in crops} == crops
    assert [name for name, info in DATASETS.items() if not info.flip] == ["digits", "embeddings"]


def test_every_download_has_a_checksum_or_says_so():
    for info in DATASETS.values():
        for archive in info.archives:
            kind, _, digest = (archive.checksum or ":").partition(":")
            assert (kind, len(digest)) in (("md5", 32), ("sha256", 64)) or archive.note
    with pytest.raises(ValueError, match="note"):
        Archive("http://localhost/x.zip", None)


def test_unknown_names_and_options():
    with pytest.raises(CampError, match="no data set 'imagenet22k'; known are digits, cifar10"):
        load_dataset("imagenet22k")
    with pytest.raises(CampError, match="no option 'fold'; it has split"):
        load_dataset("cub200", Path("/"), fold=1)
    with pytest.raises(CampError, match="it has none"):
        load_dataset("digits", split="official")


def test_default_place(monkeypatch, tmp_path):
    monkeypatch.setenv("CAMP_DATA", str(tmp_path))
    assert data_folder("cub200") == tmp_path / "cub200"
    assert not is_present("cub200")
    with pytest.raises(CampError, match="camp datasets get cub200"):
        load_dataset("cub200")
    (tmp_path / "cub200" / "train").mkdir(parents=True)
    assert is_present("cub200")
    assert is_present("cub200", tmp_path / "cub200")
    assert not is_present("cub200", tmp_path)
    assert is_present("digits")
    monkeypatch.delenv("CAMP_DATA")
    assert data_folder("cub200") == Path.home() / ".cache" / "camp" / "data" / "cub200"


def test_the_registry_imports_nothing_heavy():
    code = (
        "import sys, camp.data.make_split; print({'torch', 'sklearn', 'scipy', 'pooch'} & set(sys.modules))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "set()"

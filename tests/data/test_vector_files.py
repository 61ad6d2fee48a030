"""Files of vectors are read from the disk, and refused in one sentence."""

from pathlib import Path

import numpy as np
import pytest
import torch

from camp.core.errors import CampError
from camp.core.progress import Progress
from camp.data import vector_files
from camp.data.bank.bank import Bank, BankSpec
from camp.data.bank.fill import fill
from camp.data.bank.views import FreshViews, ViewRenderer
from camp.data.digests import groups, rows_in
from camp.data.vector_files import RowNames, VectorReader, blocks, open_array, open_vectors
from camp.data.vector_views import VectorViews
from camp.data.view_settings import Augmentation, ViewSettings
from camp.nn.backbones import BackboneSettings, make_backbone

X = np.random.default_rng(0).normal(size=(300, 12)).astype(np.float32)


@pytest.mark.parametrize("name", ["x.npy", "x.npz", "packed.npz"])
def test_vectors_of_a_file_are_those_that_were_saved(name, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(vector_files, "BLOCK_BYTES", 1000)
    np.save(tmp_path / "x.npy", X)
    np.savez(tmp_path / "x.npz", labels=np.arange(300), vectors=X)
    np.savez_compressed(tmp_path / "packed.npz", vectors=X)
    vectors = open_vectors(tmp_path / name)
    assert isinstance(vectors, np.memmap) == (name != "packed.npz")
    np.testing.assert_array_equal(vectors, X)
    parts = list(blocks(vectors))
    assert len(parts) > 1
    np.testing.assert_array_equal(np.concatenate([part for _, part in parts]), X)
    assert all(np.array_equal(X[rows], part) for rows, part in parts)
    reader = VectorReader(vectors)
    np.testing.assert_array_equal(reader.decode(reader.read("row 17")), X[17])


def test_columns_stored_one_after_the_other_are_read(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(vector_files, "BLOCK_BYTES", 1000)
    np.savez(tmp_path / "x.npz", vectors=np.asfortranarray(X))
    np.testing.assert_array_equal(open_vectors(tmp_path / "x.npz"), X)


def test_what_are_no_vectors_is_refused(tmp_path) -> None:
    np.save(tmp_path / "flat.npy", X[0])
    np.save(tmp_path / "words.npy", np.array([["a"]]))
    np.savez(tmp_path / "other.npz", x=X)
    np.save(tmp_path / "objects.npy", np.array([[None]], dtype=object), allow_pickle=True)
    (tmp_path / "text.npy").write_text("hello")
    for name, said in {
        "flat.npy": "not numbers",
        "words.npy": "not numbers",
        "other.npz": "lacks the array",
        "objects.npy": "cannot be read as plain arrays",
        "text.npy": "cannot be read as plain arrays",
        "missing.npy": "There is no file",
    }.items():
        with pytest.raises(CampError, match=said):
            open_vectors(tmp_path / name)
    assert open_array(tmp_path / "other.npz", "labels") is None


def test_row_names_are_strings_that_need_no_memory() -> None:
    names = RowNames(1_000_000_000, "row ")
    assert (names[-1], names[5:7], len(names)) == ("row 999999999", ["row 5", "row 6"], 1_000_000_000)
    assert list(RowNames(2)) == ["0", "1"]


def test_views_of_vectors_are_those_of_a_bank_of_vectors(tmp_path) -> None:
    backbone = make_backbone(
        BackboneSettings(backbone="embeddings", dim=12), torch.Generator().manual_seed(0)
    )
    look, keys = ViewSettings(bank=str(tmp_path)), [f"row {row}" for row in range(len(X))]
    bank = Bank.open(look, BankSpec.for_encoder(backbone, look, Augmentation()))
    filled = fill(bank, backbone, VectorReader(X), keys, set(), Progress(quiet=True))
    renderer = ViewRenderer(backbone, Augmentation(), backbone.mean, backbone.std)
    digests = [filled.digests[key] for key in keys]
    stored = FreshViews(Bank(bank.folder, bank.spec), digests, torch.device("cpu"), renderer)
    as_array = np.array([list(digest) for digest in digests], dtype=np.uint8)
    direct = VectorViews(X, np.arange(len(X)), as_array, torch.device("cpu"), Augmentation())
    chosen = torch.tensor([5, 250, 7])
    for make in (lambda views: views, lambda views: views.subset(torch.arange(40, 300))):
        one, other = make(stored), make(direct)
        rows = chosen.clamp_max(len(one) - 1)
        ids = one.draw(rows, 2, torch.Generator().manual_seed(3))
        assert torch.equal(ids, other.draw(rows, 2, torch.Generator().manual_seed(3)))
        assert torch.equal(one.clean(rows)["vector"], other.clean(rows)["vector"])
        assert torch.equal(one.augmented(rows, ids)["vector"], other.augmented(rows, ids)["vector"])
        assert torch.equal(one.digests(), other.digests())
    both = direct.subset(torch.tensor([1, 2])).concat(direct.subset(torch.tensor([9])))
    assert torch.equal(both.clean(torch.tensor([2]))["vector"][0], torch.from_numpy(X[9]))
    again = direct.from_digests(both.digests())
    assert torch.equal(again.clean(torch.arange(3))["vector"], torch.from_numpy(X[[1, 2, 9]]))


def test_digests_are_found_and_grouped() -> None:
    digests = np.random.default_rng(0).integers(0, 256, (50, 16), dtype=np.uint8)
    mixed = digests[[3, 4, 3, 7, 4, 3]]
    assert rows_in(mixed, digests).tolist() == [3, 4, 3, 7, 4, 3]
    assert rows_in(digests[:2], digests[2:]).tolist() == [-1, -1]
    assert rows_in(digests[:2], digests[:0]).tolist() == [-1, -1]
    first, group = groups(mixed)
    assert first[group].tolist() == [0, 1, 0, 3, 1, 0]


def test_another_file_with_the_suffix_is_not_taken_for_a_pickle(tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(b"no array")
    with pytest.raises(CampError, match="does not begin as an") as error:
        open_vectors(tmp_path / "x.npy")
    assert "allow_pickle" not in str(error.value)

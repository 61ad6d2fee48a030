"""The view bank: content, interruptions and views."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from camp.core.errors import CampError
from camp.core.progress import Progress
from camp.data.augmentations import normalise_, to_unit
from camp.data.bank.bank import Bank, BankSpec
from camp.data.bank.check import check_bank
from camp.data.bank.fill import FillResult, fill
from camp.data.bank.views import BankViews, FreshViews, ViewRenderer
from camp.data.datasets import load_dataset
from camp.data.datasets.base import Dataset
from camp.data.images import resize_image
from camp.data.view_settings import Augmentation, ViewSettings
from camp.nn.backbones.base import Backbone, fingerprint_of
from camp.nn.backbones.vit import MEAN, STD, VitShape, fields_of, random_state, split

QUIET = Progress(quiet=True)
CPU = torch.device("cpu")


@pytest.fixture
def backbone() -> Backbone:
    shape = VitShape(64, 8, blocks=2, grid=4)
    trunk, tip = split(random_state(shape, torch.Generator().manual_seed(0)), shape, 32, 2, 1)
    return Backbone(
        "vit-test", 64, 32, MEAN, STD, fields_of(shape, 32), trunk, tip, fingerprint_of("test", trunk), ""
    )


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    rng = np.random.default_rng(1)
    for part, count in (("train", 6), ("test", 2)):
        for name in ("heron", "wren"):
            for i in range(count):
                path = tmp_path / "images" / part / name / f"{i}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(rng.integers(0, 256, (20, 30, 3), dtype=np.uint8)).save(path)
    (tmp_path / "images/train/heron/broken.png").write_bytes(b"not an image")
    return load_dataset("folder", tmp_path / "images")


def filled(folder: Path, backbone: Backbone, dataset: Dataset, **settings: object) -> tuple[Bank, FillResult]:
    views = ViewSettings(augmentations=3, **settings)  # type: ignore[arg-type]
    bank = Bank(folder, BankSpec.for_encoder(backbone, views, Augmentation(crop_scale=0.3)))
    train = {key for key in dataset.keys if key.startswith("train")}
    outcome = fill(bank, backbone, dataset, dataset.keys, train, QUIET)
    return Bank(folder, bank.spec), outcome


def test_clean_views_are_what_the_trunk_gives(tmp_path: Path, backbone: Backbone, dataset: Dataset) -> None:
    bank, outcome = filled(tmp_path / "bank", backbone, dataset)
    key = "test/wren/1.png"
    image = resize_image(dataset.decode(dataset.read(key)), 32)
    expected = backbone.trunk(normalise_(to_unit(torch.from_numpy(image)[None]), MEAN, STD))
    views = BankViews(bank, [outcome.digests[key]], CPU)
    batch = views.clean(torch.tensor([0]))
    assert batch["tokens"].dtype == torch.float16
    torch.testing.assert_close(batch["tokens"].float(), expected["tokens"], rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(batch["cls"], expected["cls"], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(backbone.tip(batch), backbone.tip(expected), rtol=0, atol=5e-3)


def test_int8_is_close_to_half_precision(tmp_path: Path, backbone: Backbone, dataset: Dataset) -> None:
    half, outcome = filled(tmp_path / "half", backbone, dataset)
    coded, _ = filled(tmp_path / "int8", backbone, dataset, precision="int8")
    rows = torch.arange(6)
    digests = [d for key, d in outcome.digests.items() if key.startswith("train")]
    ids = torch.zeros(1, 6, dtype=torch.long)
    exact = backbone.tip(BankViews(half, digests, CPU).augmented(rows, ids))
    rough = backbone.tip(BankViews(coded, digests, CPU).augmented(rows, ids))
    assert coded.bytes_per_view() < 0.65 * half.bytes_per_view()
    torch.testing.assert_close(rough, exact, rtol=0, atol=0.05)
    assert not torch.equal(rough, exact)


def test_bad_images_are_named_and_left_out(tmp_path: Path, backbone: Backbone, dataset: Dataset) -> None:
    bank, outcome = filled(tmp_path / "bank", backbone, dataset)
    assert list(outcome.bad) == ["train/heron/broken.png"]
    assert "train/heron/broken.png" not in outcome.digests
    assert len(bank.clean) == 16
    assert bank.augmented is not None
    assert len(bank.augmented) == 12


def test_bad_files_of_the_same_bytes_are_all_bad(
    tmp_path: Path, backbone: Backbone, dataset: Dataset
) -> None:
    names = ["train/heron/empty.png", "train/wren/empty.png"]
    for name in names:
        (tmp_path / "images" / name).write_bytes(b"")
    _, outcome = filled(tmp_path / "bank", backbone, load_dataset("folder", tmp_path / "images"))
    assert sorted(outcome.bad) == ["train/heron/broken.png", *names]
    assert not set(names) & set(outcome.digests)


def test_an_interrupted_bank_equals_an_uninterrupted_one(
    tmp_path: Path, backbone: Backbone, dataset: Dataset
) -> None:
    whole, _ = filled(tmp_path / "whole", backbone, dataset)
    trunk, calls = backbone.trunk, iter(range(100))

    def failing(pixels: torch.Tensor) -> object:
        if next(calls) == 1:
            raise KeyboardInterrupt
        return trunk(pixels)

    backbone.trunk = failing  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        filled(tmp_path / "cut", backbone, dataset)
    backbone.trunk = trunk
    with (tmp_path / "cut/clean/tokens.bin").open("ab") as torn:
        torn.write(b"torn by a kill")
    cut, outcome = filled(tmp_path / "cut", backbone, dataset)
    for ours, theirs in ((cut.clean, whole.clean), (cut.augmented, whole.augmented)):
        assert ours is not None
        assert theirs is not None
        for column in ours.columns:
            mine = ours.gather(column, ours.rows(theirs.digests()))
            torch.testing.assert_close(
                mine, theirs.gather(column, torch.arange(len(theirs))), rtol=1e-3, atol=1e-3
            )
    assert cut.clean.verify() == []
    assert outcome.bad


def test_filling_a_second_time_computes_nothing(tmp_path: Path, backbone: Backbone, dataset: Dataset) -> None:
    _, first = filled(tmp_path / "bank", backbone, dataset)
    assert first.new_views == 12 * 4 + 4

    def never(pixels: torch.Tensor) -> object:
        raise AssertionError("the trunk ran again")

    backbone.trunk = never  # type: ignore[assignment]
    _, second = filled(tmp_path / "bank", backbone, dataset)
    assert second.new_views == 0


def test_the_order_in_the_bank_is_that_of_fingerprints(
    tmp_path: Path, backbone: Backbone, dataset: Dataset
) -> None:
    bank, _ = filled(tmp_path / "bank", backbone, dataset)
    assert bank.augmented is not None
    assert bank.augmented.digests() == sorted(bank.augmented.digests())


def test_a_test_image_can_become_a_training_image(
    tmp_path: Path, backbone: Backbone, dataset: Dataset
) -> None:
    bank, outcome = filled(tmp_path / "bank", backbone, dataset)
    later = fill(bank, backbone, dataset, ["test/wren/0.png"], {"test/wren/0.png"}, QUIET)
    assert later.new_views == 4
    views = BankViews(Bank(bank.folder, bank.spec), [outcome.digests["test/wren/0.png"]], CPU)
    assert len(views.augmented(torch.tensor([0]), torch.tensor([[2]]))["cls"]) == 1


def test_draws_are_different_views_and_seeded(tmp_path: Path, backbone: Backbone, dataset: Dataset) -> None:
    bank, outcome = filled(tmp_path / "bank", backbone, dataset)
    views = BankViews(bank, [d for k, d in outcome.digests.items() if k.startswith("train")], CPU)
    rows = torch.arange(len(views))
    ids = views.draw(rows, 2, torch.Generator().manual_seed(5))
    assert (ids[0] != ids[1]).all()
    assert torch.equal(ids, views.draw(rows, 2, torch.Generator().manual_seed(5)))
    both = views.augmented(rows, ids)
    assert torch.equal(both["cls"][len(rows) :], views.augmented(rows, ids[1:])["cls"])


def test_views_are_found_again_by_fingerprint(tmp_path: Path, backbone: Backbone, dataset: Dataset) -> None:
    bank, outcome = filled(tmp_path / "bank", backbone, dataset)
    views = BankViews(bank, [d for k, d in outcome.digests.items() if k.startswith("train")], CPU)
    some = views.subset(torch.tensor([4, 1]))
    again = views.from_digests(some.digests())
    row = torch.tensor([0])
    assert torch.equal(again.clean(row)["cls"], views.clean(torch.tensor([4]))["cls"])
    joined = some.concat(again)
    assert len(joined) == 4
    assert torch.equal(joined.clean(torch.tensor([3]))["cls"], views.clean(torch.tensor([1]))["cls"])


def test_another_trunk_or_augmentation_is_another_bank(
    tmp_path: Path, backbone: Backbone, dataset: Dataset
) -> None:
    spec = BankSpec.for_encoder(backbone, ViewSettings(), Augmentation())
    others = [
        BankSpec.for_encoder(backbone, ViewSettings(augmentations=3), Augmentation()),
        BankSpec.for_encoder(backbone, ViewSettings(precision="int8"), Augmentation()),
        BankSpec.for_encoder(backbone, ViewSettings(normalisation="reference"), Augmentation()),
        BankSpec.for_encoder(backbone, ViewSettings(), Augmentation(crop_scale=0.3)),
    ]
    assert len({spec.fingerprint(), *(o.fingerprint() for o in others)}) == 5
    bank, _ = filled(tmp_path / "bank", backbone, dataset)
    with pytest.raises(CampError, match="another view bank"):
        Bank(bank.folder, others[0])


def test_a_full_disk_is_refused_before_work(
    tmp_path: Path, backbone: Backbone, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("camp.data.bank.fill.shutil.disk_usage", lambda path: type("", (), {"free": 10})())
    with pytest.raises(CampError, match="GB more"):
        filled(tmp_path / "bank", backbone, dataset)


def test_fresh_views_are_new_but_seeded(tmp_path: Path, backbone: Backbone, dataset: Dataset) -> None:
    settings = ViewSettings(views="fresh")
    bank = Bank(tmp_path / "plain", BankSpec.for_encoder(backbone, settings, Augmentation()))
    outcome = fill(bank, backbone, dataset, dataset.keys, set(), QUIET)
    lens = ViewRenderer(backbone, Augmentation(crop_scale=0.3), MEAN, STD)
    views = FreshViews(bank, list(outcome.digests.values()), CPU, lens)
    assert views.augmentations is None
    rows = torch.tensor([3, 0])
    draw = torch.Generator().manual_seed(0)
    first, second = views.draw(rows, 2, draw), views.draw(rows, 2, draw)
    a, again, b = views.augmented(rows, first), views.augmented(rows, first), views.augmented(rows, second)
    assert torch.equal(a["tokens"], again["tokens"])
    assert not torch.allclose(a["tokens"], b["tokens"])
    assert a["tokens"].shape[0] == 4
    # View-major: the second half of a batch is the second view of each image.
    torch.testing.assert_close(
        views.augmented(rows, first[1:])["tokens"], a["tokens"][2:], rtol=1e-4, atol=1e-4
    )
    banked, known = filled(tmp_path / "bank", backbone, dataset)
    key = "test/heron/0.png"
    position = list(outcome.digests).index(key)
    expected = BankViews(banked, [known.digests[key]], CPU).clean(torch.tensor([0]))
    torch.testing.assert_close(
        views.clean(torch.tensor([position]))["cls"], expected["cls"], rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize(
    "text", ["[]", "{}", "7", '"bank"', "null", '{"fingerprint": [1]}', "{", "[" * 99_999]
)
def test_a_bank_of_another_description_is_refused(
    tmp_path: Path, backbone: Backbone, dataset: Dataset, text: str
) -> None:
    filled(tmp_path / "bank", backbone, dataset)
    (tmp_path / "bank" / "bank.json").write_text(text)
    with pytest.raises(CampError, match=r"holds another view bank|is not valid JSON"):
        filled(tmp_path / "bank", backbone, dataset)


@pytest.mark.parametrize("text", ["[]", "{}", "7", '"x"', "null", '{"records": "x"}', '{"records": -3}', "{"])
def test_a_damaged_seal_is_made_again(
    tmp_path: Path, backbone: Backbone, dataset: Dataset, text: str
) -> None:
    filled(tmp_path / "bank", backbone, dataset)
    (tmp_path / "bank" / "clean" / "sealed.json").write_text(text)
    bank, outcome = filled(tmp_path / "bank", backbone, dataset)
    assert outcome.new_views == 0
    assert bank.sealed()


def test_a_bank_that_cannot_be_read_or_written_is_a_sentence(
    tmp_path: Path, backbone: Backbone, dataset: Dataset
) -> None:
    (tmp_path / "file").write_text("a file")
    with pytest.raises(CampError, match=r"cannot be written to \(Not a directory\); choose another folder"):
        filled(tmp_path / "file" / "bank", backbone, dataset)
    views = ViewSettings(augmentations=3, bank=str(tmp_path / "banks"))
    spec = BankSpec.for_encoder(backbone, views, Augmentation())
    Bank.open(views, spec).check_place()
    (tmp_path / "banks" / spec.fingerprint() / "clean" / "index.bin").mkdir(parents=True)
    with pytest.raises(CampError, match=r"cannot be read \(Is a directory\)"):
        Bank.open(views, spec)
    views = ViewSettings(augmentations=3, bank=str(tmp_path / "file" / "banks"))
    with pytest.raises(CampError, match=f"cannot be made, since {tmp_path / 'file'} cannot be written to"):
        Bank.open(views, spec).check_place()


def test_damage_is_found_and_repaired(tmp_path: Path, backbone: Backbone, dataset: Dataset) -> None:
    bank, outcome = filled(tmp_path / "bank", backbone, dataset)
    assert check_bank(bank.folder, QUIET) == []
    assert bank.augmented is not None
    path = bank.folder / "augmented" / "tokens.bin"
    whole = path.read_bytes()
    record = len(whole) // len(bank.augmented)
    rng = np.random.default_rng(0)
    damaged = np.frombuffer(whole, np.uint8).copy()
    damaged[3 * record + rng.choice(record, 400, replace=False)] ^= 64
    path.write_bytes(damaged.tobytes())
    _, again = filled(tmp_path / "bank", backbone, dataset)
    assert again.new_views == 0  # the bank is sealed, and so opened as it is
    views = BankViews(Bank(bank.folder, bank.spec), bank.augmented.digests(), CPU)
    rows, ids = torch.arange(12), torch.zeros(1, 12, dtype=torch.long)
    with pytest.raises(CampError, match=r"The view bank .*bank is damaged: 1 of 12 records"):
        views.augmented(rows, ids)

    [finding] = check_bank(bank.folder, QUIET)
    assert (finding.repairable, finding.repaired) == (True, False)
    assert "1 of 12 records are not what was written" in finding.said
    [finding] = check_bank(bank.folder, QUIET, repair=True)
    assert finding.repaired
    assert check_bank(bank.folder, QUIET) == []
    repaired, last = filled(tmp_path / "bank", backbone, dataset)
    assert last.new_views == 4  # of one image
    after = BankViews(repaired, bank.augmented.digests(), CPU).augmented(rows, ids)["tokens"]
    before = np.frombuffer(whole, np.float16).reshape(12, 3, -1)[:, 0]
    np.testing.assert_allclose(after.flatten(1).numpy(), before, rtol=2e-3, atol=2e-3)
    assert outcome.digests == last.digests


def test_a_damaged_description_or_index_is_found(
    tmp_path: Path, backbone: Backbone, dataset: Dataset
) -> None:
    bank, _ = filled(tmp_path / "bank", backbone, dataset)
    description = bank.folder / "bank.json"
    whole = description.read_text()
    for content in (whole.replace('"resolution": 32', '"resolution": 33'), "[]", whole[:50]):
        description.write_text(content)
        [finding] = check_bank(bank.folder, QUIET)
        assert "bank.json" in finding.said
    description.write_text(whole)
    index = bank.folder / "clean" / "index.bin"
    index.write_bytes(index.read_bytes()[20:] + index.read_bytes()[:20])
    said = [finding.said for finding in check_bank(bank.folder, QUIET, repair=True)]
    assert "16 of 16 records" in said[0]
    assert "index.bin was changed" in said[1]
    _, again = filled(tmp_path / "bank", backbone, dataset)
    assert again.new_views == 12 * 4 + 4
    assert check_bank(bank.folder, QUIET) == []

"""Batches in which old categories come back."""

import pytest
import torch

from camp.core.progress import Progress
from camp.data.bank.bank import Bank, BankSpec
from camp.data.bank.fill import fill
from camp.data.bank.views import FreshViews, ViewRenderer
from camp.data.tasks import Task
from camp.data.vector_files import VectorReader
from camp.data.view_settings import Augmentation, ViewSettings
from camp.discovery.open_world_discoverer import MIN_CLUSTER_SIZE, OpenWorldDiscoverer
from camp.methods.gccd.camp import CampSettings
from camp.methods.gccd.open_world import FeatureMemory, make_open_world
from camp.methods.settings import Discovery, Training
from camp.nn.backbones import BackboneSettings, make_backbone
from camp.nn.backbones.feature_scale import FEATURE_RMS

QUIET, CPU, DIM = Progress(quiet=True), torch.device("cpu"), 48


def vectors_of(which: list[int], per_category: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Vectors of some categories, which lie in different directions."""
    means = 3 * torch.randn(12, DIM, generator=torch.Generator().manual_seed(9))
    of = torch.tensor(which).repeat_interleave(per_category)
    return means[of] + torch.randn(len(of), DIM, generator=torch.Generator().manual_seed(seed)), of


def frozen() -> CampSettings:
    return CampSettings(training=Training(epochs=0), discovery=Discovery(n_init=20))


def learned(
    settings: CampSettings, old: tuple, new: torch.Tensor, labels: torch.Tensor, n_novel: int | None, tmp_path
):
    # Vectors of this scale are features as they are.
    settings_of_vectors = BackboneSettings(backbone="embeddings", dim=DIM, vector_rms=FEATURE_RMS)
    backbone = make_backbone(settings_of_vectors, torch.Generator().manual_seed(0))
    memory = FeatureMemory(*old)
    method = make_open_world(backbone, settings, memory, OpenWorldDiscoverer(n_init=20), 0, CPU)
    keys = tuple(f"{i:04d}" for i in range(len(new)))
    look = ViewSettings(bank=str(tmp_path))
    bank = Bank.open(look, BankSpec.for_encoder(backbone, look, Augmentation()))
    filled = fill(bank, backbone, VectorReader(new.numpy()), keys, set(), QUIET)
    renderer = ViewRenderer(backbone, Augmentation(), backbone.mean, backbone.std)
    views = FreshViews(Bank(bank.folder, bank.spec), [filled.digests[key] for key in keys], CPU, renderer)
    method.start_task(Task(1, views, labels, n_novel, None), QUIET)
    for epoch in range(method.epochs):
        method.train_epoch(epoch)
    method.finish_task(QUIET)
    return method, memory


def test_images_of_earlier_categories_return_to_them(tmp_path):
    old, of = vectors_of([0, 1, 2], 20, seed=1)
    new, truth = vectors_of([1, 2, 5, 6, 7], 15, seed=2)
    labels = torch.full((len(new),), -1)
    labels[truth == 5] = torch.where(torch.arange(15) < 7, 3, -1)  # category 5 is labelled now, as position 3
    method, _ = learned(frozen(), (old, of), new, labels, 2, tmp_path)
    assigned = method.assigned()
    assert (assigned[truth == 1] == 1).float().mean() > 0.9
    assert (assigned[truth == 2] == 2).float().mean() > 0.9
    assert (assigned[truth == 5] == 3).float().mean() > 0.9
    assert len(method.categories) == 6
    assert {int(assigned[truth == category].mode().values) for category in (6, 7)} == {4, 5}
    # A centroid is the mean of everything that ever belonged to it.
    for position in range(6):
        members = torch.cat([old[of == position], new[assigned == position]])
        assert torch.allclose(method.centroids[position], members.mean(dim=0), atol=1e-4)


@pytest.mark.parametrize(("novel", "labelled"), [([8, 9], True), ([8, 9], False), ([], False)])
def test_the_number_of_novel_categories_is_estimated_with_remembered_features(novel, labelled, tmp_path):
    old, of = vectors_of([0, 1, 2, 3, 4, 5], 20, seed=1)
    new, truth = vectors_of([1, 2, *novel], 20, seed=2)
    labels = torch.where((truth == 1) & (torch.arange(len(truth)) % 2 == 0) & labelled, truth, -1)
    method, _ = learned(frozen(), (old, of), new, labels, None, tmp_path)
    assert abs(method.discovery.n_novel - len(novel)) <= 1


def test_nothing_remembered_and_nothing_labelled(tmp_path):
    new, truth = vectors_of([0, 1, 2, 3], 20, seed=2)
    nothing = (torch.empty(0, DIM), torch.empty(0, dtype=torch.long))
    method, _ = learned(frozen(), nothing, new, torch.full((80,), -1), None, tmp_path)
    assert method.discovery.n_novel == 4
    assert len({int(method.assigned()[truth == category].mode().values) for category in range(4)}) == 4


def test_single_outliers_are_no_category_where_the_number_is_estimated(tmp_path):
    old, of = vectors_of([0, 1, 2, 3], 20, seed=1)
    new, _ = vectors_of([0, 1, 2, 3], 15, seed=2)
    odd = 40 * torch.eye(DIM)[:2]
    batch, labels = torch.cat([new, odd]), torch.full((62,), -1)
    estimated, _ = learned(frozen(), (old, of), batch, labels, None, tmp_path)
    sizes = torch.bincount(estimated.assigned(), minlength=len(estimated.categories))
    assert bool((sizes[4:] >= MIN_CLUSTER_SIZE).all())
    given, _ = learned(frozen(), (old, of), batch, labels, 2, tmp_path)
    assert len(given.categories) == 6


def test_with_training_remembered_features_are_adapted(tmp_path):
    old, of = vectors_of([0, 1, 2], 30, seed=1)
    new, truth = vectors_of([1, 4, 5], 30, seed=2)
    labels = torch.where((truth == 4) & (torch.arange(90) % 2 == 0), 3, -1)
    training = Training(epochs=8, batch_size=32, learning_rate=3e-3)
    settings = CampSettings(training=training, discovery=Discovery(n_init=10), projector_width=32)
    method, memory = learned(settings, (old, of), new, labels, 1, tmp_path)
    with torch.no_grad():
        now = method.tip.eval()({"vector": old})
    assert (now - old).norm(dim=1).mean() > 0.5  # the tip has moved
    before, after = (now - old).norm(dim=1).mean(), (now - memory.features).norm(dim=1).mean()
    assert after < before  # and what is remembered moved with it
    assert (method.predict(now) == of).float().mean() > 0.9
    assert (method.assigned()[truth == 1] == 1).float().mean() > 0.9

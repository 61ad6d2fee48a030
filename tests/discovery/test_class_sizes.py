"""Predicted sizes of classes, against simulations."""

import pytest
import torch

from camp.core.types import UNLABELLED
from camp.discovery.class_sizes import ClassSizes


def labels_of(
    sizes: torch.Tensor, n_known: int, share: float, seed: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Labels of classes of these sizes, and the number of unlabelled images of each."""
    draw = torch.Generator().manual_seed(seed)
    truth = torch.arange(len(sizes)).repeat_interleave(sizes)
    labelled = (truth < n_known) & (torch.rand(len(truth), generator=draw) < share)
    labels = truth.where(labelled, UNLABELLED)
    return labels, torch.bincount(truth[~labelled], minlength=len(sizes))


def test_equal_sizes_are_predicted_exactly():
    labels, unlabelled = labels_of(torch.full((40,), 200), 30, 0.5, seed=0)
    sizes = ClassSizes.predict(labels, 10)
    assert sizes.expected.sum() == pytest.approx(len(labels[labels == UNLABELLED]), rel=1e-5)
    torch.testing.assert_close(sizes.expected[30:], torch.full((10,), 200.0), rtol=0.05, atol=0.0)
    assert float((sizes.expected[:30] - unlabelled[:30]).abs().mean()) < 5
    assert bool((sizes.strengths() > 0.8).all())


def test_the_sizes_of_known_classes_of_a_long_tail_are_predicted_and_those_of_novel_ones_are_not():
    draw = torch.Generator().manual_seed(1)
    of_classes = (400 * 0.02 ** torch.rand(60, generator=draw)).long() + 2
    labels, unlabelled = labels_of(of_classes, 45, 0.5, seed=2)
    sizes = ClassSizes.predict(labels, 15)
    known = torch.stack([sizes.expected[:45], unlabelled[:45].float()])
    assert float(known.corrcoef()[0, 1]) > 0.95
    assert len(set(sizes.expected[45:].tolist())) == 1
    assert bool((sizes.dispersion[45:] > 10).all())
    assert not bool(sizes.strengths()[45:].any())


def test_the_variance_is_that_of_the_prediction():
    """Over many classes, squared errors of known classes are v on average (gamma-distributed sizes)."""
    draw = torch.Generator().manual_seed(3)
    concentration = torch.full((4000,), 2.0)
    rates = (
        torch._standard_gamma(concentration, generator=draw) * 20
    )  # torch.distributions takes no generator
    labels, unlabelled = labels_of(torch.poisson(rates, generator=draw).long() + 1, 4000, 0.4, seed=4)
    present = labels[labels != UNLABELLED].unique()
    sizes = ClassSizes.predict(labels, 0)
    errors = (sizes.expected - unlabelled[present]).square().mean()
    assert float((sizes.expected * sizes.dispersion).mean()) == pytest.approx(float(errors), rel=0.15)


def test_one_class_and_few_images():
    sizes = ClassSizes.predict(torch.tensor([0, 0, UNLABELLED, UNLABELLED, UNLABELLED]), 1)
    assert sizes.expected.sum() == pytest.approx(3.0)
    assert bool((sizes.expected > 0).all())
    assert bool(sizes.strengths().isfinite().all())

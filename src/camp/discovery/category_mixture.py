"""Mixture of known and novel categories, fitted to a batch in which some images are labelled.

Every category is a component: a direction (`directional`), for points of unit length, or a Gaussian (`plda`). Known
ones start from the images that are theirs, novel ones from single images. Assignments q_ik of the unlabelled points x_i, with N_k = sum_i q_ik, minimise

    sum_ik q_ik (log q_ik - t log p(x_i | k) - log e_k) + sum_k rho_k (N_k log(N_k / e_k) - N_k)

where p(. | k) is the density of category k given the images assigned to it, t its exponent (`power`: below 1, as
features are not Gaussian and densities in many dimensions are too sure), and e and rho the prior of sizes (`class_sizes`):
an unbalanced optimal transport problem. Three updates alternate:

    q_ik proportional to e_k exp(o_k) p(x_i | k)^t,
    o_k <- h_k (o_k + log e_k - log N_k),   h_k = rho_k / (1 + rho_k)      Sinkhorn iterations (Chizat et al. 2018)
    counts and sums of the categories, and the spread of images            M-step

Where categories of earlier batches may return, they are known categories as well, with their remembered means as evidence.
The labels of the batch then tell nothing about sizes: e_k is the present share of the known or of the novel categories,
divided by their number, and rho is 0.

The result of such a fit depends on its start. It begins with more novel categories than wanted, and removes one after the
other, that whose images lie nearly as well in others: the least -sum_i log(1 - q_ik).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from camp.core.types import UNLABELLED
from camp.discovery.category_statistics import Assigned, Statistics
from camp.discovery.class_sizes import ClassSizes
from camp.discovery.directional import Directions
from camp.discovery.plda import Plda

Model = Directions | Plda
"""Density of images in categories: by their direction with one width, or Gaussian with widths by their numbers of images."""

FIRST_ITERATIONS, ITERATIONS, SINKHORN_ITERATIONS = 12, 1, 10
"""Alternations at the start (Gaussians: with the variance of the labelled images) and for every number of novel categories, and
Sinkhorn iterations in each alternation; offsets are carried over."""
N_CANDIDATES = 5
"""Images that are tried as the start of each novel category."""
_LEAST_SIZE, _GREATEST_OFFSET = 1e-3, 50.0
"""Bounds of the number of images of a category and of its offset, which has no limit if none are near."""
_LEAST_LOG_RATIO = -80.0
"""Lower bound of the log-ratio of a density to the greatest one: exponentials that underflow are slow."""


@dataclass(frozen=True)
class MixtureData:
    """The points of a batch, and those that stand for categories of earlier batches that may return."""

    points: Tensor
    """(n, d)"""
    labels: Tensor
    """(n,) of known classes, or UNLABELLED."""
    known_points: Tensor
    """(m, d), each the mean of several images of a category; m = 0 where no category can return."""
    known_labels: Tensor
    """(m,)"""
    known_counts: Tensor
    """(m,) number of images of which each known point is the mean."""
    known_spread: float = 0.0
    """Sum of the squared distances of these images to their mean."""
    returning: bool = False
    """As in `FeatureBatch`."""
    unit: bool = True
    """Whether points have unit length."""

    @classmethod
    def of_batch(
        cls, points: Tensor, labels: Tensor, returning: bool = False, unit: bool = True
    ) -> "MixtureData":
        """A batch alone, without points for earlier ones."""
        none = points.new_empty(0)
        return cls(points, labels, points[:0], labels[:0], none, returning=returning, unit=unit)

    @property
    def unlabelled(self) -> Tensor:
        """(n,) bool: points without a label."""
        return self.labels == UNLABELLED

    def known_classes(self) -> Tensor:
        """Labels (K,) of the classes with labelled points and of the remembered categories, ascending."""
        labels: Tensor = torch.cat([self.labels[~self.unlabelled], self.known_labels]).unique()
        return labels

    def evidence(self) -> tuple[Tensor, Tensor, Tensor]:
        """Points (l, d) of known categories, their positions (l,) in `known_classes`, and their weights (l,)."""
        shown = ~self.unlabelled
        points = torch.cat([self.points[shown], self.known_points])
        labels = torch.cat([self.labels[shown], self.known_labels])
        weights = torch.cat([points.new_ones(int(shown.sum())), self.known_counts])
        return points, torch.searchsorted(self.known_classes(), labels), weights


@dataclass(frozen=True)
class MixtureParameters:
    """How a mixture is fitted."""

    power: float
    """t"""
    size_prior: bool = True
    """Whether sizes are predicted; otherwise categories are equally likely."""
    start_factor: int = 2
    """Number of novel categories at the start, relative to the number wanted."""
    equal_widths: bool = False
    """Whether points of unit length have densities of the same width in categories of few and of many images."""


@dataclass(frozen=True)
class CategoryMixture:
    """Categories of a batch."""

    n_novel: int
    weights: Tensor
    """q (n, K), the weight of each category for each image; the known ones come first."""


def fit_mixtures(
    data: MixtureData, most: int, least: int, parameters: MixtureParameters, generator: torch.Generator
) -> Iterator[CategoryMixture]:
    """Fit mixtures with `most` novel categories, one less, and so on to `least`.

    Args:
        data: At least one category is known.
        most, least: Numbers of novel categories.
        parameters: Of these, `start_factor` is not used.
        generator: Source of the start.

    Yields:
        The categories of all points; labelled ones are in their class.
    """
    evidence, index, evidence_weights = data.evidence()
    n_known, power = len(data.known_classes()), parameters.power
    unlabelled = data.unlabelled
    x, labelled_index = data.points[unlabelled], index[: int((~unlabelled).sum())]
    known = Statistics.of_classes(evidence, index, n_known, evidence_weights)
    model = _model(data, known, parameters)
    current = known.with_novel(_choose_starts(x, known, model, most, power, generator))
    offsets = x.new_zeros(n_known + most)
    weights = x.new_full((len(x), n_known + most), 1 / (n_known + most))
    for n_novel in range(most, least - 1, -1):
        for iteration in range(ITERATIONS + FIRST_ITERATIONS * (n_novel == most)):
            sizes = _predict_sizes(data, n_novel, weights[:, :n_known], parameters)
            logits = model.log_density(x, current.counts, current.sums).mul_(power)
            weights, offsets = _transport(logits, offsets, sizes)
            assigned = Assigned.of(x, weights)
            current = known.with_assigned(assigned)
            if not model.trusted_at_start or n_novel < most or iteration >= FIRST_ITERATIONS:
                model = model.refit(assigned, current)
        of_all = x.new_zeros(len(data.points), n_known + n_novel)
        of_all[~unlabelled] = F.one_hot(labelled_index, n_known + n_novel).to(x.dtype)
        of_all[unlabelled] = weights
        yield CategoryMixture(n_novel, of_all)
        if n_novel:
            losses = -torch.log1p(-weights[:, n_known:].clamp_max(1 - 1e-6)).sum(dim=0)
            kept = torch.arange(n_known + n_novel) != n_known + int(losses.argmin())
            current, offsets = Statistics(current.counts[kept], current.sums[kept]), offsets[kept]


def discover_by_mixture(
    data: MixtureData, n_novel: int, parameters: MixtureParameters, generator: torch.Generator
) -> Tensor:
    """Find the categories of a batch.

    Returns:
        The weight (n, K) of the known categories, ascending, and of `n_novel` novel ones for each point; a labelled
        point is in its class.
    """
    most = min(parameters.start_factor * n_novel, int(data.unlabelled.sum()))
    for mixture in fit_mixtures(data, most, n_novel, parameters, generator):
        weights = mixture.weights
    return weights


def _predict_sizes(
    data: MixtureData, n_novel: int, of_known: Tensor, parameters: MixtureParameters
) -> ClassSizes:
    """Predict the sizes of the categories; `of_known` (u, K) are the present weights of the known ones."""
    n_unlabelled, n_known = of_known.shape
    if not parameters.size_prior:
        return ClassSizes.uniform(n_known, n_novel, n_unlabelled)
    if data.returning:
        share = float(of_known.sum()) / max(n_unlabelled, 1)
        return ClassSizes.returning(n_known, n_novel, n_unlabelled, share)
    return ClassSizes.predict(data.labels, n_novel)


def _model(data: MixtureData, known: Statistics, parameters: MixtureParameters) -> Model:
    """Start the density of images by the evidence of known categories, and by the unlabelled images."""
    others = data.points[data.unlabelled]
    if data.unit and parameters.equal_widths:
        return Directions.start(others, known.sums)
    evidence, index, weights = data.evidence()
    return Plda.fit(evidence, index, len(known.counts), weights, data.known_spread, others)


def _choose_starts(
    points: Tensor, known: Statistics, model: Model, n_novel: int, power: float, generator: torch.Generator
) -> Tensor:
    """Choose an image (m, d) to start each novel category from.

    As k-means++ with several candidates: an image is a candidate with a probability in proportion to what its
    log-density would gain as the first image of a category of its own, and the candidate that raises those of all
    images most is taken.
    """
    unseen = power * model.log_unseen(points)
    best = (power * model.log_density(points, known.counts, known.sums)).amax(dim=1)
    chosen = []
    for _ in range(n_novel):
        gain = (unseen - best).clamp_min(0)
        chances = gain if bool((gain > 0).any()) else torch.ones_like(gain)
        candidates = torch.multinomial(chances, min(N_CANDIDATES, len(points)), generator=generator)
        logits = torch.maximum(power * model.log_second(points, points[candidates]), best[:, None])
        winner = int(logits.sum(dim=0).argmax())
        best = logits[:, winner]
        chosen.append(candidates[winner])
    return points[torch.stack(chosen)] if chosen else points[:0]


def _transport(logits: Tensor, offsets: Tensor, sizes: ClassSizes) -> tuple[Tensor, Tensor]:
    """Return the weights q (n, K) for `logits` t log p (n, K), and the offsets o (K,) of the categories."""
    # A factor per point does not change the weights, so Sinkhorn iterations are products with this kernel.
    kernel = logits - logits.amax(dim=1, keepdim=True)
    kernel.clamp_(min=_LEAST_LOG_RATIO).exp_().mul_(sizes.expected)
    log_expected, strengths = sizes.expected.log(), sizes.strengths()
    for _ in range(SINKHORN_ITERATIONS if bool(strengths.any()) else 0):
        scale = offsets.exp()
        assigned = scale * (kernel.T @ (kernel @ scale).reciprocal_())
        offsets = strengths * (offsets + log_expected - assigned.clamp_(min=_LEAST_SIZE).log_())
        offsets.clamp_(-_GREATEST_OFFSET, _GREATEST_OFFSET)
    kernel.mul_(offsets.exp())
    return kernel.div_(kernel.sum(dim=1, keepdim=True)), offsets

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

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

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
    removed_share: float = 0.0
    """Share of the novel categories that are removed at a time, at least one."""


@dataclass(frozen=True)
class FittedCategories:
    """The densities and prior weights of K categories, by which any image can be assigned."""

    model: Model
    known: Statistics
    """Evidence of the known categories, which come first."""
    statistics: Statistics
    """Of all categories."""
    log_priors: Tensor
    """log e_k + o_k (K,)"""
    power: float

    @classmethod
    def of_clusters(cls, points: Tensor, assignments: Tensor) -> "FittedCategories":
        """Make densities of clusters of points (n, d), which are all novel categories; empty ones are left out."""
        ids, index = assignments.unique(return_inverse=True)
        ones = points.new_ones(len(points))
        statistics = Statistics.of_classes(points, index, len(ids), ones)
        none = Statistics(statistics.counts[:0], statistics.sums[:0])
        model = Plda.fit(points, index, len(ids))
        return cls(model, none, statistics, points.new_zeros(len(ids)), 1.0)

    def logits(self, points: Tensor) -> Tensor:
        """Log-weights (n, K) of points (n, d), up to a constant of each point."""
        densities = self.model.log_density(points, self.statistics.counts, self.statistics.sums)
        return densities.mul_(self.power).add_(self.log_priors)

    def assigned(self, points: Tensor) -> Assigned:
        """Assign unlabelled points (n, d) with their weights."""
        return Assigned.of(points, torch.softmax(self.logits(points), dim=1))

    def refit(self, parts: Iterable[Assigned]) -> "FittedCategories":
        """Return the categories with all unlabelled images, assigned in several parts, in place of the present ones."""
        n_known = len(self.known.counts)
        counts, sums = torch.zeros_like(self.statistics.counts), torch.zeros_like(self.statistics.sums)
        counts[:n_known], sums[:n_known] = self.known.counts, self.known.sums
        for part in parts:
            counts += part.counts
            sums += part.sums
        return replace(self, statistics=Statistics(counts, sums))


@dataclass(frozen=True)
class CategoryMixture:
    """Categories of a batch."""

    n_novel: int
    weights: Tensor
    """q (n, K), the weight of each category for each image; the known ones come first."""
    fitted: FittedCategories


def numbers_of_novel(most: int, least: int, share: float, n_more: int = 0) -> list[int]:
    """Numbers of novel categories from `most` to `least`, each about `share` less than the one before, at least 1 less.

    >>> numbers_of_novel(3, 1, 0.0), numbers_of_novel(100, 70, 0.1)
    ([3, 2, 1], [100, 90, 81, 73, 70])

    Args:
        n_more: Categories that the share is of as well.
    """
    numbers = [most]
    while numbers[-1] > least:
        numbers.append(max(least, numbers[-1] - max(1, int(share * (numbers[-1] + n_more)))))
    return numbers


def fit_mixtures(
    data: MixtureData, numbers: Sequence[int], parameters: MixtureParameters, generator: torch.Generator
) -> Iterator[CategoryMixture]:
    """Fit mixtures with several numbers of novel categories, the greatest first.

    Args:
        data: At least one category is known.
        numbers: Numbers of novel categories, descending.
        parameters: Of these, `start_factor` and `removed_share` are not used.
        generator: Source of the start.

    Yields:
        The categories of all points; labelled ones are in their class.
    """
    evidence, index, evidence_weights = data.evidence()
    n_known, power = len(data.known_classes()), parameters.power
    unlabelled, most = data.unlabelled, numbers[0]
    x, labelled_index = data.points[unlabelled], index[: int((~unlabelled).sum())]
    known = Statistics.of_classes(evidence, index, n_known, evidence_weights)
    model = _model(data, known, parameters)
    current = known.with_novel(_choose_starts(x, known, model, most, power, generator))
    offsets = x.new_zeros(n_known + most)
    weights = x.new_full((len(x), n_known + most), 1 / (n_known + most))
    for n_novel, following in zip(numbers, [*numbers[1:], numbers[-1]]):
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
        priors = sizes.expected.log() + offsets
        yield CategoryMixture(n_novel, of_all, FittedCategories(model, known, current, priors, power))
        if following < n_novel:
            losses = -torch.log1p(-weights[:, n_known:].clamp_max(1 - 1e-6)).sum(dim=0)
            kept = torch.ones(n_known + n_novel, dtype=torch.bool)
            kept[n_known + losses.argsort(stable=True)[: n_novel - following]] = False
            current, offsets = Statistics(current.counts[kept], current.sums[kept]), offsets[kept]


def discover_by_mixture(
    data: MixtureData, n_novel: int, parameters: MixtureParameters, generator: torch.Generator
) -> CategoryMixture:
    """Find the known categories of a batch, ascending, and `n_novel` novel ones; labelled points are in their class."""
    most = min(parameters.start_factor * n_novel, int(data.unlabelled.sum()))
    numbers = numbers_of_novel(most, n_novel, parameters.removed_share)
    for mixture in fit_mixtures(data, numbers, parameters, generator):
        found = mixture
    return found


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

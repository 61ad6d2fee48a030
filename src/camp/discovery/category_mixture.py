"""Mixture of known and novel categories, fitted to a batch in which some images are labelled.

Every category is a component of the PLDA model (`plda`): known ones start from the images that are theirs, novel ones from
single images. Assignments q_ik of the unlabelled points x_i minimise

    sum_ik q_ik (log q_ik - t log p(x_i | k)) + sum_k rho_k KL(sum_i q_ik, e_k)

where p(. | k) is the predictive density of category k given the images assigned to it, t its exponent (`power`: below 1, as
features are not Gaussian and densities in many dimensions are too sure), and the last term the prior of sizes
(`class_sizes`), an unbalanced optimal transport problem. Three updates alternate:

    q_ik proportional to exp(o_k) p(x_i | k)^t,
    o_k <- h_k (o_k + log e_k - log sum_i q_ik),   h_k = rho_k / (1 + rho_k)      Sinkhorn iterations (Chizat et al. 2018)
    counts and sums of the categories, and the variance s of images                 M-step

Of several starts the one with the lowest objective is kept.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from camp.core.types import UNLABELLED
from camp.discovery.class_scatter import class_sums
from camp.discovery.class_sizes import ClassSizes
from camp.discovery.plda import Plda

MAX_ITERATIONS, SINKHORN_ITERATIONS = 40, 10
"""Alternations at most, and Sinkhorn iterations in each; offsets are carried over."""
N_CANDIDATES = 5
"""Images that are tried as the start of each novel category."""
_WARM_UP = 4
"""Alternations before the variance of images is estimated anew."""
_LEAST_SIZE = 1e-3


@dataclass(frozen=True)
class Statistics:
    """What a category is known by."""

    counts: Tensor
    """(K,) number of its images."""
    sums: Tensor
    """(K, d) their sum."""

    def with_assigned(self, points: Tensor, weights: Tensor) -> "Statistics":
        """Add points (n, d) with weights (n, K)."""
        return Statistics(self.counts + weights.sum(dim=0), self.sums + weights.T @ points)

    def with_novel(self, points: Tensor) -> "Statistics":
        """Append a category for each of points (m, d), its only image."""
        return Statistics(
            torch.cat([self.counts, points.new_ones(len(points))]), torch.cat([self.sums, points])
        )


@dataclass(frozen=True)
class CategoryMixture:
    """Categories of the unlabelled images of a batch."""

    weights: Tensor
    """q (n, K), the weight of each category for each image; known categories come first."""
    model: Plda
    """With the variance of images that was estimated with them."""
    objective: float

    @property
    def assignments(self) -> Tensor:
        """(n,) category with the greatest weight."""
        return self.weights.argmax(dim=1)


def fit_mixture(
    points: Tensor,
    known: Statistics,
    model: Plda,
    sizes: ClassSizes,
    *,
    power: float,
    n_init: int,
    generator: torch.Generator,
) -> CategoryMixture:
    """Find the categories of unlabelled points (n, d).

    Args:
        known: Labelled images of the known categories.
        model: PLDA model of the known categories.
        sizes: Predicted number of unlabelled images of each known and of each novel category.
        power: t
        n_init: Number of starts; one is enough without novel categories.
        generator: Source of the starts.
    """
    n_novel = len(sizes.expected) - len(known.counts)
    results = []
    for _ in range(n_init if n_novel else 1):
        start = _choose_starts(points, known, model, n_novel, power, generator)
        results.append(_alternate(points, known, start, model, sizes, power))
    return min(results, key=lambda result: result.objective)


def discover_by_mixture(
    points: Tensor, labels: Tensor, n_novel: int, power: float, n_init: int, generator: torch.Generator
) -> Tensor:
    """Find the categories of points (n, d) with labels (n,) of known classes or UNLABELLED.

    Returns:
        The weight (n, K) of the known classes, ascending, and of `n_novel` novel categories for each point; a labelled
        point is in its class.
    """
    labelled = labels != UNLABELLED
    classes, index = labels[labelled].unique(return_inverse=True)
    of_classes = points[labelled]
    known = Statistics(
        torch.bincount(index, minlength=len(classes)).to(points.dtype),
        class_sums(of_classes, index, len(classes)).to(points.dtype),
    )
    weights = points.new_zeros(len(points), len(classes) + n_novel)
    weights[labelled] = F.one_hot(index, weights.shape[1]).to(points.dtype)
    if bool(labelled.all()):
        return weights
    model = Plda.fit(of_classes, index, len(classes))
    sizes = ClassSizes.predict(labels, n_novel)
    mixture = fit_mixture(
        points[~labelled], known, model, sizes, power=power, n_init=n_init, generator=generator
    )
    weights[~labelled] = mixture.weights
    return weights


def _choose_starts(
    points: Tensor, known: Statistics, model: Plda, n_novel: int, power: float, generator: torch.Generator
) -> Tensor:
    """Choose an image (m, d) to start each novel category from.

    As k-means++ with several candidates: an image is a candidate with a probability in proportion to what its
    log-density would gain as the first image of a category of its own, and the candidate that raises those of all
    images most is taken.
    """
    unseen = power * model.log_unseen(points)
    best = points.new_full((len(points),), -torch.inf)
    if len(known.counts):
        logits = power * model.log_predictive(points, model.posterior(known.counts, known.sums))
        best = logits.amax(dim=1)
    chosen = []
    for _ in range(n_novel):
        gain = (unseen - best).clamp(0, torch.finfo(points.dtype).max)
        chances = gain if bool((gain > 0).any()) else torch.ones_like(gain)
        candidates = torch.multinomial(chances, min(N_CANDIDATES, len(points)), generator=generator)
        alone = model.posterior(points.new_ones(len(candidates)), points[candidates])
        logits = torch.maximum(power * model.log_predictive(points, alone), best[:, None])
        winner = int(logits.sum(dim=0).argmax())
        best = logits[:, winner]
        chosen.append(candidates[winner])
    return points[torch.stack(chosen)] if chosen else points[:0]


def _alternate(
    points: Tensor, known: Statistics, start: Tensor, model: Plda, sizes: ClassSizes, power: float
) -> CategoryMixture:
    """Alternate the updates from a start (m, d) until no assignment changes."""
    fixed = Statistics(F.pad(known.counts, (0, len(start))), torch.cat([known.sums, torch.zeros_like(start)]))
    current, offsets = known.with_novel(start), points.new_zeros(len(fixed.counts))
    assignments = torch.full((len(points),), -1)
    for iteration in range(MAX_ITERATIONS):
        posterior = model.posterior(current.counts, current.sums)
        costs = -power * model.log_predictive(points, posterior)
        weights, offsets = _transport(costs, offsets, sizes)
        current = fixed.with_assigned(points, weights)
        before, assignments = assignments, weights.argmax(dim=1)
        if torch.equal(before, assignments):
            break
        if iteration >= _WARM_UP:
            model = model.with_within(_within(points, weights, current, model))
    return CategoryMixture(weights, model, _objective(costs, weights, sizes))


def _transport(costs: Tensor, offsets: Tensor, sizes: ClassSizes) -> tuple[Tensor, Tensor]:
    """Return the weights q (n, K) for costs (n, K), and the offsets o (K,) of the categories."""
    # A factor per point does not change the weights, so Sinkhorn iterations are products with this kernel.
    kernel = (costs.amin(dim=1, keepdim=True) - costs).exp()
    log_expected, strengths = sizes.expected.log(), sizes.strengths()
    for _ in range(SINKHORN_ITERATIONS):
        scale = offsets.exp()
        assigned = scale * (kernel.T @ (kernel @ scale).reciprocal())
        offsets = strengths * (offsets + log_expected - assigned.clamp_min(_LEAST_SIZE).log())
    weights = kernel * offsets.exp()
    return weights / weights.sum(dim=1, keepdim=True), offsets


def _within(points: Tensor, weights: Tensor, statistics: Statistics, model: Plda) -> float:
    """Expected squared distance of points to the mean of their category, per dimension; at most doubled or halved."""
    posterior = model.posterior(statistics.counts, statistics.sums)
    distances = torch.cdist(points, posterior.mean).square() + posterior.variance.sum(dim=1)
    ratio = float((weights * distances).sum() / points.numel()) / model.within
    return model.within * min(max(ratio, 0.5), 2.0)


def _objective(costs: Tensor, weights: Tensor, sizes: ClassSizes) -> float:
    """Value that the weights minimise."""
    transport = (weights * (costs + weights.clamp_min(1e-30).log())).sum()
    expected, assigned = sizes.expected, weights.sum(dim=0).clamp_min(_LEAST_SIZE)
    divergence = assigned * (assigned / expected).log() - assigned + expected
    return float(transport + (expected / sizes.variance.clamp_min(_LEAST_SIZE) * divergence).sum())

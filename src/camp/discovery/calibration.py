"""How far a picture may be from its centroid, and how sure a distance makes: learned from pictures left out.

A picture pulls the centroid of its kind towards itself and shapes the metric, so what it tells about pictures to come is
learned in two steps. When a batch is learned, each of FOLDS parts of the pictures is measured by a metric and centroids
that the others made (`sureness`): with distances D_i of these,

    T        minimises  -sum_i log p(k_i | p_i),    p(k | .) as in `open_set`
    unseen   = ACCEPTED quantile of D_i / that of d_i

where d_i is the distance to the centroid of the others under the metric of all. Later, as decisions change categories
(`calibrated`):

    m_k, s_k   mean and deviation of unseen d_i in category k, drawn towards those of all by PRIOR pictures
    r_k        = m_k + q s_k,    q: the ACCEPTED quantile of (unseen d_i - m_k) / s_k over all pictures

so that about 1 - ACCEPTED of a category's own pictures are called unknown.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from scipy.optimize import minimize_scalar
from torch import Tensor

from camp.discovery.class_metric import AT_MOST, Metric, fit_metric
from camp.discovery.open_set import OpenSet

ACCEPTED = 0.95
PRIOR = 10
FOLDS = 4


@dataclass(frozen=True)
class Sureness:
    """What distances of pictures that shaped the metric are worth for those that did not."""

    unseen: float = 1.0
    """How many times farther from its centroid a picture lies that nothing was learned from."""
    temperature: float = 1.0
    """T of the probabilities."""


@dataclass(frozen=True)
class Members:
    """Pictures whose category is known."""

    features: Tensor
    """(n, D)"""
    positions: Tensor
    """(n,) the category, 0 .. K - 1; each has at least one picture."""
    trusted: Tensor
    """(n,) bool: a person or a label says so. The rest was put there by its distance, which says less about it."""


def sureness(members: Members, metric: Metric, count: int) -> Sureness:
    """From pictures of `count` categories that `metric` was learned from."""
    step = max(1, -(-len(members.features) // AT_MOST))
    features, own = members.features[::step], members.positions[::step]
    trusted = members.trusted[::step]
    everyone = not bool(trusted.any())
    folds, directions = torch.arange(len(own)) % FOLDS, metric.projection.shape[1]
    outside, squares, answers = [], [], []
    for fold in range(FOLDS):
        rest = folds != fold
        present = own[rest].unique()
        part = (folds == fold) & torch.isin(own, present)
        if not bool(part.any()):
            continue
        one = fit_metric(features[rest], own[rest], directions)
        at = torch.searchsorted(present, own)
        means = one.means(one(features[rest]), at[rest], len(present))
        d = torch.cdist(one(features[part]).double(), means.double())
        outside.append(d.gather(1, at[part, None])[:, 0])
        used = trusted[part] | everyone
        squares.append(d[used].square())
        answers.append(at[part][used])
    inside = metric.left_out(metric(features), own, count)
    inside = inside[~inside.isnan()]
    if not outside or not len(inside):
        return Sureness()
    seen = float(torch.quantile(inside, ACCEPTED))
    unseen = max(1.0, float(torch.quantile(torch.cat(outside), ACCEPTED)) / seen) if seen else 1.0
    return Sureness(unseen, _temperature(squares, answers))


def calibrated(points: Tensor, positions: Tensor, metric: Metric, sure: Sureness, count: int) -> OpenSet:
    """The classifier that `points` (n, d) in `count` categories, `positions` (n,), make."""
    distances = sure.unseen * metric.left_out(points, positions, count)
    return OpenSet(
        metric.means(points, positions, count), _radii(distances, positions, count), sure.temperature
    )


def _radii(distances: Tensor, positions: Tensor, count: int) -> Tensor:
    """r_k (K,); where no category has two pictures every distance is accepted."""
    valid = ~distances.isnan()
    if not bool(valid.any()):
        return torch.full((count,), math.inf)
    d, at = distances[valid], positions[valid]
    n = torch.bincount(at, minlength=count).double()

    def pooled(values: Tensor) -> Tensor:
        """Means by category (K,), drawn towards the mean of all."""
        sums = torch.zeros(count, dtype=torch.float64).index_add_(0, at, values)
        return (sums + PRIOR * values.mean()) / (n + PRIOR)

    mean = pooled(d)
    deviation = pooled((d - mean[at]).square()).sqrt()
    # Equal pictures have no spread; the smallest one that is not nothing.
    deviation = torch.maximum(deviation, 1e-3 * mean.clamp_min(1e-12))
    scaled = (d - mean[at]) / deviation[at]
    q = torch.quantile(scaled[:: max(1, -(-len(scaled) // AT_MOST))], ACCEPTED)
    return (mean + q * deviation).float()


def _temperature(squares: list[Tensor], answers: list[Tensor]) -> float:
    """T of the softmax over squared distances (n, K) by the likelihood of the answers (n,), a pair for each fold."""
    pairs = [(d, right) for d, right in zip(squares, answers) if len(right) and d.shape[1] > 1]
    scale = float(torch.cat([d.flatten() for d, _ in pairs]).mean()) if pairs else 0.0
    if scale == 0.0:
        return 1.0

    def loss(log_temperature: float) -> float:
        t = math.exp(log_temperature)
        return sum(float(F.cross_entropy(-d / t, right, reduction="sum")) for d, right in pairs)

    low, high = math.log(scale) - 9, math.log(scale) + 3
    return math.exp(minimize_scalar(loss, bounds=(low, high), method="bounded").x)

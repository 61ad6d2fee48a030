"""Numbers of unlabelled images of known and novel classes, as predicted by the numbers of labelled ones.

Labels are missing at random: each image of a known class has a label with the same probability a. Novel classes are as
large as known ones on average. With n_c labelled images of class c, U unlabelled images and m novel classes,

    (1 - a) / a = (U - m mean n) / (sum_c n_c + m mean n)       and       E = mean n / a

is the mean number of images of a class. Its variance V follows from var n = a^2 V + a (1 - a) E, the second term being
that of labels. It is 0 for classes of equal size and large for a long tail. The best linear prediction of the number of
unlabelled images, and its variance, are

    known c:     (1 - a) E + (n_c - mean n) (1 - a) (V - E) / (a V + (1 - a) E),     (1 - a) V E / (a V + (1 - a) E)
    novel:       E,                                                                  V

So known classes have predictable sizes in a long tail too, and novel ones if classes are of similar size.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from camp.core.types import UNLABELLED

_LEAST_SIZE = 0.3
"""Lower bound of an expected number, of which the logarithm is taken."""
_LEAST_RATIO = 0.05
"""Lower bound of (1 - a) / a, where there are fewer unlabelled images than novel classes of average size need."""


@dataclass(frozen=True)
class ClassSizes:
    """Predicted numbers of unlabelled images."""

    expected: Tensor
    """(K,) of the known classes in ascending order, then of the novel ones; sums to the number of unlabelled images."""
    variance: Tensor
    """(K,)"""

    @classmethod
    def predict(cls, labels: Tensor, n_novel: int) -> Self:
        """Predict the numbers for labels (n,) of known classes or UNLABELLED.

        >>> ClassSizes.predict(torch.tensor([0, 0, 0, 0, 1, 1] + 6 * [UNLABELLED]), 0).expected
        tensor([4., 2.])
        """
        labelled = labels[labels != UNLABELLED]
        n_unlabelled = len(labels) - len(labelled)
        counts = labelled.unique(return_counts=True)[1].double()
        if not len(counts):
            expected = torch.full((n_novel,), n_unlabelled / max(n_novel, 1))
            return cls(expected, torch.full((n_novel,), torch.inf))
        mean = counts.mean()
        ratio = (n_unlabelled - n_novel * mean) / (counts.sum() + n_novel * mean)
        ratio = ratio.clamp_min(_LEAST_RATIO)  # (1 - a) / a
        share = 1 / (1 + ratio)  # a
        size = mean / share  # E
        of_counts = counts.var() if len(counts) > 1 else counts.new_zeros(())
        spread = ((of_counts - share * (1 - share) * size) / share**2).clamp_min(0)  # V
        scale = (1 - share) / (share * spread + (1 - share) * size)
        known = (1 - share) * size + (counts - mean) * scale * (spread - size)
        expected = torch.cat([known, size.expand(n_novel)]).clamp_min(_LEAST_SIZE)
        variance = torch.cat([(scale * spread * size).expand(len(counts)), spread.expand(n_novel)])
        return cls((expected * n_unlabelled / expected.sum()).float(), variance.float())

    def strengths(self) -> Tensor:
        """How strictly categories follow their expected number, (K,) from 0 (not at all) to 1 (exactly).

        A penalty rho KL(size, e) has the curvature rho / e at e, that of a Gaussian with variance V for rho = e / V; the
        strength is rho / (1 + rho).
        """
        return self.expected / (self.expected + self.variance)

"""Prior of the numbers of unlabelled images of known and novel classes, estimated from those of labelled ones.

Labels are missing at random: each image of a known class has a label with the same probability a. Novel classes are as
large as known ones on average. With n_c labelled images of class c, U unlabelled images and m novel classes,

    (1 - a) / a = (U - m mean n) / (sum_c n_c + m mean n)       and       E = mean n / a

is the mean number of images of a class. Its variance V follows from var n = a^2 V + a (1 - a) E, the second term being
that of labels. It is 0 for classes of equal size and large for a long tail. The best linear prediction of the number of
unlabelled images, and the ratio of its variance to it (that of known classes on average), are

    known c:     e = (1 - a) E + (n_c - mean n) (1 - a) (V - E) / (a V + (1 - a) E),     v / e = V / (a V + (1 - a) E)
    novel:       e = E,                                                                  v / e = V / E

The ratio is 0 for sizes that are known exactly, 1 for those of a Poisson distribution, and greater for a long tail. As
N images can be chosen in many ways, a class with N images contributes log P(N) + log N! to the log-probability of the
assignments, whose derivative with respect to N is about log e - (e / v - 1) log(N / e), and log e for a Poisson
distribution. So categories have the weights e, and are held near them with the strength e / v - 1 if v < e.
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
    """e (K,) of the known classes in ascending order, then of the novel ones; sums to the number of unlabelled images."""
    dispersion: Tensor
    """v / e (K,)"""

    @classmethod
    def predict(cls, labels: Tensor, n_novel: int) -> Self:
        """Predict the numbers for labels (n,) of known classes, of which there is at least one, or UNLABELLED.

        >>> ClassSizes.predict(torch.tensor([0, 0, 0, 0, 1, 1] + 6 * [UNLABELLED]), 0).expected
        tensor([2.5000, 3.5000])
        """
        labelled = labels[labels != UNLABELLED]
        n_unlabelled = len(labels) - len(labelled)
        counts = labelled.unique(return_counts=True)[1].double()
        mean = counts.mean()
        ratio = (n_unlabelled - n_novel * mean) / (counts.sum() + n_novel * mean)
        a = 1 / (1 + ratio.clamp_min(_LEAST_RATIO))
        size = mean / a  # E
        of_counts = counts.var() if len(counts) > 1 else counts.new_zeros(())
        variance = ((of_counts - a * (1 - a) * size) / a**2).clamp_min(0)  # V
        scale = 1 / (a * variance + (1 - a) * size)
        known = (1 - a) * (size + (counts - mean) * (variance - size) * scale)
        expected = torch.cat([known, size.expand(n_novel)]).clamp_min(_LEAST_SIZE)
        dispersion = torch.cat([(variance * scale).expand(len(counts)), (variance / size).expand(n_novel)])
        return cls((expected * n_unlabelled / expected.sum()).float(), dispersion.float())

    @classmethod
    def returning(cls, n_known: int, n_novel: int, n_unlabelled: int, share: float) -> Self:
        """Predict the numbers where categories of earlier batches may return, which labels tell nothing about.

        Known categories are equally likely, and so are novel ones; `share` is that of the known ones together.
        """
        known = torch.full((n_known,), share * n_unlabelled / max(n_known, 1))
        novel = torch.full((n_novel,), (1 - share) * n_unlabelled / max(n_novel, 1))
        return cls(torch.cat([known, novel]).clamp_min(_LEAST_SIZE), torch.ones(n_known + n_novel))

    @classmethod
    def uniform(cls, n_known: int, n_novel: int, n_unlabelled: int) -> Self:
        """Equal weights without any constraint, for the ablation."""
        count = n_known + n_novel
        return cls(torch.full((count,), n_unlabelled / count), torch.ones(count))

    def strengths(self) -> Tensor:
        """How strictly categories follow the expected sizes, h = 1 - v / e (K,), from 0 (not at all) to 1 (exactly)."""
        return (1 - self.dispersion).clamp_min(0)

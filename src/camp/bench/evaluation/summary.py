"""Summary metrics of a run, from the accuracy matrix A[t][i] (after task t, on task i).

Entries that are None (a task without novel classes) are left out. A metric is None if no entry is left, as
forgetting is after a single task. N is the number of tasks seen.
"""

from collections.abc import Callable, Iterable, Sequence

from camp.bench.evaluation.accuracy import AccuracyRow, AccuracySplit, Matrix, Share, matrix
from camp.bench.evaluation.class_groups import Record


class Summary(Record):
    """The four metrics under one evaluation protocol."""

    final: AccuracySplit
    forgetting: AccuracySplit
    plasticity: AccuracySplit
    incremental: AccuracySplit


def mean(shares: Iterable[Share]) -> Share:
    """Mean of the entries that exist.

    >>> mean([0.5, None, 1.0]), mean([None])
    (0.75, None)
    """
    present = [share for share in shares if share is not None]
    return sum(present) / len(present) if present else None


def final(accuracies: Matrix) -> Share:
    """1/N sum_i A[N-1][i]: accuracy after the last task, each task counting the same."""
    return mean(accuracies[-1])


def forgetting(accuracies: Matrix) -> Share:
    """1/(N-1) sum_{i<N-1} (max_{i<=t<N-1} A[t][i] - A[N-1][i]) (Chaudhry et al., 2018).

    Negative where the accuracy on earlier tasks has risen.

    >>> forgetting([[0.75], [1.0, 0.75], [0.5, 0.625, 1.0]])  # (0.5 + 0.125) / 2
    0.3125
    """
    lost: list[Share] = []
    for i, now in enumerate(accuracies[-1][:-1]):
        earlier = [a for row in accuracies[i:-1] if (a := row[i]) is not None]
        if now is not None and earlier:
            lost.append(max(earlier) - now)
    return mean(lost)


def plasticity(accuracies: Matrix) -> Share:
    """1/(N-1) sum_{n=2..N} A_n: accuracy on a task right after learning it, without the first task.

    >>> plasticity([[0.9], [0.95, 0.75], [0.7, 0.6, 0.5]])
    0.625
    """
    return mean(row[-1] for row in accuracies[1:])


def incremental(accuracies: Matrix) -> Share:
    """1/N sum_t 1/(t+1) sum_{i<=t} A[t][i]: the mean accuracy so far, averaged over the run."""
    return mean(mean(row) for row in accuracies)


def summarise(rows: Sequence[AccuracyRow]) -> Summary:
    """All four metrics for each group of classes, from the rows of the tasks seen."""

    def split(metric: Callable[[Matrix], Share]) -> AccuracySplit:
        return AccuracySplit.of(lambda group: metric(matrix(rows, group)))

    return Summary(
        final=split(final),
        forgetting=split(forgetting),
        plasticity=split(plasticity),
        incremental=split(incremental),
    )

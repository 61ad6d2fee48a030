"""Search for the number of categories, and groups of classes whose labels are hidden."""

from collections.abc import Callable, Mapping
from typing import Literal

import torch
from torch import Tensor

from camp.core.progress import Progress


def coarse_to_fine(
    evaluate: Callable[[int], float],
    maximum: int,
    n_steps: int,
    *,
    prefer: Literal["smallest", "greatest"],
    n_known: int = 0,
    progress: Progress,
) -> tuple[int, dict[int, float]]:
    """Find the number between 0 and `maximum` with the highest score.

    A grid of `n_steps` steps is evaluated first, then the neighbours of the best number at half the
    distance, down to a distance of 1.

    Args:
        prefer: Which of several numbers with the best score is taken.
        n_known: Number of known categories, added to the number in messages.

    Returns:
        The number, and the score of every number that was evaluated.
    """
    scores: dict[int, float] = {}
    step = -(-maximum // n_steps) or 1
    grid = [*range(0, maximum, step), maximum]
    with progress.track("Number of categories", len(grid)) as bar:
        while True:
            for number in grid:
                scores[number] = evaluate(number)
                bar.advance()
                bar.say(f"{n_known + number} categories score {scores[number]:.3f}")
            best = argmax(scores, prefer)
            if step == 1:
                return best, scores
            step = -(-step // 2)
            grid = [n for n in (best - step, best + step) if 0 <= n <= maximum and n not in scores]
            bar.total += len(grid)


def argmax(scores: Mapping[int, float], prefer: Literal["smallest", "greatest"]) -> int:
    """The smallest or greatest number with the best score.

    >>> argmax({1: 0.5, 2: 0.9, 3: 0.9}, "smallest"), argmax({1: 0.5, 2: 0.9, 3: 0.9}, "greatest")
    (2, 3)
    """
    top = max(scores.values())
    good = [number for number, score in scores.items() if score == top]
    return min(good) if prefer == "smallest" else max(good)


def random_groups(
    classes: Tensor, n_groups: int, generator: torch.Generator, n_repeats: int = 1
) -> list[Tensor]:
    """Partition `classes` (c,) at random into `n_groups` groups, `n_repeats` times."""
    orders = [torch.randperm(len(classes), generator=generator) for _ in range(n_repeats)]
    return [group for order in orders for group in classes[order.to(classes.device)].tensor_split(n_groups)]


def curve(scores: Mapping[int, float], n_known: int) -> tuple[tuple[int, float], ...]:
    """(number of known and novel categories, score) of every number, sorted."""
    return tuple((n_known + number, scores[number]) for number in sorted(scores))

"""The paper's order of methods, and ours beside it."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise


def place_in(order: Sequence[object]) -> Callable[[object], int]:
    """Where something stands in `order`; behind all of it if it does not."""
    return lambda entry: order.index(entry) if entry in order else len(order)


def other_order(pairs: Mapping[str, tuple[float, float]]) -> str | None:
    """Both orders, if two methods stand one way by ours and the other way by the paper's; `pairs` of (ours, paper).

    Methods whose figures are printed alike are neither before nor behind each other.

    >>> other_order({"camp": (50.0, 58.9), "gcd": (60.0, 20.6)})
    'ours gcd > camp, paper camp > gcd'
    """
    if not any((a - b) * (c - d) < 0 for a, c in pairs.values() for b, d in pairs.values()):
        return None
    ours, paper = ({name: pair[side] for name, pair in pairs.items()} for side in (0, 1))
    return f"ours {_ranked(ours)}, paper {_ranked(paper)}"


def _ranked(values: dict[str, float]) -> str:
    """The names by falling value.

    >>> _ranked({"gcd": 20.6, "camp": 58.9, "gcd-fd": 42.0, "metagcd": 42.0})
    'camp > gcd-fd = metagcd > gcd'
    """
    names = sorted(values, key=lambda name: -values[name])
    signs = ["", *(" = " if values[a] == values[b] else " > " for a, b in pairwise(names))]
    return "".join(sign + name for sign, name in zip(signs, names))

"""Shares as text, alike in every table and on the page."""

import math


def hundredths(share: float, digits: int = 1) -> str:
    """A share in per cent, without the sign for it; what rounds to nothing is 0 and never -0.

    >>> hundredths(0.5213), hundredths(-0.0004), hundredths(-0.1, 0)
    ('52.1', '0.0', '-10')
    """
    return f"{100 * share:z.{digits}f}"


def percent(share: float | None, digits: int = 1) -> str:
    """A share with the sign of per cent, or a dash.

    >>> percent(0.5213), percent(None), percent(0.2, 0)
    ('52.1 %', '–', '20 %')
    """
    return "–" if share is None or not math.isfinite(share) else f"{hundredths(share, digits)} %"

"""What is drawn from the runs of a study: a figure, a table, or both."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from camp.bench.report.tables import Table
from camp.bench.studies.figures.rows import Row
from camp.bench.studies.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Drawn:
    """A figure and the table of its numbers."""

    figure: "Figure | None"
    table: Table
    words: str = ""
    """What the figure shows, for those who do not see it."""
    notes: list[str] = field(default_factory=list)
    """Sentences below the table."""


Drawing = Callable[[Study, list[Row]], Drawn]


def _lazily(module: str, name: str) -> Drawing:
    """The drawing `name` of a module below this one: matplotlib is loaded when something is drawn."""

    def draw(study: Study, rows: list[Row]) -> Drawn:
        import importlib

        drawing: Drawing = getattr(importlib.import_module(f"{__name__}.{module}"), name)
        return drawing(study, rows)

    return draw


DRAWINGS: dict[str, Drawing] = {
    "table": _lazily("tables", "comparison_of_rows"),
    "table1": _lazily("tables", "table1"),
    "table2": _lazily("tables", "table2"),
    "ablation": _lazily("tables", "ablation"),
    "lines": _lazily("lines", "lines"),
    "alpha": _lazily("lines", "alpha"),
    "curves": _lazily("lines", "curves"),
    "number-of-categories": _lazily("lines", "number_of_categories"),
    "before-after": _lazily("distances", "before_after"),
    "centroid-distance": _lazily("distances", "centroid_distance"),
    "plasticity-forgetting": _lazily("scatter", "plasticity_forgetting"),
    "heat-maps": _lazily("maps", "heat_maps"),
    "scenarios": _lazily("maps", "scenarios"),
    "task-confusion": _lazily("maps", "task_confusion"),
    "drift": _lazily("drift", "drift"),
}
"""By the name under which a study asks for it."""

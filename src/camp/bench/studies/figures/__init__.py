"""What is drawn from the runs of a study: a figure, a table, or both."""

from collections.abc import Callable

from camp.bench.studies.figures import lines, maps, tables
from camp.bench.studies.figures.rows import Drawn, Row
from camp.bench.studies.study import Study

DRAWINGS: dict[str, Callable[[Study, list[Row]], Drawn]] = {
    "table": tables.comparison_of_rows,
    "table1": tables.table1,
    "table2": tables.table2,
    "ablation": tables.ablation,
    "lines": lines.lines,
    "alpha": lines.alpha,
    "curves": lines.curves,
    "number-of-categories": lines.number_of_categories,
    "plasticity-forgetting": lines.plasticity_forgetting,
    "before-after": lines.before_after,
    "centroid-distance": lines.centroid_distance,
    "heat-maps": maps.heat_maps,
    "scenarios": maps.scenarios,
    "task-confusion": maps.task_confusion,
    "drift": maps.drift,
}
"""By the name under which a study asks for it."""

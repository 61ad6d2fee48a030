"""The files of a study: its figure, its table in three formats, and a page."""

from pathlib import Path

from camp.bench.report.page import render_template
from camp.bench.report.rendering import save_figure
from camp.bench.report.tables import TableFormat, render
from camp.bench.studies.figures import DRAWINGS
from camp.bench.studies.figures.rows import Drawn, Row
from camp.bench.studies.runner import StudyOutcome
from camp.bench.studies.study import Study
from camp.core.errors import CampError
from camp.core.output_file import write_output
from camp.core.version import __version__

TABLE_FILES: dict[TableFormat, str] = {"md": "table.md", "csv": "table.csv", "latex": "table.tex"}


def draw(study: Study, outcome: StudyOutcome, folder: Path) -> Drawn:
    """Draw the study from its finished runs into `folder`."""
    if not outcome.rows:
        raise CampError(f"No run of the study {study.name} has finished, so there is nothing to draw.")
    drawn = DRAWINGS[study.draw](study, outcome.rows)
    for format, name in TABLE_FILES.items():
        write_output(folder / name, render(drawn.table, format))
    if drawn.figure is not None:
        save_figure(drawn.figure, folder / "figure")
    page = render_template(
        "study.html",
        study=study,
        drawn=drawn,
        rows=outcome.rows,
        failed=outcome.failed,
        made_of=_made_of(study, outcome.rows),
    )
    write_output(folder / "page.html", page)
    return drawn


def _made_of(study: Study, rows: list[Row]) -> str:
    """What all runs share, in words."""
    results = [run.results for row in rows for run in row.runs]
    shared = {
        name: str(getattr(results[0], name))
        for name in ("dataset_title", "backbone", "resolution", "epochs")
        if len({str(getattr(each, name)) for each in results}) == 1
    }
    facts = [
        shared.get("dataset_title"),
        shared.get("backbone"),
        f"{shared['resolution']} pixels" if "resolution" in shared else None,
        f"{shared['epochs']} epochs" if "epochs" in shared else None,
        f"seed{'s' if len(study.seeds) > 1 else ''} {', '.join(map(str, study.seeds))}",
    ]
    runs = f"{len(results)} run{'s' if len(results) > 1 else ''}"
    return f"Made of {runs}: {', '.join(each for each in facts if each)}. CAMP {__version__}."

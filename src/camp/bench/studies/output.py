"""The files of a study: its figure, its table in three formats, and a page."""

import io
from pathlib import Path

from markupsafe import Markup, escape

from camp.bench.report.tables import Table, render, shown
from camp.bench.studies.figures import DRAWINGS, Drawn
from camp.bench.studies.figures.rows import Row
from camp.bench.studies.runner import Conducted
from camp.bench.studies.study import Study
from camp.core.errors import CampError
from camp.core.files import replacing, write_text
from camp.core.version import __version__

TABLE_FILES = {"md": "table.md", "csv": "table.csv", "latex": "table.tex"}


def draw(study: Study, conducted: Conducted, folder: Path) -> Drawn:
    """Draw the study from its finished runs into `folder`."""
    if not conducted.rows:
        raise CampError(f"No run of the study {study.name} has finished, so there is nothing to draw.")
    drawn = DRAWINGS[study.draw](study, conducted.rows)
    table = drawn.table.with_best()
    for format, name in TABLE_FILES.items():
        write_text(folder / name, render(table, format))  # type: ignore[arg-type]
    picture = None
    if drawn.figure is not None:
        for kind in ("png", "svg"):
            file = io.BytesIO()
            # No date inside: the same numbers give the same file.
            metadata = {"Date": None} if kind == "svg" else {"Software": None}
            drawn.figure.savefig(file, format=kind, dpi=160, metadata=metadata)
            with replacing(folder / f"figure.{kind}") as target:
                target.write(file.getvalue())
        picture = (folder / "figure.svg").read_text(encoding="utf-8")
        picture = picture[picture.index("<svg") :]
    write_text(folder / "page.html", _page(study, conducted, drawn, table, picture))
    return drawn


def _page(study: Study, conducted: Conducted, drawn: Drawn, table: Table, picture: str | None) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in table.columns)
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{' class=best' if (i, j) in table.best else ''}>{escape(shown(cell))}</td>"
            for j, cell in enumerate(row)
        )
        + "</tr>"
        for i, row in enumerate(table.rows)
    )
    parts = [f"<h1>{escape(study.title)}</h1>"]
    if study.claim:
        parts.append(f"<p class=claim>The paper: {escape(study.claim)}</p>")
    if picture is not None:
        parts.append(f'<figure role="img" aria-label="{escape(drawn.words)}">{Markup(picture)}</figure>')
    parts += [f"<p>{escape(note)}</p>" for note in drawn.notes]
    parts.append(f"<div class=wide><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>")
    parts.append(f"<p>{escape(_made_of(study, conducted.rows))}</p>{_runs(conducted.rows)}")
    if conducted.failed:
        failed = "".join(
            f"<li>{escape(label)}: {escape(fault)} (<code>{escape(log)}</code>)</li>"
            for label, (fault, log) in conducted.failed.items()
        )
        parts.append(f"<h2>Runs that did not finish</h2><ul>{failed}</ul>")
    return _FRAME.format(title=escape(study.title), body="\n".join(parts))


def _made_of(study: Study, rows: list[Row]) -> str:
    """What all runs share, in words.

    Those of several data sets or backbones tell of none.
    """
    results = [run.results for row in rows for run in row.runs]
    shared = {
        name: str(getattr(results[0], name))
        for name in ("dataset_title", "backbone", "resolution", "epochs")
        if len({str(getattr(each, name)) for each in results}) == 1
    }
    told = [
        shared.get("dataset_title"),
        shared.get("backbone"),
        f"{shared['resolution']} pixels" if "resolution" in shared else None,
        f"{shared['epochs']} epochs" if "epochs" in shared else None,
        f"seed{'s' if len(study.seeds) > 1 else ''} {', '.join(map(str, study.seeds))}",
    ]
    runs = f"{len(results)} run{'s' if len(results) > 1 else ''}"
    return f"Made of {runs}: {', '.join(each for each in told if each)}. CAMP {__version__}."


def _runs(rows: list[Row]) -> str:
    """Where the runs are, to be unfolded."""
    each = "".join(
        f'<li>{escape(row.label)}, seed {run.results.seed}: <a href="../runs/{escape(run.folder.name)}/">'
        f"<code>{escape(run.folder.name)}</code></a></li>"
        for row in rows
        for run in row.runs
    )
    return f"<details><summary>The runs</summary><ul>{each}</ul></details>"


_FRAME = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: #1d2433; background: #fff; }}
figure {{ margin: 1rem 0; }} figure svg {{ max-width: 100%; height: auto; }}
.claim {{ color: #4a5568; }} .wide {{ overflow-x: auto; }} .best {{ font-weight: 700; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .3rem .7rem; border-bottom: 1px solid #d8dee9; text-align: right; white-space: nowrap; }}
th:first-child, td:first-child {{ text-align: left; }}
</style></head><body>
{body}
</body></html>
"""

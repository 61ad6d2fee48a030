"""Charts as files for papers, and the script that draws them in a page."""

import contextlib
import functools
import json
import os
import re
from pathlib import Path

from camp.bench.report.charts import Chart
from camp.bench.report.theme import CONFIG, LIGHT
from camp.core.errors import CampError
from camp.core.files import expand_user, write_text
from camp.core.output_file import open_output


def save_figure(chart: Chart, path: Path) -> None:
    """Write the chart to `path` with the endings .png (200 ppi), .svg and .pdf, in light colours."""
    import vl_convert

    text = json.dumps(chart.spec | {"config": {**CONFIG, "background": "white"}})
    spec = re.sub(r"var\(--([a-z0-9-]+)\)", lambda match: LIGHT[match[1]], text)
    svg = vl_convert.vegalite_to_svg(spec).encode()
    files: dict[str, bytes] = {".png": vl_convert.vegalite_to_png(spec, ppi=200), ".svg": svg}
    # The bytes of a PDF differ from one conversion to the next: it is kept where the chart is the same.
    old, pdf = path.with_suffix(".svg"), path.with_suffix(".pdf")
    if not (pdf.exists() and old.exists() and old.read_bytes() == svg):
        files[".pdf"] = vl_convert.vegalite_to_pdf(spec)
    for ending, content in files.items():
        with open_output(path.with_suffix(ending)) as file:
            file.write(content)


@functools.cache
def vega_script() -> str:
    """JavaScript that draws charts in a page without network access, `window.vegaEmbed`.

    Bundling takes seconds, so the script is kept in the cache folder for later processes.
    """
    import vl_convert

    cache = Path(os.environ.get("XDG_CACHE_HOME", expand_user("~/.cache"))) / "camp"
    versions = f"{vl_convert.get_vega_version()}-{vl_convert.get_vega_embed_version()}"
    path = cache / f"vega-{versions}.js"
    if path.exists():
        return path.read_text(encoding="utf-8")
    script = str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))
    with contextlib.suppress(CampError):  # without a cache it is bundled each time
        write_text(path, script)
    return script

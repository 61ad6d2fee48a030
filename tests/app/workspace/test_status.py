"""What `camp status` imports."""

from pathlib import Path

from small_knowledge import learned

from camp.app.workspace.decisions import Discarded, Merged, Moved, Named
from imported import heavy_imports


def test_status_needs_neither_torch_nor_scikit_learn(tmp_path: Path) -> None:
    """Not with decisions either, which change centroids and radii."""
    workspace = learned(tmp_path / "W")
    decisions = (
        Named(category=3, name="wren"),
        Merged(category=4, into=3),
        Moved(rows=[0], into=9, made=True),
        Discarded(rows=[5]),
    )
    for decision in decisions:
        workspace.decide(decision)
    assert heavy_imports(["status", str(tmp_path / "W")]) == ([0], set())
